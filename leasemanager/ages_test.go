package leasemanager

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/clock"
)

// reigns is what outlives namenodes: the tree with its journalled ages. Each
// namenode has a clock of its own, which begins at 0.
type reigns struct {
	t       rapid.TB
	m       *Manager
	clock   *clock.Fake
	now     time.Duration // over all of them
	files   map[Ref]Holder
	granted map[uint64]Granted
	ages    map[AgeKey]time.Duration
	ended   map[AgeKey]time.Duration // when
	records int                      // of ages
}

func newReigns(t rapid.TB) *reigns {
	r := &reigns{
		t: t, files: map[Ref]Holder{}, granted: map[uint64]Granted{},
		ages: map[AgeKey]time.Duration{}, ended: map[AgeKey]time.Duration{},
	}
	r.activate()
	return r
}

func (r *reigns) activate() {
	r.clock = new(clock.Fake)
	r.m = New(Config{Clock: r.clock, Soft: soft, Hard: hard})
	r.m.Rebuild(r.open(), maps.Values(r.granted), func(k AgeKey) time.Duration { return r.ages[k] })
	sound(r.t, r.m)
}

func (r *reigns) open() iter.Seq2[Holder, Ref] {
	return func(yield func(Holder, Ref) bool) {
		for ref, h := range r.files {
			if !yield(h, ref) {
				return
			}
		}
	}
}

// run does for a while what the namenode does each second.
func (r *reigns) run(d time.Duration, alive func()) {
	for range d / time.Second {
		r.clock.Advance(time.Second)
		r.now += time.Second
		if alive != nil {
			alive()
		}
		r.pass()
	}
}

func (r *reigns) pass() {
	r.journalAges()
	ends := r.m.Expire(10)
	for _, e := range ends {
		for _, f := range e.Files {
			r.ended[AgeKey{Session: e.Holder.Session}] = r.now
			r.ended[AgeKey{Inode: f.Inode}] = r.now
			delete(r.files, f)
			delete(r.ages, AgeKey{Inode: f.Inode})
		}
	}
	endAll(r.m, ends)
	for _, id := range r.m.ExpireGranted(10) {
		r.ended[AgeKey{Granted: id}] = r.now
		delete(r.granted, id)
		delete(r.ages, AgeKey{Granted: id})
		r.m.Revoke(id)
	}
	for _, w := range r.m.Check() {
		r.t.Fatal(w)
	}
}

func (r *reigns) journalAges() {
	for ages := r.m.CheckAges(3); len(ages) > 0; ages = r.m.CheckAges(3) {
		r.journal(ages)
	}
}

func (r *reigns) journal(ages []Age) {
	for _, a := range r.m.AgesJournalled(ages) {
		if r.ages[a.AgeKey] = a.Age; a.Age == 0 {
			delete(r.ages, a.AgeKey)
		}
		r.records++
	}
	r.m.AgesDurable(ages)
}

// write is a record of a writer of the file.
func (r *reigns) write(id SessionID, inode uint64) {
	if !r.m.Touch(id, inode) {
		r.t.Fatalf("file %d: not touched", inode)
	}
	delete(r.ages, AgeKey{Session: id})
	delete(r.ages, AgeKey{Inode: inode})
}

