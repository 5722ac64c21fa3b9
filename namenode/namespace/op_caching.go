package namespace

// OpCaching notes that a session may have read-cache leases, or (Term 0) may
// not any more.
type OpCaching struct {
	Session SessionID
	Term    int64 // milliseconds that one lasts at most after each renewal
}

func (*OpCaching) opType() uint8 { return 26 }

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
	t.cachers.Put(op.Session, op.Term)
	return Result{}, nil
}

// Caching returns the term of the read-cache leases that a session may have, in
// milliseconds; 0 if it may have none.
func (t *Tree) Caching(id SessionID) int64 { return t.cachers.Term(id) }

// CachingSessions returns all sessions that may have read-cache leases, and the
// longest of their terms in milliseconds.
func (t *Tree) CachingSessions() (ids []SessionID, term int64) { return t.cachers.All() }

func (*OpCaching) affects(a affected) affected { return a }
func (*OpCaching) events(n news) news          { return n }
