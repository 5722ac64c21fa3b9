package readlease

import (
	"sync"
	"sync/atomic"
	"time"
)

// Table is who may answer from which reads. See the package comment.
type Table struct {
	cfg  Config
	keys keyTable
	seq  atomic.Uint64

	// active is the number of known sessions: while it is zero, a change has
	// nothing to do.
	active, connected atomic.Int64

	dirMu sync.RWMutex
	dir   map[SessionID]*session

	slotMu sync.RWMutex
	slots  []*holdings // by slot; nil: free
	free   []uint32

	// What was dropped and is still in the holders of its keys. Those find it
	// dead; sweep takes it out, outside of all other locks.
	garbageMu sync.Mutex
	garbage   []*holdings
	garbages  atomic.Int64

	owners owners

	aloneMu sync.Mutex // over GrantAlone: two do not find a key free at once

	recovering atomic.Bool // false: rec is empty
	recMu      sync.Mutex
	rec        recovery

	nextShed atomic.Int64 // not before that time (Mono)

	n struct {
		grants, refused, marked, limited, full          atomic.Uint64
		revocations, dropAlls, lost, waits, waitsByTerm atomic.Uint64
	}
}

// recovery is the sessions of a former reign.
type recovery struct {
	ids   map[SessionID]struct{}
	until time.Duration
	waits []*wait
}

// pending is a revocation that is not acknowledged.
type pending struct {
	seq     uint64
	at      time.Duration // when it was pushed
	entries []*entry      // of the session's holdings
	all     bool          // then it is the last one
	inTerm  bool          // pushed while the term ran
	waits   []*wait
}

// session is one that caches, or may cache yet.
type session struct {
	id SessionID

	mu      sync.Mutex
	gone    bool   // forgotten: look it up again
	number  uint64 // of its latest stream
	stream  *Stream
	hold    *holdings
	until   time.Duration // the grantor's end of the term
	pending []pending
	all     bool // pending ends with a drop of everything
	lost    bool // the lease: the penalty begins when it is heard of
	slow    slowness
	penalty time.Duration // no lease before
	owner   *owner        // nil before its first stream
	bar     time.Duration // no lease before, by what its owner did when it came

	size atomic.Int64 // len(hold.list)
}

// Stream is one connection of a session over which it is told of revocations.
type Stream struct {
	t    *Table
	s    *session
	push func(Revocation)
}

// New returns an empty table.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg.withDefaults(), dir: make(map[SessionID]*session)}
	t.keys.init()
	t.seq.Store(t.cfg.FirstSeq)
	return t
}

func (t *Table) now() time.Duration { return t.cfg.Clock.Mono() }

// grantorsTerm is how long after a renewal the grantor's end is.
func (t *Table) grantorsTerm() time.Duration { return t.cfg.Term + t.cfg.Margin }

// lookup returns the session locked, or nil.
func (t *Table) lookup(id SessionID) *session {
	for {
		t.dirMu.RLock()
		s := t.dir[id]
		t.dirMu.RUnlock()
		if s == nil {
			return nil
		}
		s.mu.Lock()
		if !s.gone {
			return s
		}
		s.mu.Unlock()
	}
}

// ensure returns the session locked, made if it is new; nil if it would be one
// too many.
func (t *Table) ensure(id SessionID, limit int) *session {
	for {
		t.dirMu.Lock()
		s := t.dir[id]
		if s == nil {
			if len(t.dir) >= limit {
				t.dirMu.Unlock()
				return nil
			}
			s = &session{id: id}
			s.hold = t.newHoldings(s)
			t.dir[id] = s
			t.active.Add(1)
		}
		t.dirMu.Unlock()
		s.mu.Lock()
		if !s.gone {
			return s
		}
		s.mu.Unlock()
	}
}

// Connect begins a new stream of a session that caches. The client must have
// dropped its cache before, and may keep only the answers to reads that it sent
// after it has heard that this call is done (the first message on the stream):
// all that it held is free, and its unacknowledged revocations count as
// acknowledged. Push is called for each revocation, one at a time, possibly
// before Connect returns; it must not block and must not call the Table. Of an
// older stream of the session nothing is heard from then on.
//
// The client numbers its streams upwards, from 1. What it asked for before the
// stream that it has now may come after that one, from a network that kept it
// back; it would free what the client still answers from. So Connect returns
// nil and does nothing if the number is not larger than all before. (Of a
// session that was forgotten the numbers are not known any more; then it has
// nothing, since its term is over.)
//
// Of says whose session it is, as far as the server can tell: its first stream
// counts. Who lost a lease gets none for Penalty under another session's id either.
//
// It also returns nil if there are MaxSessions already, or three quarters of them
// and of has many: the session gets no leases.
func (t *Table) Connect(id SessionID, of string, number uint64, push func(Revocation)) *Stream {
	s := t.ensure(id, t.room(of))
	if s == nil {
		t.n.full.Add(1)
		return nil
	}
	defer s.mu.Unlock()
	if number <= s.number {
		return nil
	}
	s.number = number
	if s.owner == nil {
		s.owner, s.bar = t.owners.join(of)
	}
	now := t.now()
	t.settle(s, now)
	t.drop(s)
	t.heardOf(s, now)
	if s.stream == nil {
		t.connected.Add(1)
	}
	s.stream = &Stream{t: t, s: s, push: push}
	return s.stream
}

// Disconnect ends the stream. The session may hold what it has until its term
// ends. A stream that a newer one has replaced, and nil, does nothing.
func (st *Stream) Disconnect() {
	if st == nil {
		return
	}
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.s.stream == st {
		st.s.stream = nil
		st.t.connected.Add(-1)
		st.t.settle(st.s, st.t.now())
	}
}

