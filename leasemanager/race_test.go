package leasemanager

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/test/env/size"
)

// raceRuns is how often scenario 5 is run: less often under the race detector, where each
// run is slow and a few thousand show what that looks for.
func raceRuns() int {
	if testing.Short() {
		return 4_000
	}
	return size.Of(20_000, 1_000_000)
}

// Renewal and expiry of one lease at the same instant.
func TestScenario05(t *testing.T) {
	c := new(clock.Fake)
	m := New(Config{Clock: c, Soft: soft, Hard: 2 * soft}) // a stamp holds 36 years
	a := client("a", 1)
	m.Connect(a)
	var done, stopped sync.WaitGroup
	var round atomic.Uint64 // that the renewal is to run in
	const over = 1 << 62
	var result RenewResult
	var touched bool
	stopped.Go(func() {
		for last, spins := uint64(0), 0; ; spins++ { // a channel would come too late
			switch now := round.Load(); {
			case now == over:
				return
			case now != last:
				result = m.Renew(Renewal{Session: a.Session, Version: 1})
				last = now
				done.Done()
			case spins%64 == 63:
				runtime.Gosched()
			}
		}
	})
	touches := make(chan struct{}, 1)
	stopped.Go(func() {
		for range touches {
			touched = m.Touch(a.Session, 1)
			done.Done()
		}
	})
	defer stopped.Wait()
	defer close(touches)
	defer round.Store(over)
	lived, ended := 0, 0
	m.Open(a, 1, 1)
	for epoch := uint64(1); epoch <= uint64(raceRuns()); epoch++ { //nolint:gosec // positive
		confirm(t, m, a, epoch, Ref{1, epoch})
		m.main(a).version.Store(1) // so that the same request is the fast path
		c.Advance(2*soft + 1)
		two := epoch%8 == 0
		done.Add(1)
		if two {
			done.Add(1)
			touches <- struct{}{}
		}
		round.Store(epoch)
		for range epoch * 37 % 1500 { // meet at different points
			round.Load()
		}
		ends := m.Expire(1)
		done.Wait()
		renewed := !result.Ending && len(result.Lost) == 0
		st, _ := m.State(1)
		switch {
		case len(ends) == 1 && !renewed && (!two || !touched):
			if !st.Ending {
				t.Fatalf("ended, and %+v", st)
			}
			ended++
			endAll(m, ends)
			if r := m.Renew(Renewal{Session: a.Session, Version: 1}); len(r.Lost) != 1 {
				t.Fatalf("ended, and told %+v", r)
			}
			m.Renew(Renewal{Session: a.Session, Version: epoch, HasSet: true})
			m.Open(a, 1, epoch+1)
		case len(ends) == 0 && renewed && (!two || touched):
			if st.Ending || st.Idle != 0 || st.Files != 1 {
				t.Fatalf("renewed, and %+v", st)
			}
			lived++
			m.Close(1, epoch, ReasonClosed, nil)
			m.Open(a, 1, epoch+1)
		default:
			t.Fatalf("both: ended %v, renewal %+v, touched %v of %v", ends, result, touched, two)
		}
	}
	t.Logf("lived %d, ended %d", lived, ended)
}

// A million leases, or daily a fiftieth of them, expire at once: no pass holds the lock
// beyond its budget (by the clock that it reads), others continue between passes, and
// what is late can be seen. BenchmarkExpireMillion has the times.
func TestScenario06(t *testing.T) {
	n := size.Of[uint64](20_000, 1_000_000)
	c := new(tickingClock)
	m := New(Config{Clock: c})
	for i := uint64(1); i <= n; i++ {
		m.Open(client("", i), i, i)
		m.Grant(Holder{}, i, ttl)
	}
	c.add(DefaultHard + time.Minute)
	if st := figuresOf(m); st.WouldExpire == 0 || st.OldestOverdue != time.Minute || st.GrantedOverdue != DefaultHard+time.Minute-ttl {
		t.Errorf("%+v", st)
	}
	const look = 25 * time.Microsecond // a thousand a pass
	c.tick.Store(int64(look))
	// pass calls one that ends leases, and does what others do meanwhile.
	overdue := time.Hour
	pass := func(i uint64, end func() int) (ended int) {
		before := c.Mono()
		ended = end()
		if took := c.Mono() - before; took > DefaultSlice+4*look {
			t.Fatalf("a pass took %v", took)
		}
		if ended == 0 || ended > 1000 {
			t.Fatalf("%d ended in a pass", ended)
		}
		h := client("", i)
		m.Open(h, i, i)
		if v, _ := m.MayTake(i, h); v != SameSession || !m.Touch(h.Session, i) {
			t.Fatalf("another's new file: %v", v)
		}
		m.Close(i, i, ReasonClosed, nil)
		m.Grant(Holder{}, i, ttl)
		wantAlive(t, m, i, true)
		m.Revoke(i)
		return ended
	}
	next := n
	for ended := uint64(0); ended < n; {
		next++
		ended += uint64(pass(next, func() int { //nolint:gosec // not negative
			ends := m.Expire(1_000_000)
			endAll(m, ends)
			return len(ends)
		}))
		st := figuresOf(m)
		if st.Expired != ended || (st.OldestOverdue > 0) != (ended < n) || st.OldestOverdue > overdue {
			t.Fatalf("%+v", st)
		}
	}
	for ended := uint64(0); ended < n; {
		next++
		ended += uint64(pass(next, func() int { //nolint:gosec // not negative
			ids := m.ExpireGranted(1_000_000)
			for _, id := range ids {
				m.Revoke(id)
			}
			return len(ids)
		}))
		if st := figuresOf(m); st.GrantedExpired != ended || (st.GrantedOverdue > 0) != (ended < n) {
			t.Fatalf("%+v", st)
		}
	}
	empty(t, m)
}

