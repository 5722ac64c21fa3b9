package leasemanager

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soft  = time.Minute
	hard  = 20 * time.Minute
	every = soft / 2
)

func sid(n uint64) (id SessionID) {
	binary.LittleEndian.PutUint64(id[:], n)
	return id
}

// client is a process of a client of that name; n makes it another process.
func client(name string, n uint64) Holder {
	return Holder{User: "u", Client: name, Session: sid(n), Host: "h", PID: int64(n)} //nolint:gosec // small
}

func fresh(t testing.TB) (*Manager, *clock.Fake) {
	t.Helper()
	c := new(clock.Fake)
	m := New(Config{Clock: c, Soft: soft, Hard: hard})
	t.Cleanup(func() { sound(t, m) })
	return m, c
}

func sound(t rapid.TB, m *Manager) {
	t.Helper()
	for _, w := range m.Check() {
		t.Error(w)
	}
}

func wantFiles(t testing.TB, m *Manager, inode uint64, want int) {
	t.Helper()
	if st, ok := m.State(inode); !ok || st.Files != want {
		t.Errorf("inode %d: lease with %d files, open %v; want %d files", inode, st.Files, ok, want)
	}
}

func wantVerdict(t testing.TB, m *Manager, inode uint64, by Holder, want Verdict) {
	t.Helper()
	if got, st := m.MayTake(inode, by); got != want {
		t.Errorf("inode %d by %s/%d: %v, want %v (%+v)", inode, by.Client, by.PID, got, want, st)
	}
}

// empty checks that nothing at all is left.
func empty(t testing.TB, m *Manager) {
	t.Helper()
	sound(t, m)
	st := figuresOf(m)
	if st.Leases+st.Files+st.Sessions+st.Ending+st.Lapsing+st.Granted != 0 {
		t.Errorf("not empty: %+v", st)
	}
	if m.order.Len()+m.ending.Len()+m.deadlines.Len()+m.over.Len()+m.ids.Len()+len(m.inodes) != 0 {
		t.Error("an index is not empty")
	}
	m.grants.all(func(l *lease) { t.Errorf("granted lease %d is left", l.id) })
	m.dir.all(func(l *lease) { t.Errorf("session %x is left", l.session) })
}

// endAll closes and ends what Expire gave out, as the namenode does.
func endAll(m *Manager, ends []Ending) {
	for _, e := range ends {
		for _, f := range e.Files {
			m.Close(f.Inode, f.Epoch, "expired", nil)
		}
		m.Ended(e.LeaseID)
	}
}

func TestScenario01(t *testing.T) {
	m, _ := fresh(t)
	a := client("a", 1)
	for i := range uint64(4) {
		m.Open(a, i, 100+i)
	}
	wantFiles(t, m, 0, 4)
	for i := range uint64(4) {
		m.Close(i, 100+i, ReasonClosed, nil)
	}
	empty(t, m)

	// A connected session stays, without a lease; and goes with its stream.
	m.Connect(a)
	m.Open(a, 1, 200)
	m.Close(1, 200, ReasonClosed, &a)
	if st := figuresOf(m); st.Leases != 0 || st.Connected != 1 || m.order.Len() != 0 {
		t.Errorf("%+v", st)
	}
	m.Disconnect(a.Session)
	empty(t, m)
}