// A lease idle for up to 90 % of its life, three activations in a row: it ends at
// its own time, within one checkpoint interval, but not before a renewal period
// is over. One that is renewed lives.
func TestScenario09LeaseCheckpoint(t *testing.T) {
	for _, idle := range []time.Duration{hard / 10, hard / 2, hard * 9 / 10} {
		r := newReigns(t)
		dead, live := client("dead", 1), client("live", 2)
		r.files[Ref{1, 1}], r.files[Ref{2, 2}], r.files[Ref{3, 3}] = dead, live, live
		ttl60, ttl90 := idle*5/3, idle*10/9 // it is idle for 60 % and 90 % of
		r.granted[4] = Granted{Holder: dead, ID: 4, TTL: ttl60}
		r.granted[5] = Granted{Holder: dead, ID: 5, TTL: ttl90}
		r.granted[6] = Granted{Holder: live, ID: 6, TTL: hard}
		r.activate()
		// File 3 is one that its live session lists no more.
		r.m.Renew(Renewal{Session: live.Session, Version: 1, HasSet: true, Open: []Ref{{2, 2}}})
		version := uint64(1)
		n := 0
		alive := func() {
			if n++; n%27 == 0 {
				res := r.m.Renew(Renewal{Session: live.Session, Version: version})
				if res.WantSet {
					r.m.Renew(Renewal{Session: live.Session, Version: version, HasSet: true, Open: []Ref{{2, 2}}})
				}
				r.m.KeepAlive(6)
			}
		}
		r.run(idle, alive)
		for range 3 {
			r.activate()
			wantVerdict(t, r.m, 1, client("c", 9), Held)
			r.run(time.Second, alive)
		}
		activated := r.now
		r.run(2*hard, alive)
		const late = DefaultAgeEvery + 2*time.Second
		for key, life := range map[AgeKey][2]time.Duration{
			{Session: dead.Session}: {hard, hard + late},
			{Granted: 4}:            {ttl60, ttl60 + late},
			{Granted: 5}:            {ttl90, activated + ttl90/3 + time.Second},
		} {
			if at := r.ended[key]; at < life[0] || at > life[1] {
				t.Errorf("idle %v, %+v: ended at %v, its own time is %v, at the latest %v", idle, key, at, life[0], life[1])
			}
		}
		// The file lapsed when it was missed, with the stamp of 27 s before; in
		// a new reign the session has it again for two renewal periods.
		if at := r.ended[AgeKey{Inode: 3}]; at == 0 || at > hard+3*every+DefaultAgeEvery {
			t.Errorf("idle %v: the file that is not listed ended at %v", idle, at)
		}
		if _, ok := r.m.State(2); !ok || len(r.granted) != 1 || len(r.files) != 1 {
			t.Errorf("%v, %v are left", r.files, r.granted)
		}
		if len(r.ages) != 0 || len(r.m.told) != 0 {
			t.Errorf("ages are left: %v, %v", r.ages, r.m.told)
		}
	}
}

// However restarts fall, each costs one checkpoint interval at most; so they do
// not keep a dead holder alive, nor a granted lease with a short TTL.
func TestRestartsInARow(t *testing.T) {
	r := newReigns(t)
	dead := client("dead", 1)
	r.files[Ref{1, 1}] = dead
	const short = 20 * time.Second // an interval of 5 s, journalled from 10 s on
	r.granted[5] = Granted{Holder: dead, ID: 5, TTL: short}
	r.activate()
	r.run(50*time.Second, nil)
	if at := r.ended[AgeKey{Granted: 5}]; at != short+time.Second {
		t.Errorf("ended at %v", at)
	}
	r.granted[5] = Granted{Holder: dead, ID: 5, TTL: short}
	r.activate()
	began, restarts := r.now, 0
	for ; len(r.files) > 0 && restarts < 200; restarts++ {
		r.run(45*time.Second, nil) // the first 31 s are journalled
		r.activate()
	}
	if want := hard * 45 / 31; r.now < hard || r.now > want+2*time.Minute {
		t.Errorf("ended at %v after %d restarts, want about %v", r.now, restarts, want)
	}
	if at := r.ended[AgeKey{Granted: 5}]; at < began+short || at > began+2*short {
		t.Errorf("granted at %v, ended at %v", began, at)
	}

	// A granted lease that is idle, restarts each 11 s: TTL/3 remains each time.
	r.granted[5] = Granted{Holder: dead, ID: 5, TTL: short}
	r.activate()
	began = r.now
	for range 20 {
		r.run(11*time.Second, nil)
		r.activate()
	}
	if at := r.ended[AgeKey{Granted: 5}]; at < began+short || at > began+2*short {
		t.Errorf("granted at %v, ended at %v", began, at)
	}
}

