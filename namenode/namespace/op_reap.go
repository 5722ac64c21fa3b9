package namespace

// OpReap deletes up to Limit files of a lease that has ended.
type OpReap struct {
	ID    LeaseID
	Limit uint32
}

func (op *OpReap) fields(c coder) {
	c.lease(&op.ID)
	c.U32(&op.Limit)
}

func (op *OpReap) apply(t applier) (Result, error) {
	if l := t.leases.Get(op.ID); l == nil || l.Ended == 0 {
		return Result{}, misfitf("there is no lease %x that has ended", uint64(op.ID))
	}
	var r Result
	r.Closed = t.deleteAttached(int(op.Limit), op.ID, &r.Deleted)
	return r, nil
}

func (op *OpReap) affects(a affected) affected {
	return a.deleted(a.t.leases.Files(op.ID, 0, int(op.Limit))...)
}

func (op *OpReap) events(n news) news { return n.gone(n.t.leases.Files(op.ID, 0, int(op.Limit))...) }
