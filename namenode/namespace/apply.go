package namespace

import (
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// Result is what an applied record did.
type Result struct {
	TxID         uint64
	Inode        InodeID // made, changed or deleted; 0 if the record is about none
	Length       int64   // of the file now, in bytes
	BlocksLength int64   // where its tail begins, in bytes
	// Opened is the file that is now open under a new epoch.
	Opened *OpenFile
	// Closed are the files that are no longer open under the epoch given.
	Closed []ClosedFile
	// Lease is the granted lease that the record is about. Granted is set if
	// the record granted it, LeaseEnded if it ended it.
	Lease      LeaseID
	Granted    *Lease
	LeaseEnded bool
	// LeaseOwner is the user whose lease ended.
	LeaseOwner string
	Reason     string // of the end of the lease, such as LeaseRevoked
	Deleted    int    // attached files that the end of leases deleted
	// Forgotten are sessions whose results are not kept any more.
	Forgotten []SessionID
	// Events are what the record did to names, in order, if Tree.Events is on.
	Events []Event
}

// OpenFile is a file open for write, and who has it.
type OpenFile struct {
	Inode  InodeID
	Epoch  uint64 // the number of the record that granted it
	Token  Token
	Holder Holder
	Since  int64 // Unix milliseconds by the journal
}

// ClosedFile is a file that is no longer open under an epoch.
type ClosedFile struct {
	Inode   InodeID
	Epoch   uint64
	Session SessionID
	Reason  string // one of the Reason constants
}

// Why a file is no longer open under an epoch.
const (
	ReasonClosed    = "closed"
	ReasonRecovered = "recovered"
	ReasonTakenOver = "taken over"
	ReasonDeleted   = "deleted"
	ReasonReplaced  = "replaced"
)

func closedFile(n *inode, reason string) ClosedFile {
	g := n.ext.open.grant
	return ClosedFile{Inode: n.id, Epoch: g.epoch, Session: g.holder.Session, Reason: reason}
}

// Apply changes the state as a journal record says. It is the one way to change
// it, and a function of the state and the record alone. Records are numbered
// without gaps and their times never go back; the first after New may have any
// number. If record and state do not fit it returns an error of kind Internal
// and has changed nothing.
//
// Strings and bytes of the entry are copied as far as they are kept.
func (t *Tree) Apply(e Entry) (Result, error) {
	var ev []Event
	var length int64
	if t.events {
		length = t.lengthOf(e.Op)
		ev = t.eventsBefore(e.Op)
	}
	var writer OpenFile
	if t.ages.Len() > 0 {
		writer, _ = t.WriterOf(e.Op)
	}
	e.reigned = t.reigned
	if _, activation := e.Op.(*OpActivate); !activation {
		e.reigned += e.Time - t.time
	}
	r, err := t.apply(&e)
	if err != nil {
		err := fserror.Wrap(fserror.Internal, "apply", "", err)
		err.Message = fmt.Sprintf("record %d (%s) does not fit the state after record %d", e.TxID, opName(e.Op), t.txid)
		return Result{}, err
	}
	r.TxID = e.TxID
	t.txid, t.time, t.reigned = e.TxID, e.Time, e.reigned
	if r.Opened != nil {
		writer = *r.Opened
	}
	t.forgetAge(AgeKey{Session: writer.Holder.Session})
	t.forgetAge(AgeKey{Inode: writer.Inode})
	t.remember(&e, &r)
	r.Forgotten = t.expireSessions()
	if t.events {
		r.Events = t.eventsAfter(e.Op, &r, ev, r.Length != length)
	}
	return r, nil
}

// misfit is why a record does not fit the state.
type misfit string

func (m misfit) Error() string { return string(m) }

func misfitf(format string, args ...any) error { return misfit(fmt.Sprintf(format, args...)) }

// apply checks what holds for all records and calls the kind's own function,
// which checks all the rest before it changes anything.
func (t *Tree) apply(e *Entry) (Result, error) {
	_, activate := e.Op.(*OpActivate)
	switch {
	case t.frozen:
		return Result{}, misfit("a clone cannot be changed")
	case e.TxID == 0 || (t.txid != 0 && e.TxID != t.txid+1):
		return Result{}, misfit("its number is not the next")
	case e.Time < t.time:
		return Result{}, misfitf("its time %d is before %d, that of the last", e.Time, t.time)
	case t.term == 0 && !activate:
		return Result{}, misfit("the first record of a namespace must be an activation")
	case t.repeated(e.Call):
		return Result{}, misfitf("call %d of its session was carried out already", e.Call.Seq)
	}
	switch op := e.Op.(type) {
	case *OpActivate:
		return t.activate(op, e)
	case *OpMkdir:
		return t.mkdir(op, e)
	case *OpCreate:
		return t.create(op, 0, e)
	case *OpCreateAs:
		return t.createAs(op, e)
	case *OpReserve:
		return t.reserve(op)
	case *OpOpen:
		return t.openForAppend(op, e)
	case *OpCut:
		return t.cut(op, e)
	case *OpAppendTail:
		return t.appendTail(op, e)
	case *OpCommit:
		return t.commit(op, e)
	case *OpClose:
		return t.closeFile(op, e)
	case *OpRecover:
		return t.recover(op, e)
	case *OpRename:
		return t.rename(op, e)
	case *OpHide:
		return t.hide(op, e)
	case *OpDelete:
		return t.remove(op, e)
	case *OpReclaim:
		return t.reclaim(op, e)
	case *OpSetAttr:
		return t.setAttr(op, e)
	case *OpXattr:
		return t.setXattr(op, e)
	case *OpSymlink:
		return t.symlink(op, e)
	case *OpTruncate:
		return t.truncate(op, e)
	case *OpConcat:
		return t.concat(op, e)
	case *OpTombstone:
		return t.tombstone(op, e)
	case *OpCollected:
		return t.collected(op)
	case *OpImage:
		return t.image(op)
	case *OpSafeMode:
		t.safeMode = op.On
		t.touch(e.TxID, safeModeChange)
		return Result{}, nil
	case *OpGrant:
		return t.grantLease(op, e)
	case *OpEndLease:
		return t.endLease(op, e)
	case *OpReap:
		return t.reap(op, e)
	case *OpAttach:
		return t.attachFile(op, e)
	case *OpDetach:
		return t.detachFile(op, e)
	case *OpAges:
		return t.setAges(op)
	case *OpCaching:
		return t.setCaching(op)
	}
	return Result{}, misfitf("unknown kind of record %T", e.Op)
}

// reachableDir returns a directory in which something can be made.
func (t *Tree) reachableDir(id InodeID) (*inode, error) {
	n := t.get(id)
	switch {
	case n == nil:
		return nil, misfitf("there is no inode %d", id)
	case n.typ != TypeDir:
		return nil, misfitf("inode %d is no directory", id)
	case !t.reachable(n, nil):
		return nil, misfitf("directory %d is deleted", id)
	}
	return n, nil
}

// file returns a file that is there.
func (t *Tree) file(id InodeID) (*inode, error) {
	n := t.get(id)
	switch {
	case n == nil:
		return nil, misfitf("there is no inode %d", id)
	case n.typ != TypeFile:
		return nil, misfitf("inode %d is no file", id)
	}
	return n, nil
}

// entry returns the entry of a directory, which must be the inode id.
func (t *Tree) entry(dir InodeID, name string, id InodeID) (*inode, error) {
	n := t.lookup(dir, name)
	switch {
	case n == nil && id == 0:
		return nil, nil
	case n == nil:
		return nil, misfitf("directory %d has no entry %q", dir, name)
	case n.id != id:
		return nil, misfitf("entry %q of directory %d is inode %d, not %d", name, dir, n.id, id)
	}
	return n, nil
}

func checkNames(dirs []string, name string) error {
	for _, d := range dirs {
		if err := fspath.CheckName(d); err != nil {
			return err
		}
	}
	return fspath.CheckName(name)
}
