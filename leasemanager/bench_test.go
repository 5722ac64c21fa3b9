package leasemanager

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/btree"

	"github.com/leasefs/leasefs/internal/clock"
)

var counts = []int{1_000, 10_000, 100_000, 1_000_000}

func randomIDs(n int) []SessionID {
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a benchmark
	ids := make([]SessionID, n)
	for i := range ids {
		binary.LittleEndian.PutUint64(ids[i][:8], rnd.Uint64())
		binary.LittleEndian.PutUint64(ids[i][8:], rnd.Uint64())
	}
	return ids
}

// filled returns a manager on the machine's clock with a lease for each id, all
// sets confirmed.
func filled(b *testing.B, ids []SessionID, files int) *Manager {
	b.Helper()
	m := New(Config{Clock: clock.System{}, Soft: time.Hour, Hard: time.Hour, Jitter: func() float64 { return 0.5 }})
	set := make([]Ref, files)
	inode := uint64(0)
	for i := range ids {
		h := Holder{User: "u", Client: "c", Session: ids[i], Host: "h"}
		for j := range set {
			inode++
			set[j] = Ref{inode, inode}
			m.Open(h, inode, inode)
		}
		m.Renew(Renewal{Session: ids[i], Version: 1, HasSet: true, Open: set})
	}
	runtime.GC() // so that it does not run into what is measured
	return m
}

// BenchmarkRenew is a renewal with an unchanged set, of sessions in random
// order: one at a time, and from all processors.
func BenchmarkRenew(b *testing.B) {
	type size struct{ leases, files int }
	sizes := make([]size, 0, len(counts)+1)
	for _, n := range counts {
		sizes = append(sizes, size{n, 1})
	}
	sizes = append(sizes, size{1_000, 1_000})
	for _, sz := range sizes {
		ids := randomIDs(sz.leases)
		m := filled(b, ids, sz.files)
		b.Run(fmt.Sprintf("leases=%d/files=%d", sz.leases, sz.files), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i == len(ids) {
					i = 0
				}
				if r := m.Renew(Renewal{Session: ids[i], Version: 1}); r.WantSet {
					b.Fatal(r)
				}
			}
		})
		b.Run(fmt.Sprintf("leases=%d/files=%d/parallel", sz.leases, sz.files), func(b *testing.B) {
			b.ReportAllocs()
			var worker atomic.Uint64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(worker.Add(1)) * len(ids) / 7; pb.Next(); i++ { //nolint:gosec // small
					m.Renew(Renewal{Session: ids[i%len(ids)], Version: 1})
				}
			})
		})
	}
}

// BenchmarkRenewDeleteInsert is what BenchmarkRenew is measured against: the
// order kept exact, by a deletion and an insertion at each renewal.
func BenchmarkRenewDeleteInsert(b *testing.B) {
	type exact struct {
		id    uint64
		stamp time.Duration
	}
	for _, n := range counts {
		ids := randomIDs(n)
		var mu sync.Mutex
		leases := make(map[SessionID]*exact, n)
		order := btree.NewG(32, func(a, b exact) bool {
			return a.stamp < b.stamp || a.stamp == b.stamp && a.id < b.id
		})
		for i, id := range ids {
			l := &exact{uint64(i), time.Duration(i)} //nolint:gosec // small
			leases[id] = l
			order.ReplaceOrInsert(*l)
		}
		c := clock.System{}
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i == n {
					i = 0
				}
				mu.Lock()
				l := leases[ids[i]]
				order.Delete(*l)
				l.stamp = c.Mono()
				order.ReplaceOrInsert(*l)
				mu.Unlock()
			}
		})
	}
}

// BenchmarkTouch is what each record of a writer costs here.
func BenchmarkTouch(b *testing.B) {
	ids := randomIDs(100_000)
	m := filled(b, ids, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i == len(ids) {
			i = 0
		}
		m.Touch(ids[i], 0)
	}
}

// BenchmarkOpenClose is a short-lived file of a connected session that has no
// other file, and of one that has.
func BenchmarkOpenClose(b *testing.B) {
	for _, others := range []int{0, 1} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			m := filled(b, randomIDs(100_000), 1)
			h := Holder{User: "u", Client: "c", Session: sid(1)}
			m.Connect(h)
			for i := range others {
				m.Open(h, 1<<40+uint64(i), 1) //nolint:gosec // small
			}
			b.ReportAllocs()
			for i := uint64(1 << 41); b.Loop(); i++ {
				m.Open(h, i, i)
				m.Close(i, i, ReasonClosed, nil)
			}
		})
	}
}

