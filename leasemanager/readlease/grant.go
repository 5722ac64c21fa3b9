package readlease

import "time"

// shedEvery is how often at most, at the limit of all keys, the session that
// holds most is looked for.
const shedEvery = 100 * time.Millisecond

// Grant notes that the session is about to get an answer that depends on exactly
// these keys, and tells whether it may keep it: all keys or none. It may not
// while no term of it runs or it has no stream, in its penalty, while one of the
// keys is being changed or its own revocation of it is unacknowledged, and at
// the limits. The caller holds the namespace lock for reading, from before the
// read that the answer comes from. Without keys it returns false: such an answer
// could not be revoked.
func (t *Table) Grant(id SessionID, keys []Key) bool {
	if t.active.Load() == 0 || len(keys) == 0 {
		return false
	}
	s := t.lookup(id)
	if s == nil {
		return false
	}
	now := t.now()
	granted, full := t.grant(s, keys, now)
	s.mu.Unlock()
	if full {
		t.shed(now)
	}
	return granted
}

// GrantAlone is Grant of a key that only one session may hold: false also while
// another does, or has dropped it only just now. It is for keys that are granted
// by nothing else. The caller holds the namespace lock for reading.
func (t *Table) GrantAlone(id SessionID, key Key) bool {
	t.aloneMu.Lock()
	defer t.aloneMu.Unlock()
	s := t.lookup(id)
	if s == nil {
		return false
	}
	defer s.mu.Unlock()
	if !t.keys.alone(key, s.hold) {
		return false
	}
	granted, _ := t.grant(s, []Key{key}, t.now())
	return granted
}

// Holds tells whether the session holds the key, also if its withdrawal is not
// acknowledged yet.
func (t *Table) Holds(id SessionID, key Key) bool {
	s := t.lookup(id)
	if s == nil {
		return false
	}
	defer s.mu.Unlock()
	t.settle(s, t.now())
	held, _ := t.keys.look(key, s.hold)
	return held
}

// Inodes are those of a kind of keys that some session holds, in no order. It takes the time of
// a look at all keys.
func (t *Table) Inodes(kind uint8) []uint64 { return t.keys.inodes(kind) }

// grant does it with the session locked; full: all sessions together hold too
// much.
func (t *Table) grant(s *session, keys []Key, now time.Duration) (granted, full bool) {
	t.settle(s, now)
	if s.stream == nil || now >= s.until || s.punished(now) || s.all {
		t.n.refused.Add(1)
		return false, false
	}
	fresh := 0
	var known uint64 // of the first 64 keys: it holds it
	for i, k := range keys {
		held, blocked := t.keys.look(k, s.hold)
		if blocked {
			t.n.marked.Add(1)
			return false, false
		}
		if !held {
			fresh++
		} else if i < 64 {
			known |= 1 << i
		}
	}
	if fresh > 0 {
		if len(s.hold.list)+fresh > t.cfg.MaxKeys {
			if fresh <= t.cfg.MaxKeys {
				t.pushAll(s, true)
			}
			t.n.limited.Add(1)
			return false, false
		}
		if t.keys.total.Load()+int64(fresh) > int64(t.cfg.MaxKeysTotal) {
			t.n.limited.Add(1)
			return false, true
		}
		defer func() { s.size.Store(int64(len(s.hold.list))) }()
	}
	for i, k := range keys {
		if i < 64 && known&(1<<i) != 0 {
			continue
		}
		if !t.keys.hold(k, s.hold) { // only if the caller's lock does not do what it should
			t.n.marked.Add(1)
			return false, false
		}
	}
	t.n.grants.Add(1)
	return true, false
}

// shed tells the session that holds most to drop everything.
func (t *Table) shed(now time.Duration) {
	next := t.nextShed.Load()
	if int64(now) < next || !t.nextShed.CompareAndSwap(next, int64(now+shedEvery)) {
		return
	}
	var most *session
	size := int64(0)
	t.dirMu.RLock()
	for _, s := range t.dir {
		if n := s.size.Load(); n > size {
			most, size = s, n
		}
	}
	t.dirMu.RUnlock()
	if most == nil {
		return
	}
	most.mu.Lock()
	defer most.mu.Unlock()
	t.settle(most, now)
	if most.stream != nil && !most.all {
		t.pushAll(most, now < most.until)
	}
}
