package leasemanager

import (
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/clock"
)

// unit is a lease of the model: a granted one, or that of a session with one
// file, the inode of which is the session's number.
type unit struct {
	h          Holder
	n          uint64
	limit      time.Duration // TTL or hard limit
	stamp      time.Duration
	ending     bool
	idle, grow time.Duration // when its age is journalled, and again
}

func (u *unit) key() AgeKey {
	if u.limit != hard {
		return AgeKey{Granted: u.n}
	}
	return AgeKey{Session: u.h.Session}
}

// noted is what the model knows of a journalled age.
type noted struct {
	age, stamp time.Duration
	at         time.Duration // when it was journalled
	beyond     time.Duration // what the age is more than the time since the stamp
	stale      bool          // the lease was renewed since, or is gone
	since      time.Duration
}

// ageRun are granted leases and sessions with ages, over several activations,
// against plain maps.
type ageRun struct {
	m         *Manager
	clock     *clock.Fake
	now       time.Duration
	activated time.Duration
	rebuilt   bool
	safeMode  bool
	units     map[AgeKey]*unit
	told      map[AgeKey]*noted
	asked     map[AgeKey]time.Duration // when CheckAges gave it last
	out       []uint64                 // of ExpireGranted
	whole     bool                     // its last walk came to the end
	next      uint64
}

var ttls = []time.Duration{4 * time.Second, time.Minute, time.Hour}

// Granted leases and journalled ages: random operations on the manager and on
// the model.
func TestScenario09Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &ageRun{
			clock: new(clock.Fake), units: map[AgeKey]*unit{}, told: map[AgeKey]*noted{},
			asked: map[AgeKey]time.Duration{}, whole: true, next: 10,
		}
		r.m = New(Config{Clock: r.clock, Soft: soft, Hard: hard})
		t.Repeat(map[string]func(*rapid.T){
			"":           r.check,
			"advance":    r.advance,
			"grant":      r.grant,
			"open":       r.open,
			"renew":      r.renew,
			"renew2":     r.renew,
			"end":        r.end,
			"expire":     r.expire,
			"answer":     r.answer,
			"safeMode":   r.toggle,
			"checkAges":  r.checkAges,
			"checkAges2": r.checkAges,
			"rebuild":    r.rebuild,
		})
	})
}

func (r *ageRun) advance(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{1, time.Second, 2*time.Second + 1, every, every*3/2 + 1, soft, hard / 3, hard}).Draw(t, "d")
	r.clock.Advance(d)
	r.now += d
}

func (r *ageRun) unit(t *rapid.T) *unit {
	keys := make([]uint64, 0, len(r.units))
	byN := map[uint64]*unit{}
	for _, u := range r.units {
		keys = append(keys, u.n)
		byN[u.n] = u
	}
	if len(keys) == 0 {
		t.Skip()
	}
	slices.Sort(keys)
	return byN[rapid.SampledFrom(keys).Draw(t, "lease")]
}

func (r *ageRun) grant(t *rapid.T) {
	ttl := rapid.SampledFrom(ttls).Draw(t, "ttl")
	r.next++
	u := &unit{h: client("g", r.next), n: r.next, limit: ttl, stamp: r.now, grow: min(ttl/4, DefaultAgeEvery)}
	u.idle = max(ttl/2+1, u.grow)
	r.units[u.key()] = u
	r.m.Grant(u.h, u.n, ttl)
	r.m.Grant(Holder{}, u.n, ttl*2)
}

func (r *ageRun) open(t *rapid.T) {
	n := rapid.Uint64Range(1, 3).Draw(t, "session")
	u := &unit{h: client("s", n), n: n, limit: hard, stamp: r.now, idle: every*3/2 + 1, grow: DefaultAgeEvery}
	r.units[u.key()] = u
	r.m.Open(u.h, n, n)
}

func (r *ageRun) renew(t *rapid.T) {
	u := r.unit(t)
	if u.limit == hard {
		u.stamp = r.now
		if !r.m.Touch(u.h.Session, u.n) {
			t.Fatal("not touched")
		}
		return
	}
	got, ok := r.m.KeepAlive(u.n)
	least, told := u.limit, r.told[u.key()]
	if told != nil { // what a crash now would leave it
		g := grace{}
		g.whole, g.least = u.grace()
		least = g.left(told.age, u.limit)
	}
	_, asked := r.asked[u.key()]
	if ok == u.ending || ok && (got > least || got < u.limit/30 || told == nil && !asked && got != u.limit) {
		t.Fatalf("kept alive %v, with %v; a crash leaves %v", ok, got, least)
	}
	if ok {
		u.stamp = r.now
	}
}

func (r *ageRun) end(t *rapid.T) {
	u := r.unit(t)
	r.forget(u)
	if u.limit == hard {
		r.m.Close(u.n, u.n, ReasonClosed, nil)
		return
	}
	r.m.Revoke(u.n)
}

func (r *ageRun) forget(u *unit) {
	delete(r.units, u.key())
	if u.limit != hard { // the tree forgets these by itself
		delete(r.told, u.key())
		r.out = slices.DeleteFunc(r.out, func(id uint64) bool { return id == u.n })
	}
}

