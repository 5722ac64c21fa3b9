package leasemanager

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

const ttl = 10 * time.Second

func wantTTL(t testing.TB, m *Manager, id uint64, want time.Duration) {
	t.Helper()
	if got, of, ok := m.TimeToLive(id); !ok || got != want || of != ttl {
		t.Errorf("lease %d: %v of %v remain, known %v; want %v", id, got, of, ok, want)
	}
}

func wantAlive(t testing.TB, m *Manager, id uint64, want bool) {
	t.Helper()
	got, ok := m.KeepAlive(id)
	if ok != want || ok && got != ttl || !ok && got != 0 {
		t.Errorf("lease %d: kept alive %v with %v, want %v", id, ok, got, want)
	}
}

// The manager's part: grant, TTL, keep-alive, revoke, list.
func TestScenario08(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	m.Grant(a, 7, ttl)
	wantTTL(t, m, 7, ttl)
	c.Advance(ttl - 1)
	wantTTL(t, m, 7, 1)
	m.Grant(client("b", 2), 7, time.Hour) // the same id: no change
	wantTTL(t, m, 7, 1)
	wantAlive(t, m, 7, true)
	wantTTL(t, m, 7, ttl)
	for _, id := range []uint64{0, FirstSessionLease, 8} {
		if id != 8 {
			m.Grant(a, id, ttl)
		}
		wantAlive(t, m, id, false)
		if _, _, ok := m.TimeToLive(id); ok {
			t.Errorf("lease %d is known", id)
		}
		m.Revoke(id)
		m.NotExpired(id)
	}

	infos, _ := m.List(Filter{LeaseID: 7, MaxFiles: 1})
	c.Advance(time.Second)
	infos2, _ := m.List(Filter{Client: "a"})
	if len(infos) != 1 || len(infos2) != 1 {
		t.Fatalf("%+v, %+v", infos, infos2)
	}
	i, j := infos[0], infos2[0]
	if i.ID != 7 || i.LeaseID != 7 || i.Kind != KindGranted || i.Holder != a || i.TTL != ttl || i.Remaining != ttl || j.Remaining != ttl-time.Second ||
		j.Idle != time.Second || j.Since != ttl-1+time.Second || j.SoftExpired || j.MissedRenewal || i.Refs != nil || i.TakeableIn != 0 {
		t.Errorf("%+v, %+v", i, j)
	}
	if infos, _ := m.List(Filter{Client: "b"}); infos != nil {
		t.Errorf("%+v", infos)
	}

	m.Revoke(7)
	wantAlive(t, m, 7, false)
	if st := figuresOf(m); st.Granted != 0 || st.GrantedExpired != 0 || st.KeepAlives == 0 {
		t.Errorf("%+v", st)
	}
	empty(t, m)
	m.Grant(a, 9, 0) // not below the least that there is, nor above the most
	m.Grant(a, 10, 1<<63-1)
	c.Advance(2)
	if ids := m.ExpireGranted(5); !slices.Equal(ids, []uint64{9}) {
		t.Error(ids)
	}
	if left, of, _ := m.TimeToLive(10); of != maxTTL || left != maxTTL-2 {
		t.Error(left, of)
	}
}

// Strictly later than the TTL is expired, whatever the time of day.
func TestScenario07Granted(t *testing.T) {
	m, c := fresh(t)
	m.Grant(client("a", 1), 1, ttl)
	c.Advance(ttl)
	c.ShiftWall(time.Hour)
	if ids := m.ExpireGranted(5); ids != nil || m.Sleep() != 1 {
		t.Errorf("%v, sleeps %v", ids, m.Sleep())
	}
	wantTTL(t, m, 1, 0)
	if infos, _ := m.List(Filter{SoftExpired: true}); infos != nil {
		t.Errorf("%+v", infos)
	}
	c.Advance(1)
	wantTTL(t, m, 1, 0)
	if infos, _ := m.List(Filter{SoftExpired: true}); len(infos) != 1 || !infos[0].HardExpired || m.Sleep() != 0 {
		t.Errorf("%+v", infos)
	}
	if ids := m.ExpireGranted(0); ids != nil {
		t.Error(ids)
	}
	if ids := m.ExpireGranted(5); !slices.Equal(ids, []uint64{1}) {
		t.Error(ids)
	}
	wantAlive(t, m, 1, false)
	wantTTL(t, m, 1, 0)
	c.Advance(time.Second)
	if st := figuresOf(m); st.Granted != 1 || st.GrantedExpired != 0 || st.GrantedOverdue != time.Second+1 || m.Sleep() > endingSleep+1 {
		t.Errorf("%+v, sleeps %v", st, m.Sleep())
	}

	// The record could not be written: alive, and tried again later.
	m.NotExpired(1)
	m.NotExpired(1)
	sound(t, m)
	if d := m.Sleep(); d > failedSleep+1 || d < failedSleep/2 {
		t.Errorf("sleeps %v after a failure", d)
	}
	if ids := m.ExpireGranted(5); !slices.Equal(ids, []uint64{1}) {
		t.Error(ids)
	}
	if ids := m.ExpireGranted(5); ids != nil {
		t.Errorf("%v twice", ids)
	}
	m.NotExpired(1)
	wantAlive(t, m, 1, true)
	if ids := m.ExpireGranted(5); ids != nil {
		t.Error(ids)
	}
	c.Advance(ttl + 1)
	m.ExpireGranted(5)
	m.Revoke(1)
	if st := figuresOf(m); st.GrantedExpired != 1 || st.GrantedOverdue != 0 {
		t.Errorf("%+v", st)
	}
	empty(t, m)
}