// BenchmarkKeepAlive is a keep-alive of granted leases in random order: one at a
// time, and from all processors.
func BenchmarkKeepAlive(b *testing.B) {
	for _, n := range counts {
		m := New(Config{Clock: clock.System{}})
		for i := range uint64(n) { //nolint:gosec // small
			m.Grant(Holder{User: "u", Client: "c"}, i+1, time.Hour)
		}
		ids := rand.New(rand.NewPCG(1, 2)).Perm(n) //nolint:gosec // a benchmark
		runtime.GC()
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i == n {
					i = 0
				}
				if _, ok := m.KeepAlive(uint64(ids[i] + 1)); !ok { //nolint:gosec // small
					b.Fatal("not known")
				}
			}
		})
		b.Run(fmt.Sprintf("leases=%d/parallel", n), func(b *testing.B) {
			b.ReportAllocs()
			var worker atomic.Uint64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(worker.Add(1)) * n / 7; pb.Next(); i++ { //nolint:gosec // small
					m.KeepAlive(uint64(ids[i%n] + 1)) //nolint:gosec // small
				}
			})
		})
	}
}

// BenchmarkExpireMillion ends 10^6 leases, a thousand a pass: what a lease
// costs with its record's Close or Revoke, and how long a pass holds the lock.
func BenchmarkExpireMillion(b *testing.B) {
	const n = 1_000_000
	ids := randomIDs(n)
	c := new(clock.Fake)
	b.Run("sessions", func(b *testing.B) {
		expireMillion(b, c, n, func(m *Manager) {
			for i, id := range ids {
				m.Open(Holder{Session: id}, uint64(i), 1) //nolint:gosec // small
			}
		}, func(m *Manager, pass func(func())) (ended int) {
			var ends []Ending
			pass(func() { ends = m.Expire(1000) })
			endAll(m, ends)
			return len(ends)
		})
	})
	b.Run("granted", func(b *testing.B) {
		expireMillion(b, c, n, func(m *Manager) {
			for i := range uint64(n) {
				m.Grant(Holder{}, i+1, time.Minute)
			}
		}, func(m *Manager, pass func(func())) (ended int) {
			var ids []uint64
			pass(func() { ids = m.ExpireGranted(1000) })
			for _, id := range ids {
				m.Revoke(id)
			}
			return len(ids)
		})
	})
}

func expireMillion(b *testing.B, c *clock.Fake, n int, fill func(*Manager), end func(*Manager, func(func())) int) {
	var passes []time.Duration
	pass := func(f func()) {
		begin := time.Now()
		f()
		passes = append(passes, time.Since(begin))
	}
	for b.Loop() {
		b.StopTimer()
		m := New(Config{Clock: c})
		fill(m)
		c.Advance(time.Hour)
		runtime.GC()
		b.StartTimer()
		for ended := 0; ended < n; {
			ended += end(m, pass)
		}
	}
	slices.Sort(passes)
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "leases/s")
	b.ReportMetric(float64(passes[len(passes)*99/100].Microseconds()), "p99-pass-µs")
	b.ReportMetric(float64(passes[len(passes)-1].Microseconds()), "worst-pass-µs")
}

// BenchmarkCheckAges is the look at the ages of 10^6 leases all of which are
// renewed: once in 1.5 renewal periods.
func BenchmarkCheckAges(b *testing.B) {
	const n = 1_000_000
	ids := randomIDs(n)
	c := new(clock.Fake)
	m := New(Config{Clock: c})
	for i, id := range ids {
		m.Open(Holder{Session: id}, uint64(i), 1) //nolint:gosec // small
	}
	for b.Loop() {
		b.StopTimer()
		c.Advance(DefaultSoft*3/4 + 1)
		for _, id := range ids {
			m.Touch(id, 0)
		}
		b.StartTimer()
		if ages := m.CheckAges(1000); ages != nil {
			b.Fatal(len(ages))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/lease")
}

// BenchmarkLastAges is the end of a reign with 10^6 silent leases, and how long
// somebody else waits for the lock meanwhile.
func BenchmarkLastAges(b *testing.B) {
	const n = 1_000_000
	c := new(clock.Fake)
	m := New(Config{Clock: c})
	for i, id := range randomIDs(n) {
		m.Open(Holder{Session: id}, uint64(i), 1) //nolint:gosec // small
	}
	c.Advance(time.Hour)
	var worst time.Duration
	for b.Loop() {
		over := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				begin := time.Now()
				m.State(1)
				worst = max(worst, time.Since(begin))
			}
		})
		found := 0
		for ages := range m.LastAges() {
			found += len(ages)
		}
		close(over)
		wg.Wait()
		if found != n {
			b.Fatal(found)
		}
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-wait-µs")
}

// BenchmarkWalkRenewed is the monitor's pass over 10^6 leases all of which were
// renewed since: what the lazy order costs, once a lease and hard limit.
func BenchmarkWalkRenewed(b *testing.B) {
	const n = 1_000_000
	ids := randomIDs(n)
	c := new(clock.Fake)
	m := New(Config{Clock: c})
	for i, id := range ids {
		m.Open(Holder{Session: id}, uint64(i), 1) //nolint:gosec // small
	}
	for b.Loop() {
		b.StopTimer()
		c.Advance(DefaultHard + 1)
		for _, id := range ids {
			m.Touch(id, 0)
		}
		b.StartTimer()
		for m.Sleep() == 0 {
			if m.Expire(1000) != nil {
				b.Fatal("expired")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/lease")
}