// All methods at once, then everything is checked.
func TestConcurrent(t *testing.T) {
	m, c := fresh(t)
	m.cfg.Jitter = func() float64 { return 0.5 }
	var epoch atomic.Uint64
	var wg sync.WaitGroup
	const actors, steps, files = 4, 3000, 64
	for a := range actors {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(a))) //nolint:gosec // a test
			h := client("c", uint64(a%3))              //nolint:gosec // small
			version := uint64(0)
			for range steps {
				inode := rnd.Uint64N(files)
				m.KeepAlive(inode)
				switch rnd.IntN(15) {
				case 0:
					m.Connect(h)
				case 1:
					m.Disconnect(h.Session)
				case 2, 3, 4:
					m.Open(h, inode, epoch.Add(1))
				case 5:
					if st, ok := m.State(inode); ok {
						m.Close(inode, st.Epoch, "deleted", nil)
					}
				case 6, 7:
					m.Touch(h.Session, inode)
				case 8:
					version++
					var set []Ref
					for i := range uint64(files) {
						if st, ok := m.State(i); ok && st.Holder.Session == h.Session && rnd.IntN(8) > 0 {
							set = append(set, Ref{i, st.Epoch})
						}
					}
					m.Renew(Renewal{Session: h.Session, Version: version, HasSet: true, Open: set})
				case 9:
					m.Renew(Renewal{Session: h.Session, Version: version})
				case 10:
					m.MayTake(inode, h)
					m.List(Filter{Limit: 3, MaxFiles: 2})
					m.Stats()
				case 11:
					c.Advance(time.Duration(rnd.Int64N(int64(soft))))
				case 12:
					m.Grant(h, inode, time.Duration(rnd.Int64N(int64(soft))))
				case 13:
					m.Revoke(inode)
				case 14:
					m.TimeToLive(inode)
					m.AgesJournalled(m.CheckAges(5))
				}
			}
		})
	}
	wg.Go(func() {
		for i := range steps {
			ends := m.Expire(3)
			ids := m.ExpireGranted(3)
			m.Sleep()
			if i%5 == 0 {
				for _, e := range ends {
					m.NotEnded(e.LeaseID)
				}
				for _, id := range ids {
					m.NotExpired(id)
				}
				m.Suspend()
				m.Resume()
				continue
			}
			endAll(m, ends)
			for _, id := range ids {
				m.Revoke(id)
			}
		}
	})
	wg.Wait()
	sound(t, m)
}

// Sets of many files of one session at once: the lock is released between, and
// the one that is overtaken gives up.
func TestConcurrentSets(t *testing.T) {
	m, c := fresh(t)
	a, b := client("a", 1), client("b", 2)
	const n = 4 * portion
	var all []Ref
	for i := range uint64(n) {
		m.Open(a, i, i)
		all = append(all, Ref{i, i})
	}
	var wg sync.WaitGroup
	var version atomic.Uint64
	for w := range 2 {
		wg.Go(func() {
			for range 20 {
				m.Renew(Renewal{Session: a.Session, Version: version.Add(1), HasSet: true, Open: all[w*portion:]})
				c.Advance(every / 3)
			}
		})
	}
	wg.Go(func() {
		for i := range uint64(200) {
			m.Open(b, i*7%n, n+i)
			m.Touch(a.Session, i)
		}
	})
	wg.Wait()
	sound(t, m)
	r := m.Renew(Renewal{Session: a.Session, Version: 1000, HasSet: true, Open: all})
	if len(r.Lost) != 200 || len(r.Unknown) != 0 {
		t.Errorf("%d lost, %d unknown", len(r.Lost), len(r.Unknown))
	}
}