// Restarts every few seconds, of crashes and in good order, at random or always
// alike: a dead holder is closed after at most twice the hard limit of uptime, and
// a period, not counting reigns below the least grace; one that comes back in each
// reign that is no shorter is never evicted.
func TestRestartsEveryFewSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReigns(t)
		dead, live := client("dead", 1), client("live", 2)
		least := every / 10
		shortest := rapid.SampledFrom([]time.Duration{time.Second, least, 5 * time.Second}).Draw(t, "shortest")
		longest := rapid.SampledFrom([]time.Duration{5 * time.Second, 20 * time.Second, 3 * time.Minute}).Draw(t, "longest")
		comeback := rapid.SampledFrom([]time.Duration{time.Second, least}).Draw(t, "comes back after")
		r.files[Ref{1, 1}], r.files[Ref{2, 2}] = dead, live
		r.granted[5], r.granted[6] = Granted{Holder: dead, ID: 5, TTL: hard}, Granted{Holder: live, ID: 6, TTL: hard}
		r.activate()
		var counted time.Duration
		const limit = 2*hard + hard/3 + 3*time.Minute // a grace, and the last reign
		for counted <= limit && (r.files[Ref{1, 1}] == dead || r.granted[5].ID != 0) {
			reign := time.Duration(rapid.Int64Range(int64(shortest/time.Second), int64(longest/time.Second)).Draw(t, "reign")) * time.Second
			since := time.Duration(0)
			r.run(reign, func() {
				if since += time.Second; since == comeback || since%every == 0 {
					r.m.Touch(live.Session, 2)
					r.m.KeepAlive(6)
				}
			})
			if reign > least {
				counted += reign
			}
			if rapid.Bool().Draw(t, "in good order") {
				for ages := range r.m.LastAges() {
					r.journal(ages)
				}
			}
			r.activate()
		}
		if counted > limit {
			t.Fatalf("still open after %v that count: %v, %v", counted, r.files, r.ages)
		}
		if r.files[Ref{2, 2}] != live || r.granted[6].ID == 0 {
			t.Fatalf("the live one was evicted after %v: %v", r.now, r.ages)
		}
		for key, at := range r.ended {
			if at < hard {
				t.Fatalf("%+v ended after %v", key, at)
			}
		}
	})
}

// A live holder is not evicted by activations in a row, also if it had missed
// renewals for nearly all its life before, or if the journal says even more.
func TestActivationsSpareTheLiving(t *testing.T) {
	for _, age := range []time.Duration{0, every, soft, hard - every, hard, 10 * hard, 2 * origin} {
		r := newReigns(t)
		a, other, again := client("a", 1), client("b", 2), client("a", 3)
		a.TTL = 40 * time.Second // so a period is 20 s
		period := a.TTL / 2
		r.files[Ref{1, 1}], r.files[Ref{2, 2}] = a, a
		const of = 3 * time.Hour
		r.granted[5] = Granted{Holder: a, ID: 5, TTL: of}
		if age > 0 {
			for _, k := range []AgeKey{{Session: a.Session}, {Inode: 2}, {Granted: 5}} {
				r.ages[k] = age
			}
		}
		// The first time it needs all the grace that there is until it comes back,
		// then a tenth of a period each time.
		g, granted := grace{period, period / 10}, grace{of / 3, every / 10}
		quiet := g.left(age, hard) - max(hard-age-period, 0)
		for i := range 5 {
			r.activate()
			r.m.Connect(a)
			if i > 0 {
				quiet = period / 10
			} else if st, _ := r.m.State(2); (st.Kind == KindLapsing) != (age > 0) || st.Idle != hard-g.left(age, hard) || st.Since != 0 {
				t.Errorf("age %v: %+v", age, st)
			}
			r.run(quiet, nil)
			for _, inode := range []uint64{1, 2} {
				wantVerdict(t, r.m, inode, other, Held)
				if st, ok := r.m.State(inode); !ok || st.MissedRenewal || st.TakeableIn < 1 {
					t.Fatalf("age %v: %+v", age, st)
				}
			}
			wantVerdict(t, r.m, 1, again, Held)
			if got, _, ok := r.m.TimeToLive(5); !ok || i == 0 && got != granted.left(age, of)-quiet {
				t.Fatalf("age %v: %v remain", age, got)
			}
			r.m.Touch(a.Session, 1)
			r.m.Touch(a.Session, 2)
			r.m.KeepAlive(5)
			r.run(time.Second, nil)
		}
		// It comes back: the journal hears of it at the next look.
		r.m.Renew(Renewal{Session: a.Session, Version: 1, HasSet: true, Open: []Ref{{1, 1}, {2, 2}}})
		r.m.KeepAlive(5)
		r.run(DefaultAgeEvery, func() { r.m.Touch(a.Session, 1); r.m.KeepAlive(5) })
		if len(r.ages) != 0 {
			t.Errorf("age %v: %v", age, r.ages)
		}
		if st, _ := r.m.State(2); st.Kind != KindSession {
			t.Errorf("%+v", st)
		}
		// And it is as new: past its limit when nothing comes.
		r.activate()
		r.clock.Advance(a.TTL)
		wantVerdict(t, r.m, 1, other, Held)
		r.clock.Advance(1)
		wantVerdict(t, r.m, 1, other, Takeable)
	}
}

