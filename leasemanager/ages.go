package leasemanager

import (
	"iter"
	"time"
)

// told is a journalled age.
type told struct {
	age   time.Duration
	stamp time.Duration // of the lease; a later one means that it was renewed since
	at    time.Duration // when it was journalled; of one from before the activation 0
	// beyond is what the age is more than the time since the stamp: an activation
	// left the lease a grace.
	beyond time.Duration
	look   uint64 // the number of its entry in Manager.looks
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

// grace is how long a lease lives on at least after an activation, whatever its
// age: once in a row of activations the whole, and least in each.
type grace struct{ whole, least time.Duration }

// graceOf is that of a lease: its renewal period, or a third of its TTL, and a
// tenth of that, for who holds it to connect again; no more than for sessions.
func (m *Manager) graceOf(k Kind, soft, ttl time.Duration) grace {
	whole := m.period(soft)
	if k == KindGranted {
		whole = ttl / 3
	}
	return grace{whole, max(min(whole, m.period(m.cfg.Soft))/10, 1)}
}

// left is how long a lease lives on after an activation that finds its age: up to
// the limit; the grace, if it is older; and of one that is past the limit, what is
// left of that grace, since its age keeps growing while the grace is used up.
func (g grace) left(age, limit time.Duration) time.Duration {
	if age <= limit {
		return max(limit-age, g.whole)
	}
	return max(g.whole-(age-limit), g.least)
}

func (m *Manager) grace(l *lease) grace {
	soft, limit := m.limits(l)
	return m.graceOf(l.kind, soft, limit)
}

// silent reports whether nothing was heard of the lease since the activation.
func (m *Manager) silent(l *lease) bool { return m.stamp(l) <= m.activated }

// ageDue is when the age of the lease is to be journalled next. Of one that was
// renewed in this reign: when it has missed a renewal, and whenever its age has
// grown. Of a silent one: after the least grace, and then each time when this
// reign has grown by half; so that reigns that are cut short count too.
func (m *Manager) ageDue(l *lease, t *told) time.Duration {
	idle, grow := m.pace(l)
	switch {
	case m.silent(l):
		last := m.activated
		if t != nil {
			last = max(last, t.at)
		}
		return last + min(max((last-m.activated)/2, m.grace(l).least), grow)
	case t == nil:
		return m.stamp(l) + idle
	}
	return t.at + grow
}

// lookEvery is how often a lease with a journalled age is looked at, as it may be
// renewed. Where that would be forgotten by a reign that ends soon, often.
func (m *Manager) lookEvery(l *lease, now time.Duration) time.Duration {
	idle, grow := m.pace(l)
	if l == nil || now-m.activated > idle {
		return grow
	}
	return min(grow, max(m.grace(l).least/3, 1))
}

// nextLook is when the age of the lease may have to be journalled next; one that
// is journalled is looked at oftener.
func (m *Manager) nextLook(l *lease, t *told, now time.Duration) time.Duration {
	switch {
	case t == nil:
		return m.ageDue(l, nil)
	case m.stamp(l) > t.stamp:
		return now
	}
	return min(m.ageDue(l, t), now+m.lookEvery(l, now))
}

// CheckAges returns up to n ages that are to be journalled now: of leases that
// missed a renewal (granted: are idle for more than half their TTL) and whose
// age has grown by Config.AgeEvery (at most a quarter of the hard limit or TTL)
// since it was journalled, or that nothing was heard of since the activation,
// sooner; and 0 for leases with a journalled age that were renewed since, or that
// are gone. The lock is released between portions of
// leases; the next call continues where this one stopped, and nil means that there
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

// looked returns the lease and the journalled age, if any, that an entry of looks
// is about; counts is false if another entry is the one, or none is needed.
func (m *Manager) looked(k look) (l *lease, t *told, counts bool) {
	l, t = m.named(k.key), m.told[k.key]
	switch {
	case t != nil:
		return l, t, t.look == k.n
	case l != nil:
		return l, nil, l.look == k.n || l.look == 0
	}
	return nil, nil, false
}

// age is how long the lease was not renewed, over activations in a row.
func (m *Manager) age(l *lease, t *told, now time.Duration) time.Duration {
	age := now - m.stamp(l)
	if t != nil && m.stamp(l) <= t.stamp {
		age += t.beyond
	}
	return age
}

// LastAges yields the ages to be journalled before a reign ends in good order, so
// that the next one counts on from here: of leases that nothing was heard of since
// the activation, or for more than a renewal period (granted: a third of the TTL);
// and 0 for those with a journalled age that were renewed since. In safe mode there
// are none. They come in portions, between which the lock is free; of a lease that
// changes meanwhile the age may be missing.
func (m *Manager) LastAges() iter.Seq[[]Age] {
	return func(yield func([]Age) bool) {
		m.mu.RLock()
		last := m.lookedAt // entries that come later are not waited for
		m.mu.RUnlock()
		for from, more := (look{}), true; more; {
			var out []Age
			out, from, more = m.lastAges(from, last)
			if len(out) > 0 && !yield(out) {
				return
			}
		}
	}
}

// lastAges is one portion of LastAges: what is in looks from an entry on, up to
// the number last. The next portion begins with next, if there is more.
func (m *Manager) lastAges(from look, last uint64) (out []Age, next look, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.safeMode {
		return nil, next, false
	}
	now, looked := m.now(), 0
	m.looks.AscendGreaterOrEqual(from, func(k look) bool {
		if looked == portion {
			next, more = k, true
			return false
		}
		looked++
		if a, journal := m.lastAge(k, now); journal && k.n <= last {
			out = append(out, a)
		}
		return true
	})
	return out, next, more
}

// lastAge is the age that LastAges returns of one lease, if any.
func (m *Manager) lastAge(k look, now time.Duration) (a Age, journal bool) {
	l, t, counts := m.looked(k)
	if !counts || l == nil || l.has(flagEnding) || l.kind != KindGranted && len(l.files) == 0 {
		return a, false
	}
	age := m.age(l, t, now)
	if (m.silent(l) || age > m.grace(l).whole) && m.owe(k.key, l, t, now, age) {
		return Age{k.key, age}, true
	}
	return Age{AgeKey: k.key}, t != nil
}

// checkAge looks at one lease, and puts its entry back with the time of its next
// look.
func (m *Manager) checkAge(k look, now time.Duration) (a Age, journal bool) {
	l, t, counts := m.looked(k)
	if !counts {
		return a, false
	}
	if l != nil {
		l.look = k.n
		m.reckon(l, k.key, t)
	}
	_, grow := m.pace(l)
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
		a.Age = m.age(l, t, now)
		journal = now >= m.ageDue(l, t) && m.owe(k.key, l, t, now, a.Age)
		k.due = max(m.nextLook(l, t, now), now+1)
	}
	if journal { // if it is not done then, it comes again
		k.due = now + min(max(grow/4, 1), m.lookEvery(l, now))
	}
	m.looks.ReplaceOrInsert(k)
	return a, journal
}

