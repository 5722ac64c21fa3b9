package namespace

// OpCaching notes that a session may have read-cache leases, or (Term 0) may
// not any more.
type OpCaching struct {
	unseen

	Session SessionID
	Term    int64 // milliseconds that one lasts at most after each renewal
}

func (op *OpCaching) fields(c coder) {
	c.Raw((*[16]byte)(&op.Session))
	c.I64(&op.Term)
}

func (op *OpCaching) apply(t applier) (Result, error) {
	switch {
	case op.Session == SessionID{}:
		return Result{}, misfit("it names no session")
	case op.Term < 0:
		return Result{}, misfit("its term is below zero")
	}
	t.CacherTable.Put(op.Session, op.Term)
	return Result{}, nil
}