func TestScenario02(t *testing.T) {
	const n = 100_000
	c := &tickingClock{}
	m := New(Config{Clock: c, Soft: soft, Hard: hard})
	for i := range uint64(n) {
		m.Open(client("", i), i, i)
	}
	c.add(hard + time.Hour)
	c.tick.Store(int64(time.Microsecond)) // each look at the clock

	// The journal is slow: nothing is answered while the passes continue.
	tried := make(map[uint64]bool, n)
	var held []Ending
	passes := 0
	for {
		before := c.Mono()
		ends := m.Expire(n)
		if took := c.Mono() - before; took > DefaultSlice+10*time.Microsecond {
			t.Fatalf("a pass took %v", took)
		}
		if len(ends) == 0 {
			break
		}
		passes++
		for _, e := range ends {
			if tried[e.LeaseID] {
				t.Fatalf("lease %d was tried twice", e.LeaseID)
			}
			tried[e.LeaseID] = true
		}
		held = append(held, ends...)
	}
	if len(tried) != n || passes < 3 {
		t.Fatalf("%d leases in %d passes", len(tried), passes)
	}
	// Every third record fails, and is tried again by the next walk: alone.
	failed := 0
	for i, e := range held {
		if i%3 == 0 {
			m.NotEnded(e.LeaseID)
			failed++
			continue
		}
		endAll(m, []Ending{e})
	}
	sound(t, m)
	again := 0
	for ends := m.Expire(n); len(ends) > 0; ends = m.Expire(n) {
		again += len(ends)
		endAll(m, ends)
	}
	if again != failed {
		t.Errorf("%d tried again, %d failed", again, failed)
	}
	empty(t, m)
}

// tickingClock moves on by a tick each time it is read.
type tickingClock struct {
	clock.Fake
	now, tick atomic.Int64
}

func (c *tickingClock) Mono() time.Duration { return time.Duration(c.now.Add(c.tick.Load())) }
func (c *tickingClock) add(d time.Duration) { c.now.Add(int64(d)) }

func TestScenario03(t *testing.T) {
	m, _ := fresh(t)
	a, b := client("a", 1), client("b", 2)
	m.Open(a, 1, 10)
	m.Open(a, 1, 10)
	wantFiles(t, m, 1, 1)

	m.Close(2, 10, ReasonClosed, nil)
	m.Close(1, 9, ReasonClosed, nil)
	m.Disconnect(b.Session)
	m.Ended(77)
	m.NotEnded(77)
	if m.Touch(b.Session, 1) {
		t.Error("touched by a session that holds nothing")
	}
	if r := m.Renew(Renewal{Session: b.Session, Version: 1, HasSet: true, Open: []Ref{{1, 10}, {5, 5}}}); !r.UnknownSession || len(r.Unknown) != 2 {
		t.Errorf("%+v", r)
	}
	wantFiles(t, m, 1, 1)

	// Reassigned: one file, of the other.
	m.Open(a, 2, 11)
	m.Open(b, 1, 12)
	wantFiles(t, m, 1, 1)
	wantFiles(t, m, 2, 1)
	if st := figuresOf(m); st.Files != 2 || st.Leases != 2 {
		t.Errorf("%+v", st)
	}
	m.Open(a, 1, 11) // a late one
	if st, _ := m.State(1); st.Holder != b {
		t.Errorf("an old grant took the file: %+v", st)
	}
}

func TestScenario04(t *testing.T) {
	m, c := fresh(t)
	m.Open(client("a", 1), 1, 1)
	m.Open(client("b", 2), 2, 2)
	if m.order.Len() != 2 {
		t.Fatalf("%d leases of two with the same stamp", m.order.Len())
	}
	// Many, all stamped alike, one renewed at a time: none is lost.
	const n = 100_000
	for i := uint64(3); i <= n; i++ {
		m.Open(client("", i), i, i)
	}
	for i := uint64(1); i <= n; i += 7 {
		c.Advance(time.Millisecond)
		if !m.Touch(sid(i), i) {
			t.Fatalf("lease %d is lost", i)
		}
	}
	sound(t, m)
	c.Advance(hard + time.Millisecond - c.Mono()) // the first ones are due
	ended := map[Ref]bool{}
	for m.Sleep() == 0 {
		ends := m.Expire(1000)
		for _, e := range ends {
			for _, f := range e.Files {
				ended[f] = true
			}
		}
		endAll(m, ends)
	}
	for i := uint64(1); i <= n; i++ {
		if renewed := i%7 == 1; ended[Ref{i, i}] == renewed {
			t.Fatalf("lease %d: renewed %v, ended %v", i, renewed, !renewed)
		}
	}
}

