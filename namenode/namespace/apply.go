package namespace

import (
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

func closedFile(n *inode, reason string) ClosedFile {
	g := n.Ext.Open.Grant
	return ClosedFile{Inode: n.ID, Epoch: g.Epoch, Session: g.Holder.Session, Reason: reason, Holder: g.Holder, Since: g.Since}
}

// Apply changes the state as a journal record says. It is the one way to change
// it, and a function of the state and the record alone. Records are numbered
// without gaps and their times never go back; the first after New may have any
// number. If record and state do not fit it returns an error of kind Internal
// and has changed nothing.
//
// Strings and bytes of the entry are copied as far as they are kept.
func (t *Tree) Apply(e Entry) (Result, error) {
	if err := t.follows(&e); err != nil {
		return Result{}, refusal(t, &e, err)
	}
	var n news
	if t.events {
		n = e.Op.events(news{t: t})
	}
	var writer OpenFile
	if t.AgeTable.Len() > 0 {
		writer, _ = t.WriterOf(e.Op)
	}
	now := stamp{TxID: e.TxID, Time: e.Time, reigned: t.reigned}
	if Activation(e.Op) == nil {
		now.reigned += e.Time - t.time
	}
	a, quotas := applier{t, now, keeper{}}, t.quotas.Len() > 0
	r, err := e.Op.apply(a)
	if err != nil {
		return Result{}, refusal(t, &e, err)
	}
	if quotas || t.quotas.Len() > 0 {
		a.touch(quotaChange)
	}
	r.TxID = e.TxID
	t.txid, t.time, t.reigned = e.TxID, e.Time, now.reigned
	if r.Opened != nil {
		writer = *r.Opened
	}
	t.AgeTable.Forget(AgeKey{Session: writer.Holder.Session})
	t.AgeTable.Forget(AgeKey{Inode: writer.Inode})
	t.ResultTable.Remember(e.Call, t.reigned, Answer(&r, e.Op))
	r.Forgotten = t.ResultTable.Expire(t.reigned)
	if t.events {
		r.Events = append(r.Events, n.of(&r)...)
	}
	return r, nil
}

// applier applies one record to a tree.
type applier struct {
	*Tree
	now  stamp
	keep keeper
}

// stamp is what a record tells those who apply it of itself.
type stamp struct {
	TxID    uint64
	Time    int64
	reigned int64 // what Tree.Reigned is with it
}

// touch notes a change that the record makes.
func (t applier) touch(c Change) { t.tracker.Touch(t.now.TxID, c) }

// touchEntry notes that an entry of a directory came, went or was replaced.
func (t applier) touchEntry(dir InodeID, name string) {
	t.touch(Change{Kind: ChangeName, Inode: dir, Name: name})
	t.touch(Change{Kind: ChangeEntries, Inode: dir})
}

// refusal is the error for a record that does not fit, and why.
func refusal(t *Tree, e *Entry, why error) error {
	err := fserror.Wrap(fserror.Internal, "apply", "", why)
	err.Message = fmt.Sprintf("record %d (%s) does not fit the state after record %d", e.TxID, opName(e.Op), t.txid)
	return err
}

// misfit is why a record does not fit the state.
type misfit string

func (m misfit) Error() string { return string(m) }

func misfitf(format string, args ...any) error { return misfit(fmt.Sprintf(format, args...)) }

// follows checks what holds for records of all kinds.
func (t *Tree) follows(e *Entry) error {
	switch {
	case t.frozen:
		return misfit("a clone cannot be changed")
	case e.Op == nil:
		return misfit("it says nothing")
	case e.TxID == 0 || (t.txid != 0 && e.TxID != t.txid+1):
		return misfit("its number is not the next")
	case e.Time < t.time:
		return misfitf("its time %d is before %d, that of the last", e.Time, t.time)
	case t.reigns.Term == 0 && Activation(e.Op) == nil:
		return misfit("the first record of a namespace must be an activation")
	case t.ResultTable.Repeated(e.Call):
		return misfitf("call %d of its session was carried out already", e.Call.Seq)
	}
	return nil
}

// reachableDir returns a directory in which something can be made.
func (t applier) reachableDir(id InodeID) (*inode, error) {
	n := t.get(id)
	switch {
	case n == nil:
		return nil, misfitf("there is no inode %d", id)
	case n.Type != TypeDir:
		return nil, misfitf("inode %d is no directory", id)
	case !t.reachable(n, nil):
		return nil, misfitf("directory %d is deleted", id)
	}
	return n, nil
}

// entry returns the entry of a directory, which must be the inode id.
func (t applier) entry(dir InodeID, name string, id InodeID) (*inode, error) {
	n := t.lookup(dir, name)
	switch {
	case n == nil && id == 0:
		return nil, nil
	case n == nil:
		return nil, misfitf("directory %d has no entry %q", dir, name)
	case n.ID != id:
		return nil, misfitf("entry %q of directory %d is inode %d, not %d", name, dir, n.ID, id)
	}
	return n, nil
}

// Answer is what the call of a record, which did r, is answered, now and when it is repeated.
func Answer(r *Result, op Op) tables.CallResult { return r.Answer(opType(op)) }
