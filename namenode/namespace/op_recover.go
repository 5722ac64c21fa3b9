package namespace

// OpRecover closes an abandoned file at its flushed length. It makes a new
// epoch (its txid), so the old writer is fenced.
type OpRecover struct {
	Inode  InodeID
	Reason string // "soft limit", "hard limit", "forced", "same client", "repair"
}

func (*OpRecover) opType() uint8 { return typeRecover }

func (op *OpRecover) fields(c *coder) {
	c.inode(&op.Inode)
	c.string(&op.Reason)
}

func (t *Tree) recover(op *OpRecover, e *Entry) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	closed := []ClosedFile{closedFile(n, ReasonRecovered)}
	n = n.edit()
	t.shut(n, e)
	r := fileResult(n)
	r.Closed = closed
	return r, nil
}