func TestScenario07(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	m.Connect(a)
	m.Open(a, 1, 1)
	at := func(d time.Duration) {
		t.Helper()
		c.Advance(d - c.Mono())
		for _, wall := range []time.Duration{0, time.Hour, -2 * time.Hour} {
			c.ShiftWall(wall)
			st, _ := m.State(1)
			if st.SoftExpired != (d > soft) || st.HardExpired != (d > hard) || st.MissedRenewal != (d > every*3/2) {
				t.Errorf("at %v: %+v", d, st)
			}
			want := Held
			if d > soft {
				want = Takeable
			}
			wantVerdict(t, m, 1, b, want)
			if wantIn := max(soft+1-d, 0); st.TakeableIn != wantIn {
				t.Errorf("at %v: takeable in %v, want %v", d, st.TakeableIn, wantIn)
			}
		}
	}
	for _, limit := range []time.Duration{every * 3 / 2, soft, hard} {
		at(limit - 1)
		at(limit)
		if limit == hard {
			if d := m.Sleep(); d != 1 {
				t.Errorf("sleep %v at the limit", d)
			}
			if e := m.Expire(10); e != nil {
				t.Errorf("expired at the limit: %v", e)
			}
		}
		at(limit + 1)
	}
	ends := m.Expire(10)
	if len(ends) != 1 || !slices.Equal(ends[0].Files, []Ref{{1, 1}}) || ends[0].Holder != a {
		t.Errorf("%+v", ends)
	}
	endAll(m, ends)
}

// The manager's part: a session's own open file, and the files of a session
// that was there before under the same name.
func TestScenario13(t *testing.T) {
	m, c := fresh(t)
	old, young := client("a", 1), client("a", 2)
	other := client("a", 3)
	other.User = "v"
	unnamed, unnamed2 := client("", 4), client("", 5)
	m.Connect(old)
	m.Open(old, 1, 1)
	m.Open(old, 2, 2)
	m.Connect(unnamed)
	m.Open(unnamed, 3, 3)

	wantVerdict(t, m, 9, young, Free)
	wantVerdict(t, m, 1, old, SameSession)
	wantVerdict(t, m, 1, young, Held) // it lives
	m.Connect(young)                  // connecting takes nothing
	wantVerdict(t, m, 1, young, Held)

	m.Disconnect(old.Session)
	m.Disconnect(unnamed.Session)
	wantVerdict(t, m, 1, young, Takeable)
	wantVerdict(t, m, 1, other, Held)      // the name is the user's own
	wantVerdict(t, m, 3, unnamed2, Held)   // no name is no name
	wantVerdict(t, m, 1, old, SameSession) // also gone, it is its own
	m.Open(young, 1, 10)
	wantFiles(t, m, 2, 1) // that file only
	wantFiles(t, m, 1, 1)
	r := m.Renew(Renewal{Session: old.Session, Version: 1, HasSet: true, Open: []Ref{{1, 1}, {2, 2}}})
	if len(r.Lost) != 1 || r.Lost[0].Ref != (Ref{1, 1}) || r.Lost[0].Reason != ReasonTakenOver || *r.Lost[0].By != young {
		t.Errorf("%+v", r)
	}
	// The old process does not take back by name what the young one has.
	m.Disconnect(young.Session)
	wantVerdict(t, m, 1, old, Held)

	// Connected, but it missed a renewal.
	m.Connect(old)
	m.Connect(young)
	wantVerdict(t, m, 2, young, Held)
	c.Advance(every*3/2 + 1)
	wantVerdict(t, m, 2, young, Takeable)
	c.Advance(soft)
	wantVerdict(t, m, 2, old, SameSession) // also past its own soft limit
}