// Leave ends the stream of a session that keeps nothing any more, and answers
// from nothing that it kept: nobody waits for it. A stream that a newer one has
// replaced, and nil, does nothing.
func (st *Stream) Leave() {
	if st == nil {
		return
	}
	t, s := st.t, st.s
	defer t.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.stream != st {
		return
	}
	t.recovered(s.id)
	now := t.now()
	t.settle(s, now)
	t.drop(s)
	t.heardOf(s, now)
	s.until = min(s.until, now)
	s.stream = nil
	t.connected.Add(-1)
}

// Renew extends the session's term and returns what the holder may count from
// the moment before it sent its renewal. It returns 0, and extends nothing,
// while a revocation is unacknowledged, in the penalty, and on a stream that is
// not the session's any more. The first renewal shows that the client has the
// stream: what a former reign granted it is surely dropped.
func (st *Stream) Renew() time.Duration {
	if st == nil {
		return 0
	}
	t, s := st.t, st.s
	defer t.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.stream != st {
		return 0
	}
	t.recovered(s.id)
	now := t.now()
	t.settle(s, now)
	if len(s.pending) > 0 || s.punished(now) {
		return 0
	}
	s.until = now + t.grantorsTerm()
	return t.cfg.Term
}

// Ack takes in that the session has dropped what the revocations up to seq
// name. One that comes after the end of its term is too late.
func (t *Table) Ack(id SessionID, seq uint64) {
	defer t.sweep()
	s := t.lookup(id)
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	now := t.now()
	t.settle(s, now)
	n := 0
	for n < len(s.pending) && s.pending[n].seq <= seq {
		n++
	}
	if n > 0 && s.pending[0].inTerm && now < s.until && s.slow.again(s.pending[0].at, now, &t.cfg) {
		s.lost = true // what it held it has given up in time: nobody has to drop anything
		t.owners.lost(s.owner, now, t.cfg.Penalty)
	}
	switch {
	case n == 0:
	case n == len(s.pending):
		if s.all {
			t.drop(s)
		} else {
			t.acked(s, n)
		}
		t.heardOf(s, now)
	default:
		t.acked(s, n)
	}
}

// acked frees what the first n revocations named.
func (t *Table) acked(s *session, n int) {
	for i := range n {
		p := &s.pending[i]
		for _, e := range p.entries {
			t.keys.release(e, s.hold)
		}
		for _, w := range p.waits {
			w.release()
		}
		*p = pending{}
	}
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	s.size.Store(int64(len(s.hold.list)))
}

// punished tells whether the session gets no lease for what it, or its owner, did.
func (s *session) punished(now time.Duration) bool {
	return now < s.penalty || now < s.bar || s.owner.bars(now)
}

// heardOf begins the penalty of a session that has lost its lease and now has
// nothing left to acknowledge.
func (t *Table) heardOf(s *session, now time.Duration) {
	if s.lost {
		s.lost = false
		s.penalty = now + t.cfg.Penalty
	}
}

// settle does what the end of the session's term brings with it. There are no
// timers for it: whoever comes to a session settles it first.
func (t *Table) settle(s *session, now time.Duration) {
	switch {
	case now < s.until:
	case len(s.pending) > 0 && s.pending[0].inTerm:
		t.drop(s)
		s.lost = true
		t.n.lost.Add(1)
		t.owners.lost(s.owner, now, t.cfg.Penalty)
		if s.stream != nil {
			t.pushAll(s, false)
		}
	case s.stream == nil:
		t.drop(s)
	}
}

// drop frees all that the session holds, and releases who waits for it.
func (t *Table) drop(s *session) {
	for _, p := range s.pending {
		for _, w := range p.waits {
			w.release()
		}
	}
	s.pending, s.all = nil, false
	old := s.hold
	if len(old.list) == 0 {
		return
	}
	old.dead.Store(true)
	s.hold = t.newHoldings(s)
	s.size.Store(0)
	t.garbageMu.Lock()
	t.garbage = append(t.garbage, old)
	t.garbages.Add(1)
	t.garbageMu.Unlock()
}

// pushAll tells the session to drop everything. It has a stream.
func (t *Table) pushAll(s *session, inTerm bool) {
	seq := t.seq.Add(1)
	s.pending = append(s.pending, pending{seq: seq, at: t.now(), all: true, inTerm: inTerm})
	s.all = true
	t.n.revocations.Add(1)
	t.n.dropAlls.Add(1)
	s.stream.push(Revocation{Seq: seq, All: true})
}

// sweep takes what was dropped out of the holders of its keys. It may be many:
// it is called with none of our locks held, and not by what is called with one
// of the server's.
func (t *Table) sweep() {
	for t.garbages.Load() > 0 {
		t.garbageMu.Lock()
		n := len(t.garbage)
		if n == 0 {
			t.garbageMu.Unlock()
			return
		}
		h := t.garbage[n-1]
		t.garbage[n-1] = nil
		t.garbage = t.garbage[:n-1]
		t.garbages.Add(-1)
		t.garbageMu.Unlock()
		for _, e := range h.list {
			t.keys.take(e, h.slot)
		}
		h.list = nil
		t.freeSlot(h)
	}
}

func (t *Table) newHoldings(s *session) *holdings {
	h := &holdings{s: s}
	t.slotMu.Lock()
	defer t.slotMu.Unlock()
	if n := len(t.free); n > 0 {
		h.slot = t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[h.slot] = h
		return h
	}
	h.slot = uint32(len(t.slots)) //nolint:gosec // sessions, and what was dropped
	t.slots = append(t.slots, h)
	return h
}

func (t *Table) freeSlot(h *holdings) {
	t.slotMu.Lock()
	defer t.slotMu.Unlock()
	t.slots[h.slot] = nil
	t.free = append(t.free, h.slot)
}