// past are the granted leases past their TTL whose end has not begun.
func (r *ageRun) past() (ids []uint64) {
	for _, u := range r.units {
		if u.limit != hard && !u.ending && !r.safeMode && r.now-u.stamp > u.limit {
			ids = append(ids, u.n)
		}
	}
	slices.SortFunc(ids, func(a, b uint64) int {
		x, y := r.units[AgeKey{Granted: a}], r.units[AgeKey{Granted: b}]
		if d := x.stamp + x.limit - y.stamp - y.limit; d != 0 {
			return int(d)
		}
		return int(a) - int(b) //nolint:gosec // small
	})
	return ids
}

func (r *ageRun) expire(t *rapid.T) {
	n := rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "n")
	want := r.past()
	ids := r.m.ExpireGranted(n)
	// A walk that starts over gives the earliest ones, in their order.
	if at := -1; r.whole && !slices.Equal(ids, want[:min(n, len(want))]) || len(ids) > n {
		t.Fatalf("%v, want %v", ids, want)
	} else {
		for _, id := range ids {
			i := slices.Index(want, id)
			if i <= at {
				t.Fatalf("%v, want some of %v, in their order", ids, want)
			}
			at = i
			r.units[AgeKey{Granted: id}].ending = true
		}
	}
	r.out = append(r.out, ids...)
	if !r.safeMode {
		r.whole = len(ids) < n
	}
	for _, e := range r.m.Expire(100) {
		u := r.units[AgeKey{Session: e.Holder.Session}]
		if u == nil || r.now-u.stamp <= hard || r.safeMode {
			t.Fatalf("%+v is not past its limit", e)
		}
		r.forget(u)
		endAll(r.m, []Ending{e})
	}
	for _, u := range r.units {
		if u.limit == hard && r.now-u.stamp > hard && !r.safeMode {
			t.Fatalf("%+v is past its limit", u)
		}
	}
}

func (r *ageRun) answer(t *rapid.T) {
	if len(r.out) == 0 {
		t.Skip()
	}
	u := r.units[AgeKey{Granted: r.out[0]}]
	if rapid.Bool().Draw(t, "failed") {
		r.out = r.out[1:]
		u.ending = false
		r.m.NotExpired(u.n)
		return
	}
	r.forget(u)
	r.m.Revoke(u.n)
}

func (r *ageRun) toggle(*rapid.T) {
	if r.safeMode = !r.safeMode; r.safeMode {
		r.m.Suspend()
		return
	}
	r.m.Resume()
	for _, u := range r.units {
		u.stamp = r.now
	}
}

func (r *ageRun) checkAges(t *rapid.T) {
	got := r.m.CheckAges(100)
	given := map[AgeKey]bool{}
	for _, a := range got {
		u, told := r.units[a.AgeKey], r.told[a.AgeKey]
		switch {
		case r.safeMode || given[a.AgeKey]:
			t.Fatalf("%+v: in safe mode, or twice", a)
		case a.Age == 0 && (told == nil || !told.stale):
			t.Fatalf("%+v: was not renewed", a)
		case a.Age > 0 && !r.due(u, told) || a.Age > 0 && a.Age != r.age(u, told):
			t.Fatalf("%+v: %+v, %+v", a, u, told)
		}
		given[a.AgeKey] = true
	}
	if !r.safeMode {
		r.complete(t, given)
	}
	for k, u := range r.units {
		if u.ending { // looked at, and passed over
			r.asked[k] = r.now
		}
	}
	journal := rapid.IntRange(0, 3).Draw(t, "journal") > 0
	for _, a := range got {
		r.asked[a.AgeKey] = r.now
		switch {
		case !journal:
		case a.Age == 0:
			delete(r.told, a.AgeKey)
		default:
			n := &noted{age: a.Age, stamp: r.units[a.AgeKey].stamp, at: r.now}
			if told := r.told[a.AgeKey]; told != nil {
				n.beyond = told.beyond
			}
			r.told[a.AgeKey] = n
		}
	}
	if journal {
		r.m.AgesJournalled(got)
		r.m.AgesDurable(got)
	}
}

// due reports whether the age of a lease is to be journalled.
func (r *ageRun) due(u *unit, told *noted) bool {
	switch {
	case u == nil || u.ending:
		return false
	case told != nil && told.stale:
		return false
	case r.rebuilt && u.stamp <= r.activated: // nothing was heard of it
		last := r.activated
		if told != nil {
			last = max(last, told.at)
		}
		_, least := u.grace()
		return r.now >= last+min(max((last-r.activated)/2, least), u.grow)
	case told == nil:
		return r.now-u.stamp >= u.idle
	}
	return r.now >= told.at+u.grow
}

// age is how long nothing was heard of a lease, over activations.
func (r *ageRun) age(u *unit, told *noted) time.Duration {
	if told == nil {
		return r.now - u.stamp
	}
	return r.now - u.stamp + told.beyond
}

// grace is how long it lives on at least, after an activation and after many.
func (u *unit) grace() (whole, least time.Duration) {
	whole = u.limit / 3
	if u.limit == hard {
		whole = every
	}
	return whole, min(whole, every) / 10
}

