package namespace

// OpRecover closes an abandoned file at its flushed length. It makes a new
// epoch (its txid), so the old writer is fenced.
type OpRecover struct {
	modest

	Inode  InodeID
	Reason string // "soft limit", "hard limit", "forced", "same client", "repair"
}

func (op *OpRecover) fields(c coder) {
	c.inode(&op.Inode)
	c.Text(&op.Reason)
}

func (op *OpRecover) apply(t applier) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	closed := []ClosedFile{closedFile(n, ReasonRecovered)}
	n = n.Edit()
	t.shut(n)
	r := fileResult(n)
	r.Closed, r.Reason = closed, op.Reason
	return r, nil
}

func (op *OpRecover) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpRecover) events(n news) news          { return n.after(EventClose, op.Inode) }
