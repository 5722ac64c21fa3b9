package readlease

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Change is one change of the namespace on its way. Its methods are for one
// goroutine; all of them do nothing on nil, for which there is nothing to do.
type Change struct {
	t     *Table
	marks []*entry
	given *GivenUp

	mu     sync.Mutex
	waits  []*wait // in Wait: the latest end first, those up to at done
	at     int
	left   int // not done
	sorted bool
	signal chan struct{} // waits[at], or the last one, is done
}

// wait is a session that a change waits for.
type wait struct {
	c     *Change
	s     *session      // nil: the sessions of a former reign
	until time.Duration // the latest
	done  bool          // by c.mu
}

// Idle reports whether no session caches, nor may from a former reign: then
// Revoke has nothing to do.
func (t *Table) Idle() bool { return t.active.Load() == 0 }

// Revoke begins a change of the keys. They are uncachable until Done; everybody's
// holdings of them are withdrawn and revocations pushed. The session whose call
// makes the change is waited for like all others: others may see the change
// before the call has returned, and then another goroutine of that client must
// not answer what was before it. The caller of Revoke holds the namespace lock
// exclusively. Nil means that no session caches: the change may be applied, and
// needs no Done, if the lock is not let go before.
func (t *Table) Revoke(keys []Key) *Change { return t.RevokeGiven(keys, nil) }

// GivenUp says of a session, by its latest stream only, that it does not answer
// from what depends on these keys, nor keeps any such answer, from before it
// asked for a change until it is told of its end.
type GivenUp struct {
	Session SessionID
	Stream  uint64 // its number
	Keys    []Key
	// Held are those that it keeps holding, if it did: it knows what the change
	// makes of them, and is still to be told of others'.
	Held []Key
}

// RevokeGiven is Revoke of a change whose caller has given up some keys: its
// holdings of them end at once, and it is neither told nor waited for. Nil is
// nobody.
func (t *Table) RevokeGiven(keys []Key, given *GivenUp) *Change {
	if t.Idle() {
		return nil
	}
	c := &Change{t: t, given: given}
	c.add(keys)
	return c
}

// More adds keys that a new plan of the change has brought up (those that are
// marked by it already may be among them), and tells whether there is anything
// to wait for. The caller holds the namespace lock exclusively.
func (c *Change) More(keys []Key) bool {
	if c == nil {
		return false
	}
	c.add(keys)
	return c.Pending()
}

func (c *Change) add(keys []Key) {
	t := c.t
	now := t.now()
	t.awaitRecovery(c, now)
	var hits []hit
	for _, k := range keys {
		var e *entry
		e, hits = t.keys.mark(k, hits)
		c.marks = append(c.marks, e)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.slot, b.slot) })
	for len(hits) > 0 {
		n := 1
		for n < len(hits) && hits[n].slot == hits[0].slot {
			n++
		}
		t.slotMu.RLock()
		h := t.slots[hits[0].slot]
		t.slotMu.RUnlock()
		if h != nil && !h.dead.Load() {
			c.withdraw(h, hits[:n], now)
		}
		hits = hits[n:]
	}
}

// withdraw revokes what one session holds of the keys.
func (c *Change) withdraw(h *holdings, hits []hit, now time.Duration) {
	t, s := c.t, h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.settle(s, now)
	if s.gone || s.hold != h {
		return // dropped meanwhile
	}
	inTerm := now < s.until
	if !s.all {
		var entries []*entry
		holds := false
		given, held := c.givenUp(s)
		for _, x := range hits {
			if slices.Contains(given, x.e.key) && t.keys.giveUp(x.e, h, slices.Contains(held, x.e.key)) {
				continue
			}
			held, fresh := t.keys.withdraw(x.e, h.slot)
			holds = holds || held
			if fresh {
				entries = append(entries, x.e)
			}
		}
		s.size.Store(int64(len(h.list)))
		switch {
		case !holds:
			return
		case len(entries) > maxPush && s.stream != nil:
			t.pushAll(s, inTerm)
		case len(entries) > 0:
			t.push(s, entries, inTerm)
		}
	}
	if inTerm {
		// What was withdrawn before is covered by the last one, too.
		last := &s.pending[len(s.pending)-1]
		last.waits = append(last.waits, c.await(s, s.until))
	}
}