// A lease that does not end is tried once in a walk, also by who takes them one by one.
func TestNotExpiredIsTriedOnceAWalk(t *testing.T) {
	m, c := fresh(t)
	m.Grant(client("a", 1), 1, ttl)
	m.Grant(client("a", 1), 2, ttl)
	c.Advance(ttl + 1)
	for range 3 {
		var tried []uint64
		for ids := m.ExpireGranted(1); ids != nil && len(tried) < 10; ids = m.ExpireGranted(1) {
			tried = append(tried, ids...)
			m.NotExpired(ids[0])
		}
		if !slices.Equal(tried, []uint64{1, 2}) {
			t.Fatalf("in one walk %v are tried", tried)
		}
	}
}

// The journal is slow: each lease is tried once, a pass ends in its time, and
// those whose record failed are tried again.
func TestScenario02Granted(t *testing.T) {
	const n = 100_000
	c := new(tickingClock)
	m := New(Config{Clock: c})
	for i := uint64(1); i <= n; i++ {
		m.Grant(client("", i), i, ttl+time.Duration(i%100))
	}
	c.add(time.Hour)
	c.tick.Store(int64(time.Microsecond))
	tried := make(map[uint64]bool, n)
	var failed []uint64
	passes := 0
	for ; ; passes++ {
		before := c.Mono()
		ids := m.ExpireGranted(n)
		if took := c.Mono() - before; took > DefaultSlice+10*time.Microsecond {
			t.Fatalf("a pass took %v", took)
		}
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			if tried[id] {
				t.Fatalf("lease %d was tried twice", id)
			}
			tried[id] = true
			if id%3 == 0 {
				failed = append(failed, id)
				m.NotExpired(id)
			} else {
				m.Revoke(id)
			}
		}
	}
	if len(tried) != n || passes < 3 {
		t.Fatalf("%d leases in %d passes", len(tried), passes)
	}
	sound(t, m)
	var again []uint64
	for ids := m.ExpireGranted(n); len(ids) > 0; ids = m.ExpireGranted(n) {
		again = append(again, ids...)
	}
	if !slices.Equal(again, failed) { // in the order of deadlines both times
		t.Errorf("%d tried again, %d failed", len(again), len(failed))
	}
}

// The earliest deadline comes first, also of leases that were kept alive.
func TestExpireGrantedOrder(t *testing.T) {
	m, c := fresh(t)
	for i := uint64(1); i <= 100; i++ {
		m.Grant(Holder{}, i, ttl)
	}
	for i := uint64(100); i > 0; i-- { // the last one first
		c.Advance(time.Millisecond)
		wantAlive(t, m, i, true)
	}
	c.Advance(time.Hour)
	for want := uint64(100); want > 0; {
		ids := m.ExpireGranted(7)
		if len(ids) == 0 {
			if m.Sleep() > 0 {
				t.Fatalf("%d are left", want)
			}
		}
		for _, id := range ids {
			if id != want {
				t.Fatalf("lease %d, want %d", id, want)
			}
			want--
		}
	}
}

