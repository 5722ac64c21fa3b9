package readlease

import (
	"math"
	"time"
)

// Recover is told, at an activation and before the first change, which sessions
// may hold what a former reign granted. Until each has Connected, or Term and
// Margin have passed since, every Revoke returns a Change that waits for that.
// A session that has a stream already is passed over. term is the former reign's, of
// which the longer one counts.
func (t *Table) Recover(ids []SessionID, term time.Duration) {
	now := t.now()
	until := now + max(t.grantorsTerm(), term+max(t.cfg.Margin, term/lag))
	for _, id := range ids {
		s := t.ensure(id, math.MaxInt)
		if s.stream == nil {
			s.until = max(s.until, until)
			t.recMu.Lock()
			if now >= t.rec.until {
				t.rec.ids, t.rec.waits = nil, nil
			}
			if t.rec.ids == nil {
				t.rec.ids = make(map[SessionID]struct{}, len(ids))
			}
			t.rec.ids[id] = struct{}{}
			t.rec.until = max(t.rec.until, until)
			t.recovering.Store(true)
			t.recMu.Unlock()
		}
		s.mu.Unlock()
	}
}

// recovered takes in that a session has come back.
func (t *Table) recovered(id SessionID) {
	if !t.recovering.Load() {
		return
	}
	t.recMu.Lock()
	defer t.recMu.Unlock()
	delete(t.rec.ids, id)
	if len(t.rec.ids) == 0 {
		t.endRecovery()
	}
}

// endRecovery is called with recMu held.
func (t *Table) endRecovery() {
	for _, w := range t.rec.waits {
		w.release()
	}
	t.rec = recovery{}
	t.recovering.Store(false)
}

// awaitRecovery makes the change wait for the sessions of a former reign.
func (t *Table) awaitRecovery(c *Change, now time.Duration) {
	if !t.recovering.Load() {
		return
	}
	t.recMu.Lock()
	defer t.recMu.Unlock()
	if len(t.rec.ids) == 0 || now >= t.rec.until {
		t.endRecovery()
		return
	}
	t.rec.waits = append(t.rec.waits, c.await(nil, t.rec.until))
}

// over tells whether nothing is left of the session: no stream, no term, and no
// penalty that it would escape by being forgotten. One that has lost its lease
// and does not come back is remembered for as long as the penalty is.
func (t *Table) over(s *session, now time.Duration) bool {
	t.settle(s, now)
	if s.lost && now < s.until+t.cfg.Penalty {
		return false
	}
	return s.stream == nil && now >= s.until && now >= s.penalty
}

// Gone returns at most n sessions that have no stream and whose term is over,
// so that the server may Forget them and take their mark off its journal.
func (t *Table) Gone(n int) []SessionID {
	defer t.sweep()
	t.owners.sweep(t.now())
	if t.active.Load() == t.connected.Load() {
		return nil
	}
	t.dirMu.RLock()
	all := make([]*session, 0, len(t.dir))
	for _, s := range t.dir {
		all = append(all, s)
	}
	t.dirMu.RUnlock()
	now := t.now()
	var ids []SessionID
	for _, s := range all {
		if len(ids) >= n {
			break
		}
		s.mu.Lock()
		if !s.gone && t.over(s, now) {
			ids = append(ids, s.id)
		}
		s.mu.Unlock()
	}
	return ids
}

// Forget removes a session that Gone returned. It returns false and does nothing
// if it has come back meanwhile. A mark in the journal is to be taken off after
// it returned true; a Connect after that journals a new one.
func (t *Table) Forget(id SessionID) bool {
	s := t.lookup(id)
	if s == nil {
		return true
	}
	defer s.mu.Unlock()
	if !t.over(s, t.now()) {
		return false
	}
	t.drop(s)
	s.gone = true
	t.owners.leave(s.owner)
	t.freeSlot(s.hold)
	t.dirMu.Lock()
	delete(t.dir, id)
	t.dirMu.Unlock()
	t.active.Add(-1)
	return true
}