// givenUp is what the session has given up for this change. It is locked.
func (c *Change) givenUp(s *session) (keys, held []Key) {
	if c.given == nil || c.given.Session != s.id || s.stream == nil || c.given.Stream != s.number {
		return nil, nil
	}
	return c.given.Keys, c.given.Held
}

// push tells the session to drop these keys. Without a stream nobody is told,
// and the end of the term is waited for.
func (t *Table) push(s *session, entries []*entry, inTerm bool) {
	seq := t.seq.Add(1)
	s.pending = append(s.pending, pending{seq: seq, at: t.now(), entries: entries, inTerm: inTerm})
	if s.stream == nil {
		return
	}
	keys := make([]Key, len(entries))
	for i, e := range entries {
		keys[i] = e.key
	}
	t.n.revocations.Add(1)
	s.stream.push(Revocation{Seq: seq, Keys: keys})
}

// await adds something to wait for.
func (c *Change) await(s *session, until time.Duration) *wait {
	w := &wait{c: c, s: s, until: until}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signal == nil {
		c.signal = make(chan struct{}, 1)
	}
	c.waits = append(c.waits, w)
	c.left++
	c.sorted = false
	return w
}

// release tells the change that it need not wait for this any more.
func (w *wait) release() {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.done {
		return
	}
	w.done = true
	c.left--
	if c.left == 0 || c.sorted && c.waits[c.at] == w {
		select {
		case c.signal <- struct{}{}:
		default:
		}
	}
}

// latest returns, of what is not done, the one that may take longest; nil if
// all is done.
func (c *Change) latest() *wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sorted {
		c.waits = slices.DeleteFunc(c.waits, func(w *wait) bool { return w.done })
		slices.SortFunc(c.waits, func(a, b *wait) int { return cmp.Compare(b.until, a.until) })
		c.at, c.sorted = 0, true
	}
	for ; c.at < len(c.waits); c.at++ {
		if !c.waits[c.at].done {
			return c.waits[c.at]
		}
	}
	c.waits, c.at, c.sorted = nil, 0, false
	return nil
}

// Pending tells whether there is anything to wait for.
func (c *Change) Pending() bool {
	if c == nil {
		return false
	}
	w := c.latest()
	if w == nil {
		return false
	}
	now := c.t.now()
	if now < w.until {
		return true
	}
	c.t.n.waits.Add(1)
	c.overdue(now)
	return false
}

// Wait waits until every session has acknowledged, has come back with a new
// stream, or its term is over, which is after Term and Margin at
// the latest. The error is the context's; then the change must not be applied.
// The namespace lock must not be held.
func (c *Change) Wait(ctx context.Context) error {
	if c == nil {
		return nil
	}
	w := c.latest()
	if w == nil {
		return nil
	}
	t := c.t
	began := t.now()
	now := began
	t.n.waits.Add(1)
	defer func() {
		took := t.now() - began
		if t.cfg.ObserveWait != nil {
			t.cfg.ObserveWait(took)
		}
		t.sweep()
	}()
	timer := time.NewTimer(w.until - now)
	defer timer.Stop()
	for now < w.until {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.signal:
		case <-timer.C:
		}
		if w = c.latest(); w == nil {
			return nil
		}
		now = t.now()
		timer.Reset(w.until - now)
	}
	c.overdue(now)
	return nil
}

// overdue takes the lease from those that are waited for, whose terms are all over.
func (c *Change) overdue(now time.Duration) {
	c.t.n.waitsByTerm.Add(1)
	c.mu.Lock()
	late := slices.DeleteFunc(slices.Clone(c.waits[c.at:]), func(w *wait) bool { return w.done })
	c.mu.Unlock()
	for _, w := range late {
		if w.s != nil {
			w.s.mu.Lock()
			c.t.settle(w.s, now)
			w.s.mu.Unlock()
		}
		w.release()
	}
}

// Done makes the keys cachable again: the change is durable, or will not be. It
// may be called with or without the namespace lock, and more than once.
func (c *Change) Done() {
	if c == nil {
		return
	}
	for _, e := range c.marks {
		c.t.keys.unmark(e)
	}
	c.marks = nil
}
