package namespace

import "bytes"

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

func (op *OpCaching) apply(t *Tree, _ stamp) (Result, error) {
	switch {
	case op.Session == SessionID{}:
		return Result{}, misfit("it names no session")
	case op.Term < 0:
		return Result{}, misfit("its term is below zero")
	case op.Term > 0:
		t.caching.ReplaceOrInsert(*op)
	default:
		t.caching.Delete(*op)
		t.dropNumbers(op.Session)
	}
	return Result{}, nil
}

// Caching returns the term of the read-cache leases that a session may have, in
// milliseconds; 0 if it may have none.
func (t *Tree) Caching(id SessionID) int64 {
	c, _ := t.caching.Get(OpCaching{Session: id})
	return c.Term
}

// CachingSessions returns all sessions that may have read-cache leases, and the
// longest of their terms in milliseconds.
func (t *Tree) CachingSessions() (ids []SessionID, term int64) {
	t.caching.Ascend(func(c OpCaching) bool {
		ids = append(ids, c.Session)
		term = max(term, c.Term)
		return true
	})
	return ids, term
}

func lessCaching(a, b OpCaching) bool { return bytes.Compare(a.Session[:], b.Session[:]) < 0 }

func (*OpCaching) affects(a affected) affected { return a }
func (*OpCaching) events(n news) news          { return n }
