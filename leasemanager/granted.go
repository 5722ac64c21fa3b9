package leasemanager

import (
	"encoding/binary"
	"time"
)

// maxTTL bounds the TTL of a granted lease, so that its deadline is a number.
const maxTTL = 100 * 365 * 24 * time.Hour

// grantKey is what the directory of granted leases has an id under.
func grantKey(id uint64) (key SessionID) {
	binary.LittleEndian.PutUint64(key[:], id)
	return key
}

// Grant notes that a lease with a TTL of its own was granted: the record is
// applied. The TTL counts from now. An id that is known changes nothing, nor
// does one that is 0 or not below FirstSessionLease.
func (m *Manager) Grant(h Holder, id uint64, ttl time.Duration) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grant(h, id, ttl, now, now)
}

func (m *Manager) grant(h Holder, id uint64, ttl, now, stamp time.Duration) {
	key := grantKey(id)
	if id == 0 || id >= FirstSessionLease || m.grants.get(key) != nil {
		return
	}
	ttl = min(max(ttl, 1), maxTTL)
	l := &lease{session: key, owner: &h, id: id, born: now, kind: KindGranted}
	l.limit.Store(int64(ttl))
	l.renew(stamp, 0)
	l.owes.Store(int64(m.owed[AgeKey{Granted: id}]))
	l.key = m.deadline(l)
	m.deadlines.ReplaceOrInsert(item{l.key, id, l})
	m.ids.ReplaceOrInsert(item{l.key, id, l})
	m.grants.put(l)
	m.watch(l)
}

// deadline is the last moment at which the granted lease is not past its TTL.
func (m *Manager) deadline(l *lease) time.Duration {
	return m.stamp(l) + time.Duration(l.limit.Load())
}

// KeepAlive renews a granted lease, and returns how long it lives on from now
// whatever becomes of the namenode: its TTL, or less while the journal has an age
// of it (see "Ages"). It returns false, and renews nothing, if the lease is not known or its end has begun. Constant time,
// no allocation, no lock but a shard's, and that only to read.
func (m *Manager) KeepAlive(id uint64) (lives time.Duration, ok bool) {
	now := m.now()
	key := grantKey(id)
	sh, hash := m.grants.hash(key)
	sh.renewals.Add(1)
	l := sh.find(&key, hash)
	if l == nil || !l.renew(now, flagEnding) {
		return 0, false
	}
	lives = time.Duration(l.limit.Load())
	if owed := time.Duration(l.owes.Load()); owed > 0 { // read after the stamp was set
		lives = m.graceOf(KindGranted, 0, lives).left(owed, lives)
	}
	return lives, true
}

// TimeToLive returns how long a granted lease lives on if it is not kept alive,
// and its TTL; false if it is not known. What remains is never below 0, and 0
// when the end has begun. In safe mode it is the whole TTL, which counts from
// the end of it.
func (m *Manager) TimeToLive(id uint64) (remaining, ttl time.Duration, ok bool) {
	now := m.now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.grants.get(grantKey(id))
	if l == nil {
		return 0, 0, false
	}
	return m.remaining(l, now), time.Duration(l.limit.Load()), true
}

func (m *Manager) remaining(l *lease, now time.Duration) time.Duration {
	ttl := time.Duration(l.limit.Load())
	switch {
	case l.has(flagEnding):
		return 0
	case m.safeMode:
		return ttl
	}
	return min(max(m.deadline(l)-now, 0), ttl)
}

// ExpireGranted begins the end of granted leases that are past their TTL: at
// most n of them, and for at most the slice of lock time, the earliest deadline
// first, from where the call before stopped. From then on they cannot be
// kept alive. For each one the caller writes the record of its end and calls
// Revoke when it is applied, or NotExpired if it could not be written. Nil if
// there is nothing to do.
func (m *Manager) ExpireGranted(n int) []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.safeMode {
		return nil
	}
	begin := m.now()
	var out []uint64
	m.walk(&m.deadlines, begin, 0, n, func(it item) bool {
		if !m.endGranted(it) {
			return false
		}
		out = append(out, it.id)
		return true
	})
	return out
}

// endGranted sets the ending bit of a lease whose key is past, or puts it back
// under its true deadline if that is later; it comes again if that is past too.
func (m *Manager) endGranted(it item) bool {
	l := it.l
	for {
		w := l.word.Load()
		deadline := max(stampOf(w), m.floor) + time.Duration(l.limit.Load())
		late := deadline <= it.stamp
		if late && !l.word.CompareAndSwap(w, w|flagEnding) {
			continue
		}
		m.deadlines.Delete(it)
		if !late {
			l.key = deadline
			m.deadlines.ReplaceOrInsert(item{deadline, l.id, l})
			return false
		}
		m.over.ReplaceOrInsert(it)
		l.out = true
		return true
	}
}

// Revoke notes that a granted lease ended, because its TTL was over or somebody
// ended it: the record is applied. It is forgotten.
func (m *Manager) Revoke(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := grantKey(id)
	l := m.grants.get(key)
	if l == nil {
		return
	}
	l.word.Or(flagEnding) // for keep-alives that have looked it up before
	m.grants.remove(key)
	m.ids.Delete(item{id: id})
	delete(m.told, AgeKey{Granted: id}) // the tree forgets it by itself
	delete(m.owed, AgeKey{Granted: id})
	if l.out {
		m.over.Delete(item{stamp: l.key, id: id})
		m.grantedExpired++
		return
	}
	m.deadlines.Delete(item{stamp: l.key, id: id})
}

// NotExpired is called when the record of the end of a lease that ExpireGranted
// returned could not be written: the lease is alive as before, and is tried
// again in a later walk through the order unless it is kept alive.
func (m *Manager) NotExpired(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.grants.get(grantKey(id))
	if l == nil || !l.out {
		return
	}
	m.notEnded++
	l.out = false
	m.over.Delete(item{stamp: l.key, id: id})
	m.deadlines.ReplaceOrInsert(item{l.key, id, l})
	l.setFlag(flagEnding, false)
}
