package namespace

import (
	"math"

	"github.com/leasefs/leasefs/internal/fserror"
)

// OpClose ends writing; Data are last bytes for the tail.
type OpClose struct {
	sparing

	Inode InodeID
	Data  []byte
	MTime int64 // 0: the record's time
}

func (op *OpClose) fields(c coder) {
	c.inode(&op.Inode)
	c.Bytes(&op.Data)
	c.I64(&op.MTime)
}

// KeepMTime is the modification time that stands for the one a file has.
const KeepMTime = math.MinInt64

// PlanClose checks the end of writing. data, if any, are last bytes for the
// tail at offset; they may be there already. length is the file's whole length
// as the writer believes, data included (-1: not given); mtime is for the file
// (Unix milliseconds; 0: now; KeepMTime: as it is, or now with data). Errors: as
// of PlanAppendTail.
func PlanClose(t *Tree, c *Call, w Writer, offset int64, data []byte, length int64, mtime int64, maxTail int) (*OpClose, error) {
	v := view{t, c, "close"}
	n, err := v.writable(w)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		if offset+int64(len(data)) == n.Length() && tailRepeated(n, offset, data) {
			data = nil
		} else if offset != n.Length() {
			return nil, v.notAtEnd(n, offset)
		}
	}
	if length >= 0 && length != n.Length()+int64(len(data)) {
		err := v.errorf(fserror.NotAtEnd, v.where(n), "the file has %d bytes, not %d as its writer believes", n.Length()+int64(len(data)), length)
		err.Length = n.Length()
		return nil, err
	}
	if len(data) > 0 {
		if err := v.checkTail(n, len(data), maxTail); err != nil {
			return nil, err
		}
	}
	if mtime == KeepMTime {
		mtime = 0
		if len(data) == 0 {
			mtime = n.MTime
		}
	}
	return &OpClose{Inode: n.ID, Data: data, MTime: mtime}, nil
}

func (op *OpClose) apply(t applier) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if int64(len(op.Data)) > math.MaxInt64-n.Length() {
		return Result{}, misfitf("file %d would be too long", n.ID)
	}
	closed := []ClosedFile{closedFile(n, ReasonClosed)}
	n = n.Edit()
	n.MTime = op.MTime
	if n.MTime == 0 {
		n.MTime = t.now.Time
	}
	if len(op.Data) > 0 {
		x := n.OwnExt()
		tail := make([]byte, len(x.Tail)+len(op.Data))
		copy(tail[copy(tail, x.Tail):], op.Data)
		x.Tail = tail
	}
	t.shut(n)
	r := fileResult(n)
	r.Closed = closed
	return r, nil
}

func (op *OpClose) grows(g growing) { g.Lengthens(op.Inode, int64(len(op.Data))) }

func (op *OpClose) affects(a affected) affected { return a.attr(op.Inode) }

func (op *OpClose) events(n news) news {
	if len(op.Data) > 0 {
		n = n.after(EventLength, op.Inode)
	}
	return n.after(EventClose, op.Inode)
}

// written is as of an OpAppendTail.
func (op *OpClose) written() InodeID { return op.Inode }
