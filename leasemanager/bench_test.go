package leasemanager

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/btree"

	"github.com/leasefs/leasefs/clock"
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

// BenchmarkTouch is what each call of a writer costs here.
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

// BenchmarkExpire ends 10^6 leases, a thousand a pass.
func BenchmarkExpire(b *testing.B) {
	const n = 1_000_000
	ids := randomIDs(n)
	for b.Loop() {
		b.StopTimer()
		c := new(clock.Fake)
		m := New(Config{Clock: c})
		for i, id := range ids {
			m.Open(Holder{Session: id}, uint64(i), 1) //nolint:gosec // small
		}
		c.Advance(time.Hour)
		worst := time.Duration(0)
		b.StartTimer()
		for ended := 0; ended < n; {
			begin := time.Now()
			ends := m.Expire(1000)
			worst = max(worst, time.Since(begin))
			ended += len(ends)
			endAll(m, ends)
		}
		b.ReportMetric(float64(worst.Microseconds()), "worst-pass-µs")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/lease")
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