// AgesJournalled returns those of the ages that still hold, and notes that a record
// of them is applied: the caller applies it, under the lock under which it applies
// the records of writers. The others are of leases that are gone, or were renewed
// since CheckAges: by a writer's record perhaps, after which a record of the age
// would take back what that one has made durable.
func (m *Manager) AgesJournalled(ages []Age) []Age {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	hold := make([]Age, 0, len(ages))
	for _, a := range ages {
		if a.Age <= 0 {
			delete(m.told, a.AgeKey) // from owed when it is durable
			hold = append(hold, a)
			continue
		}
		l, t := m.named(a.AgeKey), m.told[a.AgeKey]
		if l == nil || m.age(l, t, now) < a.Age {
			m.unowe(a.AgeKey, l, t)
			continue
		}
		hold = append(hold, a)
		if t == nil {
			t = new(told)
			m.told[a.AgeKey] = t
		}
		m.owed[a.AgeKey] = a.Age
		// If the lease's stamp is later now, it was renewed meanwhile.
		t.age, t.stamp, t.at = a.Age, now-(a.Age-t.beyond), now
		t.look = l.look
		m.lookSoon(a.AgeKey, now)
	}
	return hold
}

// AgesDurable notes that the record of these ages is durable: a renewal of those
// with age 0 promises the whole limits again.
func (m *Manager) AgesDurable(ages []Age) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := make(map[*lease]bool)
	for _, a := range ages {
		if a.Age > 0 || m.told[a.AgeKey] != nil {
			continue
		}
		delete(m.owed, a.AgeKey)
		if l := m.named(a.AgeKey); l != nil {
			changed[l] = true
		} else if f := m.inodes[a.Inode]; f != nil { // it came back to its session
			changed[f.l] = true
		}
	}
	for l := range changed {
		m.lower(l)
	}
}

// owe notes that the age of the lease is about to be journalled, before anybody
// can find it in the journal. False if the lease was renewed meanwhile: who sets
// the stamp looks at owes after it, and here it is the other way round, so one of
// the two sees the other.
func (m *Manager) owe(key AgeKey, l *lease, t *told, now, age time.Duration) bool {
	m.owed[key] = age
	l.owes.Store(max(l.owes.Load(), int64(age)))
	if m.age(l, t, now) == age {
		return true
	}
	m.reckon(l, key, t)
	return false
}

// unowe takes back that an age of the lease is about to be journalled.
func (m *Manager) unowe(key AgeKey, l *lease, t *told) {
	switch f := m.inodes[key.Inode]; {
	case l != nil:
		m.reckon(l, key, t)
	case t == nil:
		delete(m.owed, key)
		if f != nil { // it came back to its session
			m.lower(f.l)
		}
	}
}

// reckon brings what the lease owes up to date with the age that is journalled.
func (m *Manager) reckon(l *lease, key AgeKey, t *told) {
	if l.owes.Load() == 0 {
		return
	}
	if t != nil {
		m.owed[key] = t.age
	} else {
		delete(m.owed, key)
	}
	m.lower(l)
}

// lower sets what the lease owes to the largest age of itself and its files.
func (m *Manager) lower(l *lease) {
	var most time.Duration
	switch l.kind {
	case KindGranted:
		most = m.owed[AgeKey{Granted: l.id}]
	case KindSession:
		most = m.owed[AgeKey{Session: l.session}]
	}
	if len(m.owed) > 0 {
		for _, f := range l.files {
			most = max(most, m.owed[AgeKey{Inode: f.inode}])
		}
	}
	l.owes.Store(int64(most))
}

// inherit adds to what the lease owes what its session and a file that it gets do.
func (m *Manager) inherit(l *lease, f *file) {
	most := max(time.Duration(l.owes.Load()), m.owed[AgeKey{Inode: f.inode}])
	if l == l.s.main {
		most = max(most, m.owed[AgeKey{Session: l.session}])
	}
	l.owes.Store(int64(most))
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