// The soft limit after an activation: the age counts, but for a period.
func TestSoftLimitAfterActivation(t *testing.T) {
	for age, wait := range map[time.Duration]time.Duration{
		0: soft, soft / 4: soft * 3 / 4, soft / 2: every, soft: every, hard: every,
	} {
		r := newReigns(t)
		r.files[Ref{1, 1}] = client("a", 1)
		r.ages[AgeKey{Session: sid(1)}] = age
		r.activate()
		r.clock.Advance(wait)
		wantVerdict(t, r.m, 1, client("b", 2), Held)
		r.clock.Advance(1)
		wantVerdict(t, r.m, 1, client("b", 2), Takeable)
	}
}

func wantAges(t testing.TB, m *Manager, want ...Age) []Age {
	t.Helper()
	got := m.CheckAges(100)
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	return got
}

func TestCheckAges(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	key := AgeKey{Session: a.Session}
	of := func(d time.Duration) Age { return Age{key, d} }
	m.Open(a, 1, 1)
	const missed = every * 3 / 2
	c.Advance(missed)
	wantAges(t, m)
	c.Advance(1)
	wantAges(t, m, of(missed+1))
	wantAges(t, m) // not twice at once
	// It could not be journalled: it comes again, as it is then.
	c.Advance(DefaultAgeEvery / 4)
	m.AgesJournalled(wantAges(t, m, of(missed+1+DefaultAgeEvery/4)))
	c.Advance(DefaultAgeEvery - 1)
	wantAges(t, m)
	c.Advance(1)
	ages := wantAges(t, m, of(missed+1+DefaultAgeEvery*5/4))
	// Renewed between the check and the record.
	m.Touch(a.Session, 1)
	m.AgesJournalled(ages)
	c.Advance(DefaultAgeEvery)
	m.AgesJournalled(wantAges(t, m, of(0)))
	wantAges(t, m)

	// The end of safe mode counts as a renewal; nothing is journalled in it.
	c.Advance(every)
	m.AgesJournalled(wantAges(t, m, of(2*every)))
	m.Suspend()
	c.Advance(hard)
	wantAges(t, m)
	m.Resume()
	m.AgesJournalled(wantAges(t, m, of(0)))

	// It is being ended: nothing new; and then it is gone.
	c.Advance(soft)
	m.AgesJournalled(wantAges(t, m, of(soft)))
	c.Advance(hard)
	ends := m.Expire(1)
	wantAges(t, m)
	endAll(m, ends)
	c.Advance(DefaultAgeEvery)
	m.AgesJournalled(wantAges(t, m, of(0)))
	c.Advance(hard)
	wantAges(t, m)
	if m.looks.Len() != 0 || len(m.told) != 0 {
		t.Errorf("%d entries, %d ages are left", m.looks.Len(), len(m.told))
	}
}

// An age goes with its file; one that is from before an end of safe mode counts
// all the same after the next activation.
func TestAgeOfFile(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	m.Open(a, 1, 1)
	m.Open(a, 2, 2)
	confirm(t, m, a, 1, Ref{1, 1}, Ref{2, 2})
	c.Advance(every + 1)
	confirm(t, m, a, 2, Ref{1, 1})
	c.Advance(every)
	m.Touch(a.Session, 1)
	m.AgesJournalled(wantAges(t, m, Age{AgeKey{Inode: 2}, 2*every + 1}))
	m.Suspend()
	m.Resume()
	m.Rebuild(seq(a, Ref{1, 1}, Ref{2, 2}), nil, func(k AgeKey) time.Duration {
		if k.Inode == 2 {
			return 2*every + 1
		}
		return 0
	})
	if st, _ := m.State(2); st.Idle != 2*every+1 || st.Kind != KindLapsing {
		t.Errorf("%+v", st)
	}
	if st, _ := m.State(1); st.Idle != 0 || st.Kind != KindSession {
		t.Errorf("%+v", st)
	}
	m.Close(2, 2, "deleted", nil)
	if len(m.told) != 0 {
		t.Errorf("%+v", m.told)
	}
	c.Advance(every)
	wantAges(t, m, Age{AgeKey{Session: a.Session}, every}) // silent since the activation
}