// complete checks that nothing was left out that was not given just before.
func (r *ageRun) complete(t *rapid.T, given map[AgeKey]bool) {
	just := func(k AgeKey, grow time.Duration) bool {
		at, asked := r.asked[k]
		return given[k] || asked && r.now-at < grow
	}
	for k, u := range r.units {
		if r.due(u, r.told[k]) && !just(k, u.grow) {
			t.Fatalf("%+v: not to be journalled: %+v, %+v", k, u, r.told[k])
		}
	}
	for k, told := range r.told {
		if u := r.units[k]; told.stale && r.now-told.since >= DefaultAgeEvery && !just(k, DefaultAgeEvery) && (u == nil || !u.ending) {
			t.Fatalf("%+v: was renewed long ago: %+v", k, told)
		}
	}
}

// rebuild is an activation, of the same manager or of a new one.
func (r *ageRun) rebuild(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip()
	}
	if rapid.Bool().Draw(t, "new") {
		for r.safeMode {
			r.toggle(t)
		}
		r.clock = new(clock.Fake)
		r.m = New(Config{Clock: r.clock, Soft: soft, Hard: hard})
	}
	ages := map[AgeKey]time.Duration{}
	for k, told := range r.told {
		ages[k] = told.age
	}
	clear(r.told)
	clear(r.asked)
	r.out, r.whole, r.activated, r.rebuilt = nil, true, r.now, true
	for k, u := range r.units {
		u.ending, u.stamp = false, r.now
		if age := ages[k]; age > 0 {
			whole, least := u.grace()
			left := max(u.limit-age, whole)
			if age > u.limit {
				left = max(u.limit+whole-age, least)
			}
			u.stamp -= u.limit - left
			r.told[k] = &noted{age: age, stamp: u.stamp, beyond: age - (u.limit - left)}
		}
	}
	r.m.Rebuild(r.files(), r.granted(), func(k AgeKey) time.Duration { return ages[k] })
}

func (r *ageRun) files() iter.Seq2[Holder, Ref] {
	return func(yield func(Holder, Ref) bool) {
		for _, u := range r.units {
			if u.limit == hard && !yield(u.h, Ref{u.n, u.n}) {
				return
			}
		}
	}
}

func (r *ageRun) granted() iter.Seq[Granted] {
	return func(yield func(Granted) bool) {
		for _, u := range r.units {
			if u.limit != hard && !yield(Granted{u.h, u.n, u.limit}) {
				return
			}
		}
	}
}

// check compares everything that can be seen.
func (r *ageRun) check(t *rapid.T) {
	for _, w := range r.m.Check() {
		t.Error(w)
	}
	for k, told := range r.told {
		if u := r.units[k]; !told.stale && (u == nil || u.stamp > told.stamp) {
			told.stale, told.since = true, r.now
		}
	}
	if !maps.EqualFunc(r.m.told, r.told, func(a *told, b *noted) bool { return a.age == b.age }) {
		t.Fatalf("journalled: %+v, want %+v", r.m.told, r.told)
	}
	sessions := 0
	for _, u := range r.units {
		if u.limit == hard {
			sessions++
			r.checkSession(t, u)
			continue
		}
		left := max(u.limit-(r.now-u.stamp), 0)
		if u.ending {
			left = 0
		} else if r.safeMode {
			left = u.limit
		}
		infos, _ := r.m.List(Filter{LeaseID: u.n})
		remaining, ttl, ok := r.m.TimeToLive(u.n)
		if !ok || remaining != left || ttl != u.limit || len(infos) != 1 || infos[0].Remaining != left || infos[0].Ending != u.ending ||
			infos[0].Holder != u.h || infos[0].SoftExpired != (r.now-u.stamp > u.limit && !r.safeMode) {
			t.Fatalf("%v of %v remain, known %v: %+v; want %+v", remaining, ttl, ok, infos, u)
		}
	}
	infos, _ := r.m.List(Filter{Limit: 1000})
	if st := figuresOf(r.m); len(infos) != len(r.units) || st.Granted != len(r.units)-sessions || st.Leases != sessions {
		t.Fatalf("%d leases listed, %+v; want %d", len(infos), st, len(r.units))
	}
	if !r.safeMode && r.whole && len(r.past()) > 0 && r.m.Sleep() > failedSleep+1 {
		t.Fatalf("sleeps %v with leases past their TTL", r.m.Sleep())
	}
}

// checkSession: past each limit by its age, but not within a period after the
// activation.
func (r *ageRun) checkSession(t *rapid.T, u *unit) {
	st, ok := r.m.State(u.n)
	idle, period := r.now-u.stamp, r.now > r.activated+every || r.activated == 0
	soft := idle > soft && period && !r.safeMode
	if !ok || st.Kind != KindSession || st.Idle != idle || st.SoftExpired != soft || (st.TakeableIn == 0) != soft ||
		st.MissedRenewal != (idle > every*3/2 && period) || st.HardExpired != (idle > hard && !r.safeMode) {
		t.Fatalf("%+v, want %+v", st, u)
	}
}
