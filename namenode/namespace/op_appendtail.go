package namespace

import (
	"math"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// OpAppendTail adds flushed bytes at the end of an open file.
type OpAppendTail struct {
	sparing

	Inode  InodeID
	Offset int64 // the file's length before
	Data   []byte
}

func (op *OpAppendTail) fields(c coder) {
	c.inode(&op.Inode)
	c.I64(&op.Offset)
	c.Bytes(&op.Data)
}

// PlanAppendTail checks the appending of bytes at offset, the end of the file.
// A nil record without an error is a repetition of what was applied: nothing is
// to be done. The int64 is the file's length, in bytes, once the record is
// applied (or now, without one). Errors: LeaseLost, LeaseLostGone, NotAtEnd
// with the true length, TooLarge if the tail would have more than maxTail
// bytes (the writer commits a block first), InvalidArgument without data.
func PlanAppendTail(t *Tree, c *Call, w Writer, offset int64, data []byte, maxTail int) (*OpAppendTail, int64, error) {
	v := view{t, c, "write"}
	n, err := v.writable(w)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case tailRepeated(n, offset, data):
		return nil, n.Length(), nil
	case offset != n.Length():
		return nil, n.Length(), v.notAtEnd(n, offset)
	case len(data) == 0:
		return nil, n.Length(), v.errorf(fserror.InvalidArgument, v.where(n), "no bytes to append")
	}
	if err := v.checkTail(n, len(data), maxTail); err != nil {
		return nil, n.Length(), err
	}
	return &OpAppendTail{Inode: n.ID, Offset: offset, Data: data}, offset + int64(len(data)), nil
}

func (op *OpAppendTail) apply(t applier) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	switch {
	case len(op.Data) == 0:
		return Result{}, misfit("it brings no bytes")
	case op.Offset != n.Length():
		return Result{}, misfitf("its offset %d is not the length %d", op.Offset, n.Length())
	case int64(len(op.Data)) > math.MaxInt32:
		return Result{}, misfit("it brings too many bytes")
	case int64(len(op.Data)) > math.MaxInt64-n.Length():
		return Result{}, misfitf("file %d would be too long", n.ID)
	}
	n = n.Edit()
	n.MTime = t.now.Time
	x := n.OwnExt()
	x.Tail = content.GrowTail(x.Tail, op.Data)
	x.Open = &node.Open{Grant: x.Open.Grant, Last: content.NewAppend(op.Offset, op.Data)}
	t.store(n)
	return fileResult(n), nil
}

func (op *OpAppendTail) grows(g growing) { g.Lengthens(op.Inode, int64(len(op.Data))) }

func (op *OpAppendTail) affects(a affected) affected { return a.attr(op.Inode) }

func (op *OpAppendTail) events(n news) news { return n.after(EventLength, op.Inode) }

// written is the file to which its writer brings bytes; see Tree.WriterOf.
func (op *OpAppendTail) written() InodeID { return op.Inode }
