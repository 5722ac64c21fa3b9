package leasemanager

import (
	"iter"
	"time"

	"github.com/google/btree"
)

// ages are how long leases were not renewed: what of it is journalled, and when it
// is to be looked at again.
type ages struct {
	*timing
	*index
	looks    *btree.BTreeG[look] // when to look at the age of which lease
	lookedAt uint64              // the number of the last entry of looks
	told     map[AgeKey]*told    // the ages that are journalled
	// owed are the ages that a successor may find in the journal.
	owed map[AgeKey]time.Duration
}

func (ag *ages) clear() {
	ag.looks = btree.NewG(32, byDue)
	ag.told = make(map[AgeKey]*told)
	ag.owed = make(map[AgeKey]time.Duration)
}

// forget is for a lease that is gone; the tree forgets its age by itself.
func (ag *ages) forget(key AgeKey) {
	delete(ag.told, key)
	delete(ag.owed, key)
}

// told is a journalled age.
type told struct {
	age   time.Duration
	stamp time.Duration // of the lease; a later one means that it was renewed since
	at    time.Duration // when it was journalled; of one from before the activation 0
	// beyond is what the age is more than the time since the stamp: an activation
	// left the lease a grace.
	beyond time.Duration
	look   uint64 // the number of its entry in ages.looks
}

// look is an entry of ages.looks: when to look at the age of the lease. Of
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

// pace is how long the lease (nil: one that is gone) may be idle before its age
// is journalled, and how much it grows until it is journalled again.
func (ag *ages) pace(l *lease) (idle, grow time.Duration) {
	hard := ag.cfg.Hard
	if l != nil {
		var soft time.Duration
		soft, hard = ag.limits(l)
		idle = ag.period(soft) * 3 / 2
		if l.kind == KindGranted {
			idle = hard / 2
		}
	}
	grow = max(min(ag.cfg.AgeEvery, hard/4), 1)
	return max(idle+1, grow), grow // strictly later than 1.5 periods
}

// watch gives a lease that has come an entry in looks, if it has none.
func (ag *ages) watch(l *lease) {
	key := keyOf(l)
	if l.look != 0 || key == (AgeKey{}) {
		return
	}
	t := ag.told[key]
	l.look = ag.newLook(ag.nextLook(l, t, ag.now()), key)
	if t != nil {
		t.look = l.look
	}
}

// newLook makes an entry in looks, and returns its number.
func (ag *ages) newLook(due time.Duration, key AgeKey) uint64 {
	ag.lookedAt++
	ag.looks.ReplaceOrInsert(look{due, ag.lookedAt, key})
	return ag.lookedAt
}

// ageDue is when the age of the lease is to be journalled next. Of one that was
// renewed in this reign: when it has missed a renewal, and whenever its age has
// grown. Of a silent one: after the least grace, and then each time when this
// reign has grown by half; so that reigns that are cut short count too.
func (ag *ages) ageDue(l *lease, t *told) time.Duration {
	idle, grow := ag.pace(l)
	switch {
	case ag.silent(l):
		last := ag.activated
		if t != nil {
			last = max(last, t.at)
		}
		return last + min(max((last-ag.activated)/2, ag.grace(l).least), grow)
	case t == nil:
		return ag.stamp(l) + idle
	}
	return t.at + grow
}

// lookEvery is how often a lease with a journalled age is looked at, as it may be
// renewed. Where that would be forgotten by a reign that ends soon, often.
func (ag *ages) lookEvery(l *lease, now time.Duration) time.Duration {
	idle, grow := ag.pace(l)
	if l == nil || now-ag.activated > idle {
		return grow
	}
	return min(grow, max(ag.grace(l).least/3, 1))
}