// The manager's part: the hard limit ends a lease, and its holder hears of it.
func TestScenario24(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	m.Connect(a)
	m.Open(a, 1, 1)
	c.Advance(hard + 1)
	ends := m.Expire(10)
	if len(ends) != 1 {
		t.Fatalf("%+v", ends)
	}
	// Not durable yet: neither renewed nor told.
	if r := m.Renew(Renewal{Session: a.Session}); !r.Ending || len(r.Lost) != 0 || r.Next > time.Second {
		t.Errorf("%+v", r)
	}
	if m.Touch(a.Session, 1) {
		t.Error("touched while ending")
	}
	endAll(m, ends)
	for range 2 { // until its set has it no more
		r := m.Renew(Renewal{Session: a.Session, Version: 1, HasSet: true, Open: []Ref{{1, 1}}})
		if r.Ending || len(r.Lost) != 1 || r.Lost[0].Reason != "expired" || r.Lost[0].By != nil {
			t.Errorf("%+v", r)
		}
	}
	if r := m.Renew(Renewal{Session: a.Session, Version: 2, HasSet: true}); len(r.Lost)+len(r.Unknown) != 0 || r.UnknownSession {
		t.Errorf("%+v", r)
	}
	if m.Touch(a.Session, 1) {
		t.Error("touched without files")
	}
}

func TestScenario30(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	m.Open(a, 1, 1)
	m.Suspend()
	c.Advance(3 * hard)
	if ends := m.Expire(10); ends != nil {
		t.Errorf("expired in safe mode: %v", ends)
	}
	wantVerdict(t, m, 1, b, Held)
	wantVerdict(t, m, 1, client("a", 3), Held)
	st, _ := m.State(1)
	if st.SoftExpired || st.HardExpired || st.TakeableIn <= soft || st.Idle != 3*hard {
		t.Errorf("%+v", st)
	}
	if s := figuresOf(m); s.WouldExpire != 1 || s.OldestOverdue != 0 || !s.Suspended {
		t.Errorf("%+v", s)
	}
	m.Resume()
	c.Advance(soft)
	wantVerdict(t, m, 1, b, Held)
	c.Advance(1)
	wantVerdict(t, m, 1, b, Takeable)
	c.Advance(hard - soft - 1)
	if ends := m.Expire(10); ends != nil {
		t.Errorf("expired at the limit: %v", ends)
	}
	c.Advance(1)
	if ends := m.Expire(10); len(ends) != 1 {
		t.Errorf("%v", ends)
	}
}

// The manager's part: past the soft limit and asked for by nobody, a renewal
// mends all; past the hard limit this file is lost and others can be opened.
func TestScenario48(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	m.Open(a, 1, 1)
	c.Advance(soft + time.Second)
	wantVerdict(t, m, 1, b, Takeable)
	m.Renew(Renewal{Session: a.Session, Version: 1, HasSet: true, Open: []Ref{{1, 1}}})
	wantVerdict(t, m, 1, b, Held)

	c.Advance(hard + 1)
	ends := m.Expire(10)
	m.Open(a, 2, 2) // while the other is ending
	if !m.Touch(a.Session, 2) || m.Touch(a.Session, 1) {
		t.Error("touch: want the new file only")
	}
	sound(t, m)
	if r := m.Renew(Renewal{Session: a.Session, Version: 2, HasSet: true, Open: []Ref{{1, 1}, {2, 2}}}); !r.Ending || len(r.Lost)+len(r.Unknown) != 0 {
		t.Errorf("%+v", r)
	}
	endAll(m, ends)
	r := m.Renew(Renewal{Session: a.Session, Version: 2})
	if len(r.Lost) != 1 || r.Lost[0].Ref != (Ref{1, 1}) || r.Ending {
		t.Errorf("%+v", r)
	}
	wantVerdict(t, m, 2, b, Held)
	wantVerdict(t, m, 1, b, Free)
}

func ExampleVerdict() {
	fmt.Println(Free, Takeable, SameSession, Held)
	// Output: free takeable same session held
}