// Ages that come after what they are about is gone, or was renewed, are not
// journalled.
func TestLateAges(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	m.Open(a, 1, 1)
	m.Open(a, 2, 2)
	m.Open(client("b", 2), 3, 3)
	m.Grant(a, 5, soft)
	confirm(t, m, a, 1, Ref{1, 1}, Ref{2, 2})
	c.Advance(every + 1)
	confirm(t, m, a, 2, Ref{1, 1}) // file 2 lapses
	c.Advance(every)
	ages := m.CheckAges(100) // of file 2, session b, lease 5
	if len(ages) != 3 {
		t.Fatalf("%+v", ages)
	}
	m.Close(2, 2, "deleted", nil)
	m.Close(3, 3, "deleted", nil)
	m.Revoke(5)
	c.Advance(hard) // so that even the entries are gone
	m.CheckAges(100)
	if hold := m.AgesJournalled(ages); len(hold) > 0 || len(m.told) > 0 {
		t.Errorf("%+v, %+v", hold, m.told)
	}
	sound(t, m)

	// A file that came back to its session has no age of its own, and the session,
	// renewed by that, none either.
	m.Open(a, 2, 9)
	confirm(t, m, a, 3, Ref{1, 1}, Ref{2, 9})
	c.Advance(every + 1)
	confirm(t, m, a, 4, Ref{1, 1})
	c.Advance(soft)
	ages = m.CheckAges(100) // of file 2 and session a
	if len(ages) != 2 || len(m.owed) != 2 {
		t.Fatalf("%+v, %+v", ages, m.owed)
	}
	m.Touch(a.Session, 2)
	if hold := m.AgesJournalled(ages); len(hold) > 0 || len(m.told) > 0 || len(m.owed) > 0 {
		t.Errorf("%+v, %+v, %+v", hold, m.told, m.owed)
	}
	if res := m.Renew(Renewal{Session: a.Session, Version: 4}); res.Soft != soft || res.Hard != hard {
		t.Errorf("%+v", res)
	}
	sound(t, m)
}

// Leases that are renewed cost one look in 1.5 periods, and no more for there
// being dead ones; the dead ones cost one an interval.
func TestAgesCost(t *testing.T) {
	m, c := fresh(t)
	const live, dead = 2 * portion, 10
	for i := range uint64(live + dead) {
		m.Open(client("", i+1), i+1, 1)
	}
	looks := func() (n int) {
		now := m.now()
		m.looks.Ascend(func(k look) bool { n++; return k.due <= now })
		return n - 1
	}
	total, journalled := 0, 0
	const rounds = 10
	for range rounds {
		for i := range uint64(live) {
			m.Touch(sid(i+1), i+1)
		}
		for range 10 {
			c.Advance(every * 3 / 20) // so a round is 1.5 periods
			total += looks()
			ages := m.CheckAges(10_000)
			journalled += len(ages)
			m.AgesJournalled(ages)
		}
	}
	if total > rounds*(live+3*dead)+live {
		t.Errorf("%d looks", total)
	}
	if want := dead * int(rounds*every*3/2/DefaultAgeEvery); journalled > want || journalled < want-2*dead {
		t.Errorf("%d ages, want about %d", journalled, want)
	}
}

// The last ages of more leases than are looked at under one lock: each silent
// one once, also while others come, are renewed and have their ages journalled.
func TestLastAgesInPortions(t *testing.T) {
	m, c := fresh(t)
	const n = 3*portion + 7
	for i := range uint64(n) {
		m.Open(client("", i+1), i+1, 1)
	}
	c.Advance(hard / 2)
	for i := range uint64(n) {
		if i%3 == 0 {
			m.Touch(sid(i+1), i+1)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(n) {
			m.Open(client("", n+i+1), n+i+1, 1)
			if i%3 == 0 {
				m.Touch(sid(i+1), i+1)
			}
		}
	})
	wg.Go(func() {
		for range 3 {
			m.AgesJournalled([]Age{{AgeKey{Session: sid(2)}, hard / 2}})
		}
	})
	got := map[AgeKey]int{}
	for ages := range m.LastAges() {
		for _, a := range ages {
			got[a.AgeKey]++
			if a.Age != hard/2 {
				t.Errorf("%v: age %v, want %v", a.AgeKey, a.Age, hard/2)
			}
		}
	}
	wg.Wait()
	for i := range uint64(n) {
		want := 1
		if i%3 == 0 {
			want = 0
		}
		if k := (AgeKey{Session: sid(i + 1)}); got[k] != want {
			t.Errorf("session %d: %d ages, want %d", i+1, got[k], want)
		}
		delete(got, AgeKey{Session: sid(i + 1)})
	}
	if len(got) > 0 {
		t.Errorf("%d ages of leases that are renewed", len(got))
	}
}
