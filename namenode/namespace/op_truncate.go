package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// OpTruncate shrinks a closed file.
type OpTruncate struct {
	modest

	Inode  InodeID
	Length int64
}

func (op *OpTruncate) fields(c coder) {
	c.inode(&op.Inode)
	c.I64(&op.Length)
}

// PlanTruncate checks the shrinking of a closed file to length bytes. Both results are nil if it has that length. Errors: NotFound,
// IsDirectory, Permission (write), Held with the holder, InvalidArgument (a
// length below 0), Unsupported (a length above the file's).
func PlanTruncate(t *Tree, c *Call, r Ref, length int64) (*OpTruncate, error) {
	v := view{t, c, "truncate"}
	n, path, err := v.findWritable(r)
	switch {
	case err != nil:
		return nil, err
	case length < 0:
		return nil, v.errorf(fserror.InvalidArgument, path, "the length %d is below 0", length)
	case n.Open() != nil:
		return nil, held(v.op, path, n)
	case length > n.Length():
		return nil, noLonger(v.op, path, n)
	case length == n.Length():
		return nil, nil
	}
	return &OpTruncate{Inode: n.ID, Length: length}, nil
}

func (op *OpTruncate) apply(t applier) (Result, error) {
	n, err := t.file(op.Inode)
	switch {
	case err != nil:
		return Result{}, err
	case n.Open() != nil:
		return Result{}, misfitf("file %d is open", n.ID)
	}
	if n, err = t.shortened(n, op.Length); err != nil {
		return Result{}, err
	}
	t.store(n)
	return fileResult(n), nil
}

func (op *OpTruncate) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpTruncate) events(n news) news          { return n.length(op.Inode, op.Length) }
