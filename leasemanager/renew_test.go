package leasemanager

import (
	"iter"
	"slices"
	"testing"
	"time"
)

// confirm renews with the whole set, as a client does after a change.
func confirm(t testing.TB, m *Manager, h Holder, version uint64, open ...Ref) {
	t.Helper()
	r := m.Renew(Renewal{Session: h.Session, Version: version, HasSet: true, Open: open})
	if r.UnknownSession || r.WantSet || r.Ending || len(r.Lost)+len(r.Unknown) != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestRenewVersions(t *testing.T) {
	m, _ := fresh(t)
	a := client("a", 1)
	m.Open(a, 1, 1)
	if r := m.Renew(Renewal{Session: a.Session}); !r.WantSet || r.Next > time.Second {
		t.Errorf("no set was asked for: %+v", r)
	}
	confirm(t, m, a, 5, Ref{1, 1})
	if r := m.Renew(Renewal{Session: a.Session, Version: 5}); r.WantSet || r.Next != every {
		t.Errorf("%+v", r)
	}
	for _, v := range []uint64{4, 6} {
		if r := m.Renew(Renewal{Session: a.Session, Version: v}); !r.WantSet {
			t.Errorf("version %d: %+v", v, r)
		}
	}
	// An unknown file is told until a set comes without it, a reply lost or not.
	bad := []Ref{{1, 1}, {1, 0}, {7, 7}}
	for range 2 {
		r := m.Renew(Renewal{Session: a.Session, Version: 6, HasSet: true, Open: bad})
		if !slices.Equal(r.Unknown, bad[1:]) {
			t.Errorf("%+v", r)
		}
	}
	if r := m.Renew(Renewal{Session: a.Session, Version: 6}); !r.WantSet {
		t.Errorf("a version with unknown files was confirmed: %+v", r)
	}
	confirm(t, m, a, 7, Ref{1, 1})
	// One that was overtaken changes nothing.
	if r := m.Renew(Renewal{Session: a.Session, Version: 6, HasSet: true, Open: bad}); len(r.Unknown) != 0 {
		t.Errorf("%+v", r)
	}
	if r := m.Renew(Renewal{Session: a.Session, Version: 7}); r.WantSet {
		t.Errorf("%+v", r)
	}
}

func TestRenewJitter(t *testing.T) {
	m, _ := fresh(t)
	for j, want := range map[float64]time.Duration{0: every, 0.5: every * 9 / 10, 1: every * 4 / 5} {
		m.cfg.Jitter = func() float64 { return j }
		if r := m.Renew(Renewal{}); r.Next != want {
			t.Errorf("jitter %v: %v, want %v", j, r.Next, want)
		}
	}
	if _, _, d := m.Limits(); d != every {
		t.Error(d)
	}
	if s, h, d := New(Config{}).Limits(); s != DefaultSoft || h != DefaultHard || d != DefaultSoft/2 {
		t.Error(s, h, d)
	}
	if _, _, d := New(Config{Soft: time.Hour, Hard: time.Second}).Limits(); d != time.Second/2 {
		t.Error(d)
	}
}

// A file that the session lists no more, and did not close, lapses though its
// process lives.
func TestLapse(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	m.Connect(a)
	m.Open(a, 1, 1)
	m.Open(a, 2, 2)
	confirm(t, m, a, 1, Ref{1, 1}, Ref{2, 2})
	c.Advance(every)
	confirm(t, m, a, 2, Ref{1, 1}) // granted not longer than a period ago
	wantFiles(t, m, 2, 2)
	c.Advance(every) // entered the queue at `every`: not strictly later
	confirm(t, m, a, 2, Ref{1, 1})
	wantFiles(t, m, 2, 2)
	c.Advance(1)
	m.Renew(Renewal{Session: a.Session, Version: 2}) // no set is needed for it
	wantFiles(t, m, 2, 1)
	st, _ := m.State(2)
	if st.Kind != KindLapsing || st.Idle != 1 || st.LeaseID == FirstSessionLease {
		t.Errorf("want the stamp of the renewal before: %+v", st)
	}
	sound(t, m)

	for range 3 {
		c.Advance(every)
		m.Renew(Renewal{Session: a.Session, Version: 2})
	}
	wantVerdict(t, m, 1, b, Held)
	wantVerdict(t, m, 2, b, Takeable)
	wantVerdict(t, m, 2, a, Takeable) // it does not know that it has it

	// Its writer speaks: it comes back.
	if !m.Touch(a.Session, 2) {
		t.Error("not touched")
	}
	wantFiles(t, m, 2, 2)
	wantVerdict(t, m, 2, b, Held)
	wantVerdict(t, m, 2, a, SameSession)

	// No set since has it: it lapses again, and a set brings it back.
	confirm(t, m, a, 3, Ref{1, 1})
	if st, _ := m.State(2); st.Kind != KindLapsing {
		t.Errorf("%+v", st)
	}
	confirm(t, m, a, 4, Ref{1, 1}, Ref{2, 2})
	if st, _ := m.State(2); st.Kind != KindSession || st.Idle != 0 {
		t.Errorf("%+v", st)
	}

	// And it ends at its own time.
	confirm(t, m, a, 5, Ref{1, 1})
	for c.Advance(every); c.Mono() < 2*hard; c.Advance(every) {
		m.Renew(Renewal{Session: a.Session, Version: 5})
		ends := m.Expire(10)
		for _, e := range ends {
			if !slices.Equal(e.Files, []Ref{{2, 2}}) {
				t.Fatalf("%+v", e)
			}
		}
		endAll(m, ends)
	}
	if _, ok := m.State(2); ok {
		t.Error("the file that was listed no more did not lapse")
	}
	wantFiles(t, m, 1, 1)
}

// The reply of an open was lost: the client never lists the file, and never
// changes its version.
func TestLapseOfUnknownGrant(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	m.Open(a, 1, 1)
	confirm(t, m, a, 1, Ref{1, 1})
	m.Open(a, 2, 2)
	for range 2 {
		c.Advance(every/2 + 1)
		m.Renew(Renewal{Session: a.Session, Version: 1})
	}
	if st, _ := m.State(2); st.Kind != KindLapsing || st.Idle != every/2+1 {
		t.Errorf("%+v", st)
	}
	if m.main(a).has(flagNews) {
		t.Error("the session's renewals are slow for ever")
	}
}

func (m *Manager) main(h Holder) *lease { return m.dir.get(h.Session) }

// A session with very many losses hears of them all, a bounded number at a time.
func TestManyLost(t *testing.T) {
	for _, n := range []int{tellLost, tellLost + 1, maxLost, maxLost + 500} {
		m, _ := fresh(t)
		a, b := client("a", 1), client("b", 2)
		m.Connect(a)
		open := make(map[Ref]bool)
		for i := range uint64(n) { //nolint:gosec // small
			m.Open(a, i, i)
			open[Ref{i, i}] = true
		}
		for i := range uint64(n) { //nolint:gosec // small
			m.Open(b, i, 1_000_000+i)
		}
		for v := uint64(1); ; v++ {
			set := make([]Ref, 0, len(open))
			for r := range open {
				set = append(set, r)
			}
			r := m.Renew(Renewal{Session: a.Session, Version: v, HasSet: true, Open: set})
			if len(r.Lost) > tellLost || len(r.Lost) == 0 && len(open) > 0 || v > 20 {
				t.Fatalf("%d files: %d lost told, %d open in version %d", n, len(r.Lost), len(open), v)
			}
			if more := len(open) > len(r.Lost); r.WantSet != more || more && r.Next > time.Second {
				t.Errorf("%d files, %d told of %d: wants a set %v, next in %v", n, len(r.Lost), len(open), r.WantSet, r.Next)
			}
			if len(open) == 0 {
				break
			}
			for _, l := range r.Lost {
				if !open[l.Ref] || l.By.Session != b.Session {
					t.Fatalf("%+v", l)
				}
				delete(open, l.Ref)
			}
		}
		sound(t, m)
		if m.main(a).s.lost != nil {
			t.Error("losses are kept after they were told")
		}
	}
}

// A set of very many files is taken with the lock released between; all of them
// that it lists no more lapse.
func TestLargeSet(t *testing.T) {
	const n = 5*portion + 7
	m, c := fresh(t)
	a := client("a", 1)
	var all []Ref
	for i := range uint64(n) {
		m.Open(a, i, i)
		all = append(all, Ref{i, i})
	}
	confirm(t, m, a, 1, all...)
	c.Advance(every + 1)
	confirm(t, m, a, 2, all[:portion]...)
	if st := figuresOf(m); st.Lapsing != n-portion || st.Leases != n-portion+1 {
		t.Errorf("%+v", st)
	}
	sound(t, m)
	confirm(t, m, a, 3, all...)
	if st := figuresOf(m); st.Lapsing != 0 || st.Leases != 1 || st.Files != n {
		t.Errorf("%+v", st)
	}
}

// An answer to a set that was given up half-way, because the session sent another one,
// confirms nothing: it asks for a set, and soon.
func TestSetGivenUp(t *testing.T) {
	m, _ := fresh(t)
	a := client("a", 1)
	var all []Ref
	for i := range uint64(64 * portion) {
		m.Open(a, i, i)
		all = append(all, Ref{i, i})
	}
	set := Renewal{Session: a.Session, Version: 1, HasSet: true, Open: all}
	for givenUp := false; !givenUp; {
		other := make(chan RenewResult)
		go func() { other <- m.Renew(set) }()
		for _, r := range []RenewResult{m.Renew(set), <-other} {
			if r.WantSet != (r.Next < every) {
				t.Fatalf("%+v", r)
			}
			givenUp = givenUp || r.WantSet
		}
	}
	confirm(t, m, a, 1, all...)
	sound(t, m)
}

// After an activation all is stamped again, and sets are asked for.
func TestRebuild(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	m.Connect(a)
	m.Connect(client("z", 9))
	m.Open(a, 1, 1)
	m.Open(b, 2, 2)
	confirm(t, m, a, 1, Ref{1, 1})
	stale := m.main(a)
	c.Advance(hard)
	m.Rebuild(seq(a, Ref{1, 1}, Ref{3, 3}), nil, nil)
	sound(t, m)
	if stale.renew(c.Mono(), flagEnding) {
		t.Error("a lease of the time before can be renewed")
	}
	if st := figuresOf(m); st.Files != 2 || st.Leases != 1 || st.Connected != 2 || st.Sessions != 2 {
		t.Errorf("%+v", st)
	}
	if st, _ := m.State(1); !st.Connected || st.Idle != 0 || st.Since != 0 {
		t.Errorf("%+v", st)
	}
	c.Advance(soft)
	wantVerdict(t, m, 1, client("c", 3), Held)
	c.Advance(1)
	wantVerdict(t, m, 1, client("c", 3), Takeable)
	if r := m.Renew(Renewal{Session: a.Session, Version: 1}); !r.WantSet {
		t.Errorf("%+v", r)
	}
	if r := m.Renew(Renewal{Session: b.Session, Version: 1}); !r.UnknownSession {
		t.Errorf("%+v", r)
	}
	m.Rebuild(seq(a), nil, nil)
	m.Disconnect(a.Session)
	m.Disconnect(sid(9))
	empty(t, m)
}

func seq(h Holder, refs ...Ref) iter.Seq2[Holder, Ref] {
	return func(yield func(Holder, Ref) bool) {
		for _, r := range refs {
			if !yield(h, r) {
				return
			}
		}
	}
}

// A lease with very many files ends a portion at a time, and stays ending.
func TestEndOfManyFiles(t *testing.T) {
	const n = 5*endFiles + 3
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	for i := range uint64(n) {
		m.Open(a, i, i)
	}
	c.Advance(hard + 1)
	m.Open(b, n, n) // alive
	seen := map[Ref]bool{}
	for calls := 0; len(seen) < n; calls++ {
		if calls > 10 || m.Sleep() > 0 {
			t.Fatalf("%d files after %d calls, sleep %v", len(seen), calls, m.Sleep())
		}
		ends := m.Expire(10)
		if len(ends) != 1 || len(ends[0].Files) > endFiles {
			t.Fatalf("%d leases, %d files", len(ends), len(ends[0].Files))
		}
		if d := m.Sleep(); d > endingSleep+1 {
			t.Errorf("sleeps %v with a lease handed out", d)
		}
		if m.Expire(10) != nil {
			t.Error("handed out twice")
		}
		for _, f := range ends[0].Files {
			if seen[f] {
				t.Fatalf("%v twice", f)
			}
			seen[f] = true
		}
		if m.Touch(a.Session, 0) {
			t.Error("renewed while ending")
		}
		endAll(m, ends)
		sound(t, m)
	}
	if st := figuresOf(m); st.Expired != 1 || st.Leases != 1 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
}

// What others do to the files of a lease while it is ending.
func TestWhileEnding(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	for i := range uint64(4) {
		m.Open(a, i, i)
	}
	c.Advance(hard + 1)
	e := m.Expire(1)[0]
	if st := figuresOf(m); st.Ending != 1 || st.OldestOverdue != 1 {
		t.Errorf("%+v", st)
	}
	wantVerdict(t, m, 0, b, Takeable)
	m.Open(b, 0, 10)
	m.Close(1, 1, "deleted", &b)
	m.Open(a, 2, 11) // its own session, from the beginning
	m.Close(0, 0, "expired", nil)
	m.Close(3, 3, "expired", nil)
	sound(t, m)
	m.NotEnded(e.LeaseID) // too late: nothing is left of it
	sound(t, m)
	if st := figuresOf(m); st.Ending != 0 || st.Leases != 2 || st.Files != 2 {
		t.Errorf("%+v", st)
	}

	// Put back as it was; the session has a new lease meanwhile.
	m.Open(a, 5, 12)
	c.Advance(hard + 1)
	m.Touch(b.Session, 0)
	e = m.Expire(1)[0]
	m.Open(a, 6, 13)
	m.NotEnded(e.LeaseID)
	sound(t, m)
	st, _ := m.State(5)
	if st.Kind != KindLapsing || st.Files != 2 || st.Ending || !st.HardExpired {
		t.Errorf("%+v", st)
	}
	if d := m.Sleep(); d > failedSleep+1 || d < failedSleep/2 {
		t.Errorf("sleeps %v after a failure", d)
	}
	if !m.Touch(a.Session, 5) {
		t.Error("a file that was put back is not touched")
	}
	wantFiles(t, m, 5, 2)
	if ends := m.Expire(5); ends != nil {
		t.Errorf("%+v is tried twice in one walk", ends)
	}
	ends := m.Expire(5)
	if len(ends) != 1 || !slices.Equal(ends[0].Files, []Ref{{2, 11}}) {
		t.Errorf("%+v", ends)
	}
	endAll(m, ends)
}

func TestList(t *testing.T) {
	m, c := fresh(t)
	const n = 3*portion + 10
	for i := uint64(1); i <= n; i++ {
		h := client("a", i)
		if i%1000 == 0 {
			h.Client = "rare"
		}
		m.Open(h, i, i)
	}
	// Pages while leases come and go.
	var ids []uint64
	for f := (Filter{Limit: 7}); ; {
		infos, next := m.List(f)
		for _, i := range infos {
			ids = append(ids, i.ID)
		}
		if next == 0 {
			break
		}
		f.After = next
		next -= FirstSessionLease - 1 // the file that the lease began with
		m.Close(next, next, ReasonClosed, nil)
		m.Open(client("new", n+next), n+next, n+next)
		if next > n/2 {
			f.Limit = 0
		}
		if next > n {
			break
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(ids) || len(ids) < n {
		t.Errorf("%d ids", len(ids))
	}
	infos, next := m.List(Filter{Client: "rare", MaxFiles: 5})
	if len(infos) != n/1000 || next != 0 || len(infos[0].Refs) != 1 || infos[0].Holder.Client != "rare" {
		t.Errorf("%d, %d, %+v", len(infos), next, infos)
	}
	id := sid(2000)
	if infos, _ = m.List(Filter{Match: func(h Holder) bool { return h.Session == id }}); len(infos) != 1 || infos[0].Holder.Session != id || infos[0].Refs != nil {
		t.Errorf("%+v", infos)
	}
	if infos, _ = m.List(Filter{LeaseID: infos[0].ID}); len(infos) != 1 {
		t.Errorf("%+v", infos)
	}
	if infos, _ = m.List(Filter{SoftExpired: true}); infos != nil {
		t.Errorf("%+v", infos)
	}
	c.Advance(soft + 1)
	if infos, next = m.List(Filter{SoftExpired: true, Limit: 5000}); len(infos) != maxPage || next == 0 {
		t.Errorf("%d, %d", len(infos), next)
	}
}

// A session is connected or not: streams are counted by the caller.
func TestReconnect(t *testing.T) {
	m, _ := fresh(t)
	a := client("a", 1)
	m.Connect(a)
	m.Open(a, 1, 1)
	m.Connect(a)
	m.Disconnect(a.Session)
	m.Disconnect(a.Session)
	if st, _ := m.State(1); st.Connected || m.Stats().Connected != 0 {
		t.Error("still connected")
	}
	m.Connect(a)
	if st, _ := m.State(1); !st.Connected {
		t.Error("not connected")
	}
}

func TestRenewAllocs(t *testing.T) {
	m, _ := fresh(t)
	a := client("a", 1)
	var all []Ref
	for i := range uint64(1000) {
		m.Open(a, i, i)
		all = append(all, Ref{i, i})
	}
	confirm(t, m, a, 1, all...)
	r := Renewal{Session: a.Session, Version: 1}
	if n := testing.AllocsPerRun(1000, func() { m.Renew(r) }); n != 0 {
		t.Errorf("%v allocations a renewal", n)
	}
	if n := testing.AllocsPerRun(1000, func() { m.Touch(a.Session, 1) }); n != 0 {
		t.Errorf("%v allocations a touch", n)
	}
	if st := figuresOf(m); st.Renewals < 1000 {
		t.Errorf("%+v", st)
	}
}