// In safe mode nothing expires and nothing runs out; TTLs count from its end.
func TestScenario30Granted(t *testing.T) {
	m, c := fresh(t)
	m.Grant(Holder{}, 1, ttl)
	c.Advance(ttl + 1)
	out := m.ExpireGranted(1)
	m.Grant(Holder{}, 2, ttl)
	c.Advance(time.Second)
	m.Suspend()
	c.Advance(time.Hour)
	wantTTL(t, m, 2, ttl)
	wantTTL(t, m, 1, 0) // its end had begun
	if ids := m.ExpireGranted(5); ids != nil || m.Sleep() < failedSleep/2 {
		t.Error(ids)
	}
	if infos, _ := m.List(Filter{SoftExpired: true}); infos != nil {
		t.Errorf("%+v", infos)
	}
	m.Revoke(out[0])
	wantAlive(t, m, 2, true)
	m.Resume()
	c.Advance(ttl)
	wantTTL(t, m, 2, 0)
	if ids := m.ExpireGranted(5); ids != nil {
		t.Error(ids)
	}
	c.Advance(1)
	if ids := m.ExpireGranted(5); len(ids) != 1 {
		t.Error(ids)
	}
}

// Keep-alive and expiry of one lease at the same instant.
func TestScenario05Granted(t *testing.T) {
	c := new(clock.Fake)
	m := New(Config{Clock: c})
	m.Grant(Holder{}, 1, ttl)
	const over = 1 << 62
	var round atomic.Uint64 // that the keep-alive is to run in
	var kept bool
	var done, stopped sync.WaitGroup
	stopped.Go(func() {
		for last, spins := uint64(0), 0; ; spins++ { // a channel would come too late
			switch now := round.Load(); {
			case now == over:
				return
			case now != last:
				_, kept = m.KeepAlive(1)
				last = now
				done.Done()
			case spins%64 == 63:
				runtime.Gosched()
			}
		}
	})
	defer stopped.Wait()
	defer round.Store(over)
	lived, ended := 0, 0
	for r := range raceRuns() {
		c.Advance(ttl + 1)
		done.Add(1)
		round.Store(uint64(r) + 1) //nolint:gosec // not negative
		for range r * 37 % 1500 {  // meet at different points
			round.Load()
		}
		ids := m.ExpireGranted(1)
		done.Wait()
		left, _, known := m.TimeToLive(1)
		switch {
		case !known || kept == (len(ids) == 1) || kept == (left == 0):
			t.Fatalf("round %d: kept alive %v, ended %v, %v remain", r, kept, ids, left)
		case kept:
			lived++
		case r%2 == 0:
			ended++
			m.NotExpired(1)
			wantAlive(t, m, 1, true)
		default:
			ended++
			m.Revoke(1)
			wantAlive(t, m, 1, false)
			m.Grant(Holder{}, 1, ttl)
		}
	}
	t.Logf("lived %d, ended %d", lived, ended)
}

// A keep-alive and a renewal wait for nothing that expiry, opening or granting
// holds, and allocate nothing.
func TestKeepAliveLocks(t *testing.T) {
	m, _ := fresh(t)
	a := client("a", 1)
	m.Grant(a, 1, ttl)
	m.Open(a, 1, 1)
	confirm(t, m, a, 1, Ref{1, 1})
	m.mu.Lock()
	wantAlive(t, m, 1, true)
	wantAlive(t, m, 2, false)
	m.Renew(Renewal{Session: a.Session, Version: 1})
	m.mu.Unlock()
	if n := testing.AllocsPerRun(1000, func() { m.KeepAlive(1) }); n != 0 {
		t.Errorf("%v allocations a keep-alive", n)
	}
}

// A keep-alive that has looked the lease up before it went does nothing.
func TestKeepAliveOfGone(t *testing.T) {
	m, _ := fresh(t)
	m.Grant(Holder{}, 1, ttl)
	m.Grant(Holder{}, 2, ttl)
	one, two := m.grants.get(grantKey(1)), m.grants.get(grantKey(2))
	m.Revoke(1)
	m.Rebuild(seq(Holder{}), nil, nil)
	for _, l := range []*lease{one, two} {
		if l.renew(m.now(), flagEnding) {
			t.Errorf("lease %d was kept alive", l.id)
		}
	}
	empty(t, m)
}

