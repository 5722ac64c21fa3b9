package namespace

import "strings"

// OpImage publishes an image that holds the state up to TxID.
type OpImage struct {
	TxID uint64
	Name string
	Size int64
	CRC  uint32
}

func (op *OpImage) fields(c coder) {
	c.U64(&op.TxID)
	c.Text(&op.Name)
	c.I64(&op.Size)
	c.Sum32(&op.CRC)
}

func (op *OpImage) apply(t applier) (Result, error) {
	if op.TxID > t.txid {
		return Result{}, misfitf("it publishes an image of record %d, which is yet to come", op.TxID)
	}
	images := append(t.Images(), *op)
	images[len(images)-1].Name = strings.Clone(op.Name)
	t.images = images[max(0, len(images)-2):]
	return Result{}, nil
}

func (*OpImage) takes() InodeID              { return 0 }
func (*OpImage) grows(growing)               {}
func (*OpImage) affects(a affected) affected { return a }
func (*OpImage) events(n news) news          { return n }