// nextLook is when the age of the lease may have to be journalled next; one that
// is journalled is looked at oftener.
func (ag *ages) nextLook(l *lease, t *told, now time.Duration) time.Duration {
	switch {
	case t == nil:
		return ag.ageDue(l, nil)
	case ag.stamp(l) > t.stamp:
		return now
	}
	return min(ag.ageDue(l, t), now+ag.lookEvery(l, now))
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
func (ag *ages) CheckAges(n int) []Age {
	ag.mu.Lock()
	defer ag.mu.Unlock()
	begin := ag.now()
	var out []Age
	for looked := 1; len(out) < n && !ag.safeMode; looked++ {
		k, ok := ag.looks.Min()
		if !ok || k.due > begin {
			break
		}
		if looked%portion == 0 {
			ag.breathe()
			continue
		}
		ag.looks.DeleteMin()
		if a, journal := ag.checkAge(k, begin); journal {
			out = append(out, a)
		}
	}
	return out
}

// looked returns the lease and the journalled age, if any, that an entry of looks
// is about; counts is false if another entry is the one, or none is needed.
func (ag *ages) looked(k look) (l *lease, t *told, counts bool) {
	l, t = ag.named(k.key), ag.told[k.key]
	switch {
	case t != nil:
		return l, t, t.look == k.n
	case l != nil:
		return l, nil, l.look == k.n || l.look == 0
	}
	return nil, nil, false
}

// age is how long the lease was not renewed, over activations in a row.
func (ag *ages) age(l *lease, t *told, now time.Duration) time.Duration {
	age := now - ag.stamp(l)
	if t != nil && ag.stamp(l) <= t.stamp {
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
func (ag *ages) LastAges() iter.Seq[[]Age] {
	return func(yield func([]Age) bool) {
		ag.mu.RLock()
		last := ag.lookedAt // entries that come later are not waited for
		ag.mu.RUnlock()
		for from, more := (look{}), true; more; {
			var out []Age
			out, from, more = ag.lastAges(from, last)
			if len(out) > 0 && !yield(out) {
				return
			}
		}
	}
}

// lastAges is one portion of LastAges: what is in looks from an entry on, up to
// the number last. The next portion begins with next, if there is more.
func (ag *ages) lastAges(from look, last uint64) (out []Age, next look, more bool) {
	ag.mu.Lock()
	defer ag.mu.Unlock()
	if ag.safeMode {
		return nil, next, false
	}
	now, looked := ag.now(), 0
	ag.looks.AscendGreaterOrEqual(from, func(k look) bool {
		if looked == portion {
			next, more = k, true
			return false
		}
		looked++
		if a, journal := ag.lastAge(k, now); journal && k.n <= last {
			out = append(out, a)
		}
		return true
	})
	return out, next, more
}

// lastAge is the age that LastAges returns of one lease, if any.
func (ag *ages) lastAge(k look, now time.Duration) (a Age, journal bool) {
	l, t, counts := ag.looked(k)
	if !counts || l == nil || l.has(flagEnding) || l.kind != KindGranted && len(l.files) == 0 {
		return a, false
	}
	age := ag.age(l, t, now)
	if (ag.silent(l) || age > ag.grace(l).whole) && ag.owe(k.key, l, t, now, age) {
		return Age{k.key, age}, true
	}
	return Age{AgeKey: k.key}, t != nil
}

// checkAge looks at one lease, and puts its entry back with the time of its next
// look.
func (ag *ages) checkAge(k look, now time.Duration) (a Age, journal bool) {
	l, t, counts := ag.looked(k)
	if !counts {
		return a, false
	}
	if l != nil {
		l.look = k.n
		ag.reckon(l, k.key, t)
	}
	_, grow := ag.pace(l)
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
	case t != nil && ag.stamp(l) > t.stamp: // renewed
		journal = true
	default:
		a.Age = ag.age(l, t, now)
		journal = now >= ag.ageDue(l, t) && ag.owe(k.key, l, t, now, a.Age)
		k.due = max(ag.nextLook(l, t, now), now+1)
	}
	if journal { // if it is not done then, it comes again
		k.due = now + min(max(grow/4, 1), ag.lookEvery(l, now))
	}
	ag.looks.ReplaceOrInsert(k)
	return a, journal
}

// AgesJournalled returns those of the ages that still hold, and notes that a record
// of them is applied: the caller applies it, under the lock under which it applies
// the records of writers. The others are of leases that are gone, or were renewed
// since CheckAges: by a writer's record perhaps, after which a record of the age
// would take back what that one has made durable.
func (ag *ages) AgesJournalled(ages []Age) []Age {
	now := ag.now()
	ag.mu.Lock()
	defer ag.mu.Unlock()
	hold := make([]Age, 0, len(ages))
	for _, a := range ages {
		if a.Age <= 0 {
			delete(ag.told, a.AgeKey) // from owed when it is durable
			hold = append(hold, a)
			continue
		}
		l, t := ag.named(a.AgeKey), ag.told[a.AgeKey]
		if l == nil || ag.age(l, t, now) < a.Age {
			ag.unowe(a.AgeKey, l, t)
			continue
		}
		hold = append(hold, a)
		if t == nil {
			t = new(told)
			ag.told[a.AgeKey] = t
		}
		ag.owed[a.AgeKey] = a.Age
		// If the lease's stamp is later now, it was renewed meanwhile.
		t.age, t.stamp, t.at = a.Age, now-(a.Age-t.beyond), now
		t.look = l.look
		ag.lookSoon(a.AgeKey, now)
	}
	return hold
}

// AgesDurable notes that the record of these ages is durable: a renewal of those
// with age 0 promises the whole limits again.
func (ag *ages) AgesDurable(ages []Age) {
	ag.mu.Lock()
	defer ag.mu.Unlock()
	changed := make(map[*lease]bool)
	for _, a := range ages {
		if a.Age > 0 || ag.told[a.AgeKey] != nil {
			continue
		}
		delete(ag.owed, a.AgeKey)
		if l := ag.named(a.AgeKey); l != nil {
			changed[l] = true
		} else if f := ag.inodes[a.Inode]; f != nil { // it came back to its session
			changed[f.l] = true
		}
	}
	for l := range changed {
		ag.lower(l)
	}
}

// owe notes that the age of the lease is about to be journalled, before anybody
// can find it in the journal. False if the lease was renewed meanwhile. A renewal
// sets the stamp and then looks at owes; owe sets owes and then looks at the stamp.
// So at least one of the two sees the other.
func (ag *ages) owe(key AgeKey, l *lease, t *told, now, age time.Duration) bool {
	ag.owed[key] = age
	l.owes.Store(max(l.owes.Load(), int64(age)))
	if ag.age(l, t, now) == age {
		return true
	}
	ag.reckon(l, key, t)
	return false
}

// unowe takes back that an age of the lease is about to be journalled.
func (ag *ages) unowe(key AgeKey, l *lease, t *told) {
	switch f := ag.inodes[key.Inode]; {
	case l != nil:
		ag.reckon(l, key, t)
	case t == nil:
		delete(ag.owed, key)
		if f != nil { // it came back to its session
			ag.lower(f.l)
		}
	}
}

// reckon brings what the lease owes up to date with the age that is journalled.
func (ag *ages) reckon(l *lease, key AgeKey, t *told) {
	if l.owes.Load() == 0 {
		return
	}
	if t != nil {
		ag.owed[key] = t.age
	} else {
		delete(ag.owed, key)
	}
	ag.lower(l)
}

// lower sets what the lease owes to the largest age of itself and its files.
func (ag *ages) lower(l *lease) {
	var most time.Duration
	switch l.kind {
	case KindGranted:
		most = ag.owed[AgeKey{Granted: l.id}]
	case KindSession:
		most = ag.owed[AgeKey{Session: l.session}]
	}
	if len(ag.owed) > 0 {
		for _, f := range l.files {
			most = max(most, ag.owed[AgeKey{Inode: f.inode}])
		}
	}
	l.owes.Store(int64(most))
}

// inherit adds to what the lease owes what its session and a file that it gets do.
func (ag *ages) inherit(l *lease, f *file) {
	if len(ag.owed) == 0 {
		return
	}
	most := max(time.Duration(l.owes.Load()), ag.owed[AgeKey{Inode: f.inode}])
	if l == l.s.main {
		most = max(most, ag.owed[AgeKey{Session: l.session}])
	}
	l.owes.Store(int64(most))
}

// lookSoon sees to it that a journalled age has an entry in looks.
func (ag *ages) lookSoon(key AgeKey, now time.Duration) {
	t := ag.told[key]
	if t.look != 0 {
		return
	}
	t.look = ag.newLook(now, key)
	if l := ag.named(key); l != nil {
		l.look = t.look
	}
}

// recall returns the stamp of a lease that may have a journalled age, of which so
// much counts that the lease lives on for what grace.left says.
func (ag *ages) recall(key AgeKey, age func(AgeKey) time.Duration, now, limit time.Duration, grace grace) time.Duration {
	if t := ag.told[key]; t != nil {
		return t.stamp // the session of a file before
	}
	a := age(key)
	if a <= 0 {
		return now
	}
	counts := limit - grace.left(a, limit)
	stamp := max(now-counts, 0)
	ag.told[key] = &told{age: a, stamp: stamp, beyond: a - counts}
	ag.owed[key] = a
	return stamp
}