// Granted leases and those of sessions in one list, a page at a time.
func TestListBoth(t *testing.T) {
	m, c := fresh(t)
	const n = 25
	for i := uint64(1); i <= n; i++ {
		m.Open(client("s", i), i, i)
		m.Grant(client("g", i), 100-i, ttl)
	}
	var ids []uint64
	for f := (Filter{Limit: 10}); ; {
		infos, next := m.List(f)
		for _, i := range infos {
			ids = append(ids, i.ID)
			if granted := i.Kind == KindGranted; granted != (i.ID < FirstSessionLease) || granted != (i.Holder.Client == "g") || granted != (i.TTL == ttl) {
				t.Errorf("%+v", i)
			}
		}
		if f.After = next; next == 0 {
			break
		}
	}
	if len(ids) != 2*n || !slices.IsSorted(ids) || len(slices.Compact(ids)) != 2*n {
		t.Errorf("%d: %v", len(ids), ids)
	}
	for _, f := range []Filter{{LeaseID: ids[0]}, {LeaseID: ids[2*n-1]}} {
		if infos, _ := m.List(f); len(infos) != 1 || infos[0].ID != f.LeaseID {
			t.Errorf("%+v", infos)
		}
	}
	if infos, _ := m.List(Filter{Client: "g"}); len(infos) != n {
		t.Errorf("%d", len(infos))
	}
	c.Advance(ttl + 1)
	if infos, _ := m.List(Filter{SoftExpired: true}); len(infos) != n {
		t.Errorf("%d", len(infos))
	}
	if st := figuresOf(m); st.Leases != n || st.Granted != n || st.GrantedOverdue != 1 || st.WouldExpire != 0 {
		t.Errorf("%+v", st)
	}
}

// A session with a soft limit of its own.
func TestOwnLimit(t *testing.T) {
	m, c := fresh(t)
	a, b, long := client("a", 1), client("b", 2), client("l", 3)
	a.TTL, long.TTL = ttl, 2*hard
	m.Connect(a)
	m.Open(a, 1, 1)
	m.Open(a, 4, 4)
	m.Open(b, 2, 2)
	m.Open(long, 3, 3) // refused by the server; here it is the hard limit
	confirm(t, m, a, 1, Ref{1, 1}, Ref{4, 4})
	for _, x := range []struct {
		h    Holder
		soft time.Duration
	}{{a, ttl}, {b, soft}, {long, hard}, {client("z", 9), soft}} {
		r := m.Renew(Renewal{Session: x.h.Session, Version: 1})
		if r.Soft != x.soft || r.Hard != hard || r.Next > x.soft/2 || !r.WantSet && r.Next != x.soft/2 {
			t.Errorf("%s: %+v", x.h.Client, r)
		}
	}
	for _, d := range []time.Duration{ttl*3/4 - 1, ttl * 3 / 4, ttl*3/4 + 1, ttl, ttl + 1} {
		c.Advance(d - c.Mono())
		want := Held
		if d > ttl {
			want = Takeable
		}
		wantVerdict(t, m, 1, client("c", 7), want)
		wantVerdict(t, m, 2, client("c", 7), Held)
		st, _ := m.State(1)
		if st.MissedRenewal != (d > ttl*3/4) || st.SoftExpired != (d > ttl) || st.TakeableIn != max(ttl+1-d, 0) {
			t.Errorf("after %v: %+v", d, st)
		}
		if st, _ := m.State(3); st.MissedRenewal || st.SoftExpired || st.TakeableIn != hard+1-d {
			t.Errorf("after %v: %+v", d, st)
		}
	}
	// A file that it lists no more, or never listed, lapses by its own period,
	// under its own limit.
	confirm(t, m, a, 2, Ref{1, 1})
	m.Open(a, 6, 6)
	c.Advance(ttl/2 + 1)
	m.Renew(Renewal{Session: a.Session, Version: 2})
	for _, inode := range []uint64{4, 6} {
		if st, _ := m.State(inode); st.Kind != KindLapsing || st.SoftExpired != (inode == 4) {
			t.Errorf("%+v", st)
		}
	}
	m.Close(6, 6, ReasonClosed, nil)
	// The limit may change with the session's next open.
	a.TTL = 0
	m.Open(a, 5, 5)
	confirm(t, m, a, 3, Ref{1, 1}, Ref{5, 5})
	if r := m.Renew(Renewal{Session: a.Session, Version: 3}); r.Soft != soft || r.Next != every {
		t.Errorf("%+v", r)
	}
	// All of them end at the hard limit.
	c.Advance(hard)
	if ends := m.Expire(10); len(ends) != 3 { // not what was renewed just now
		t.Errorf("%+v", ends)
	}
	c.Advance(1)
	if ends := m.Expire(10); len(ends) != 1 {
		t.Errorf("%+v", ends)
	}
}
