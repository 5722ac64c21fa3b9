package leasemanager

import "time"

// told is a journalled age.
type told struct {
	age   time.Duration
	stamp time.Duration // of the lease; a later one means that it was renewed since
	look  uint64        // the number of its entry in Manager.looks
}

// look is an entry of Manager.looks: when to look at the age of the lease. Of
// one key, the entry counts that has the number in the journalled age, or else
// in the lease.
type look struct {
	due time.Duration
	n   uint64
	key AgeKey
}

func byDue(a, b look) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.n < b.n
}

// keyOf is the name of the lease of which the journal has the age.
func keyOf(l *lease) AgeKey {
	switch l.kind {
	case KindGranted:
		return AgeKey{Granted: l.id}
	case KindLapsing:
		return AgeKey{Inode: l.files[0].inode}
	}
	return AgeKey{Session: l.session}
}

// named returns the lease of the key; nil if there is none. A lapsing lease of
// several files (it was being ended, and was put back) has no key.
func (m *Manager) named(key AgeKey) *lease {
	switch {
	case key.Granted != 0:
		return m.grants.get(grantKey(key.Granted))
	case key.Inode != 0:
		if f := m.inodes[key.Inode]; f != nil && f.l.kind == KindLapsing && len(f.l.files) == 1 {
			return f.l
		}
		return nil
	}
	return m.dir.get(key.Session)
}

// pace is how long the lease (nil: one that is gone) may be idle before its age
// is journalled, and how much it grows until it is journalled again.
func (m *Manager) pace(l *lease) (idle, grow time.Duration) {
	hard := m.cfg.Hard
	if l != nil {
		var soft time.Duration
		soft, hard = m.limits(l)
		idle = m.period(soft) * 3 / 2
		if l.kind == KindGranted {
			idle = hard / 2
		}
	}
	grow = max(min(m.cfg.AgeEvery, hard/4), 1)
	return max(idle+1, grow), grow // strictly later than 1.5 periods
}

// watch gives a lease that has come an entry in looks, if it has none.
func (m *Manager) watch(l *lease) {
	key := keyOf(l)
	if l.look != 0 || key == (AgeKey{}) {
		return
	}
	t := m.told[key]
	l.look = m.newLook(m.nextLook(l, t, m.now()), key)
	if t != nil {
		t.look = l.look
	}
}

// newLook makes an entry in looks, and returns its number.
func (m *Manager) newLook(due time.Duration, key AgeKey) uint64 {
	m.lookedAt++
	m.looks.ReplaceOrInsert(look{due, m.lookedAt, key})
	return m.lookedAt
}

// nextLook is when the age of the lease may have to be journalled next; one that
// is journalled is looked at at least that often, as it may be renewed.
func (m *Manager) nextLook(l *lease, t *told, now time.Duration) time.Duration {
	idle, grow := m.pace(l)
	switch stamp := m.stamp(l); {
	case t == nil:
		return stamp + idle
	case stamp > t.stamp:
		return now
	}
	return min(t.stamp+t.age+grow, now+grow)
}

// CheckAges returns up to n ages that are to be journalled now: of leases that
// missed a renewal (granted: are idle for more than half their TTL) and whose
// age has grown by Config.AgeEvery (at most a quarter of the hard limit or TTL)
// since it was journalled; and 0 for leases with a journalled age that were
// renewed since, or that are gone. The lock is released between portions of
// leases; the next call goes on where this one stopped, and nil means that there
// is none now. The caller calls AgesJournalled when their record is applied; what
// was not journalled comes again soon. In safe mode it returns nil.
//
// A lease that is renewed in time costs one look in 1.5 renewal periods.
func (m *Manager) CheckAges(n int) []Age {
	m.mu.Lock()
	defer m.mu.Unlock()
	begin := m.now()
	var out []Age
	for looked := 1; len(out) < n && !m.safeMode; looked++ {
		k, ok := m.looks.Min()
		if !ok || k.due > begin {
			break
		}
		if looked%portion == 0 {
			m.breathe()
			continue
		}
		m.looks.DeleteMin()
		if a, journal := m.checkAge(k, begin); journal {
			out = append(out, a)
		}
	}
	return out
}

// checkAge looks at one lease, and puts its entry back with the time of its next
// look.
func (m *Manager) checkAge(k look, now time.Duration) (a Age, journal bool) {
	l, t := m.named(k.key), m.told[k.key]
	switch {
	case t != nil && t.look != k.n, t == nil && l != nil && l.look != k.n && l.look != 0, t == nil && l == nil:
		return a, false // another entry is the one, or none is needed
	case l != nil:
		l.look = k.n
	}
	idle, grow := m.pace(l)
	a.AgeKey = k.key
	switch {
	case l == nil || l.kind != KindGranted && len(l.files) == 0: // gone
		if t == nil {
			l.look = 0
			return a, false
		}
		journal = true
	case l.has(flagEnding):
		k.due = now + grow
	case t != nil && m.stamp(l) > t.stamp: // renewed
		journal = true
	default:
		a.Age = now - m.stamp(l)
		journal = t != nil && a.Age >= t.age+grow || t == nil && a.Age >= idle
		k.due = max(m.nextLook(l, t, now), now+1)
	}
	if journal { // if it is not done then, it comes again
		k.due = now + max(grow/4, 1)
	}
	m.looks.ReplaceOrInsert(k)
	return a, journal
}

// AgesJournalled notes that the record of these ages is applied. The ages of
// files that were closed and of granted leases that ended are not kept: the tree
// has forgotten them.
func (m *Manager) AgesJournalled(ages []Age) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range ages {
		if a.Age <= 0 {
			delete(m.told, a.AgeKey)
			continue
		}
		l := m.named(a.AgeKey)
		if l == nil && (a.Granted != 0 || a.Inode != 0 && m.inodes[a.Inode] == nil) {
			continue
		}
		t := m.told[a.AgeKey]
		if t == nil {
			t = new(told)
			m.told[a.AgeKey] = t
		}
		t.age, t.stamp = a.Age, now-a.Age // if it is later now, it was renewed meanwhile
		if l != nil {
			t.look = l.look
		}
		m.lookSoon(a.AgeKey, now)
	}
}

// lookSoon sees to it that a journalled age has an entry in looks.
func (m *Manager) lookSoon(key AgeKey, now time.Duration) {
	t := m.told[key]
	if t.look != 0 {
		return
	}
	t.look = m.newLook(now, key)
	if l := m.named(key); l != nil {
		l.look = t.look
	}
}
