package namespace

import (
	"fmt"
	"reflect"

	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// What records name; package tables says more.
type (
	// InodeID names an inode for ever: ids are never reused. The root is RootID.
	InodeID = tables.InodeID
	// SessionID is a client process.
	SessionID = tables.SessionID
	// Token is the unguessable part of a writer's identity.
	Token = tables.Token
	// LeaseID names a lease that somebody was granted.
	LeaseID = tables.LeaseID
	// Lease is a granted lease.
	Lease = tables.Lease
	// Owner is who a lease was granted to.
	Owner = tables.LeaseOwner
	// Holder is who a file open for write belongs to.
	Holder = tables.Holder
	// CallID makes a request happen at most once.
	CallID = tables.CallID
	// AgeKey names something whose age is journalled.
	AgeKey = tables.AgeKey
	// Age is how long a lease was not renewed.
	Age = tables.Age
)

// The types of requests and answers; package calls says more.
type (
	// Call is the caller of an operation.
	Call = calls.Call
	// Ref names what a call is about.
	Ref = calls.Ref
	// Change names something that can change.
	Change = calls.Change
	// Event is what a record did to one name.
	Event = calls.Event
	// EventType is what happened to a file, directory or link.
	EventType = calls.EventType
	// Type is the type of an inode.
	Type = calls.Type
	// Block is one entry of a file's block list.
	Block = content.Block
	// Attr is what stat shows of an inode.
	Attr = calls.Attr
	// OpenFile is a file open for write, and its holder.
	OpenFile = calls.OpenFile
	// ClosedFile is a file that is no longer open under an epoch.
	ClosedFile = calls.ClosedFile
	// Writer is what a writer identifies itself with in each call.
	Writer = calls.Writer
	// Result is what an applied record did.
	Result = calls.Result
	// CreateRequest asks for a new file.
	CreateRequest = calls.CreateRequest
	// Hide asks for another name for a file that loses its own.
	Hide = calls.Hide
)

// The constants of package calls.
const (
	RootID          = calls.RootID
	TypeFile        = calls.TypeFile
	TypeDir         = calls.TypeDir
	TypeSymlink     = calls.TypeSymlink
	FollowLast      = calls.FollowLast
	NoLinks         = calls.NoLinks
	ChangeAttr      = calls.ChangeAttr
	ChangeEntries   = calls.ChangeEntries
	ChangeName      = calls.ChangeName
	ChangeLease     = calls.ChangeLease
	EventCreate     = calls.EventCreate
	EventClose      = calls.EventClose
	EventDelete     = calls.EventDelete
	EventRename     = calls.EventRename
	EventLength     = calls.EventLength
	EventAttr       = calls.EventAttr
	EventLease      = calls.EventLease
	ReasonClosed    = calls.ReasonClosed
	ReasonRecovered = calls.ReasonRecovered
	ReasonTakenOver = calls.ReasonTakenOver
	ReasonDeleted   = calls.ReasonDeleted
	ReasonReplaced  = calls.ReasonReplaced
)

// At is what a path names; a symbolic link at its end is not followed.
func At(path string) Ref { return calls.At(path) }

// Follow is what a path leads to, through a symbolic link at its end.
func Follow(path string) Ref { return calls.Follow(path) }

// Inode is an inode, wherever it is.
func Inode(id InodeID) Ref { return calls.Inode(id) }

// Entry is one journal record, decoded.
type Entry struct {
	TxID uint64
	Time int64 // Unix milliseconds
	Call CallID
	By   *Owner // who asked for it, if the record says so; nothing in the tree depends on it
	Op   Op
}

// Op is one kind of change. The list is closed (ops), and a layout never changes:
// a new layout is a new kind.
//
// Ops name inodes by id, never by path, so that replay is independent of names.
type Op interface {
	// fields codes the fields, in the order of the layout.
	fields(c coder)
	// apply checks that the record fits, all of it before it changes anything.
	apply(t applier) (Result, error)
	// takes is what it deletes or replaces, for the trash to keep; 0: nothing.
	takes() InodeID
	// grows tells what it adds to quotas.
	grows(g growing)
	// affects adds what Tree.Affects is to return.
	affects(a affected) affected
	// events adds what Result.Events is to have, but the news of Result.Opened.
	events(n news) news
}

// ops makes an empty record of each kind. The numbers are in journals: never reused.
var ops = [...]func() Op{
	1: empty[OpActivate], 2: empty[OpMkdir], 3: empty[OpCreate], 4: empty[OpOpen],
	5: empty[OpAppendTail], 6: empty[OpCommit], 7: empty[OpClose], 8: empty[OpRecover],
	9: empty[OpRename], 10: empty[OpDelete], 11: empty[OpReclaim], 12: empty[OpSetAttr],
	13: empty[OpSymlink], 14: empty[OpTruncate], 15: empty[OpConcat], 16: empty[OpTombstone],
	17: empty[OpCollected], 18: empty[OpImage], 19: empty[OpSafeMode], 20: empty[OpGrant],
	21: empty[OpEndLease], 22: empty[OpReap], 23: empty[OpAttach], 24: empty[OpDetach],
	25: empty[OpAges], 26: empty[OpCaching], 27: empty[OpCut], 28: empty[OpHide],
	29: empty[OpXattr], 30: empty[OpReserve], 31: empty[OpCreateAs], 32: empty[OpEnd],
	33: empty[OpTxn], 34: empty[OpGrantNamed],
	36: empty[OpPass], 37: empty[OpPassChange], 38: empty[OpSetACL], 42: empty[OpQuota], TrashKind: empty[OpTrash], levels.Raise: empty[OpLevel], snapshots.Kind: empty[OpSnapshot],
}

func empty[T any, P interface {
	*T
	Op
}]() Op {
	return P(new(T))
}

// opTypes are the numbers of the kinds.
var opTypes = func() map[reflect.Type]uint8 {
	types := make(map[reflect.Type]uint8)
	for i, op := range ops {
		if op != nil {
			types[reflect.TypeOf(op())] = uint8(i) //nolint:gosec // a few
		}
	}
	return types
}()

// opType is the number of the kind of a record, its place in ops.
func opType(op Op) uint8 { return opTypes[reflect.TypeOf(op)] }

// sparing is of records that delete and replace nothing that the trash could keep.
type sparing struct{}

func (sparing) takes() InodeID { return 0 }

// modest is of those of them that also add nothing to quotas.
type modest struct{ sparing }

func (modest) grows(growing) {}

// unseen is of those of them that also change nothing that a caller can have cached or watch.
type unseen struct{ modest }

func (unseen) affects(a affected) affected { return a }
func (unseen) events(n news) news          { return n }

// newOp returns an empty record of the kind, nil if there is none such.
func newOp(typ uint8) Op {
	if int(typ) >= len(ops) || ops[typ] == nil {
		return nil
	}
	return ops[typ]()
}

// opName is the kind of a record in words, such as "Create".
func opName(op Op) string {
	if op == nil {
		return "nil"
	}
	return fmt.Sprintf("%T", op)[len("*namespace.Op"):]
}
