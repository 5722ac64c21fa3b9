package zk_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/test/env/journaltest"
	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// The connection breaks at one batch, before it arrives or when it has been
// carried out: it is there once, and so are those around it.
func TestUnknownOutcome(t *testing.T) {
	for _, c := range []struct {
		name string
		act  zkproxy.Action
	}{{"lost request", zkproxy.CutBefore}, {"lost answer", zkproxy.CutAfter}} {
		t.Run(c.name, func(t *testing.T) {
			for at := int64(1); at <= 6; at++ {
				path := root()
				p := proxy(t, ensemble.Server(1).Addr())
				j := open(t, []string{p.Addr()}, path)
				begin(t, j, 1, 0)
				var seen atomic.Int64
				p.Decide(func(op int32, _ []byte) zkproxy.Action {
					if op == zkproxy.OpMulti && seen.Add(1) == at {
						return c.act
					}
					return zkproxy.Forward
				})
				for txid := uint64(1); txid <= 20; txid++ { // in many batches, two or three under way
					add(t, j, txid, txid)
					durable(t, j, max(txid, 3)-2)
				}
				durable(t, j, 20)
				if seen.Load() < at {
					t.Fatalf("%d batches were sent, nothing was cut", seen.Load())
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				journaltest.Check(t, open(t, ensemble.Addrs(), path), 1, 20)
			}
		})
	}
}

// pump appends from several goroutines, each waiting for its own records, until
// last.
type pump struct {
	t    testing.TB
	j    *zk.Journal
	mu   sync.Mutex
	next uint64
	last uint64
	wg   sync.WaitGroup
}

func startPump(t testing.TB, j *zk.Journal, workers int, first, last uint64) *pump {
	p := &pump{t: t, j: j, next: first, last: last}
	for range workers {
		p.wg.Go(func() {
			for p.one() {
			}
		})
	}
	return p
}

func (p *pump) one() bool {
	p.mu.Lock()
	txid := p.next
	if txid > p.last {
		p.mu.Unlock()
		return false
	}
	p.next++
	err := p.j.Append(journaltest.Rec(txid))
	p.mu.Unlock()
	if err == nil {
		err = p.j.WaitDurable(p.t.Context(), txid)
	}
	if err != nil || p.j.Durable() < txid {
		p.t.Errorf("record %d: %v, durable %d", txid, err, p.j.Durable())
		return false
	}
	return true
}

// Connections break at random, to all three servers, and sessions end, under
// load and with a standby that follows.
func TestScenario43BrokenConnections(t *testing.T) {
	last := size.Of[uint64](1000, 3000)
	path := root()
	var proxies []*zkproxy.Proxy
	var addrs []string
	var multis atomic.Int64
	rnd := rand.New(rand.NewPCG(43, 0))
	var mu sync.Mutex
	for i := range 3 {
		p := proxy(t, ensemble.Server(i).Addr())
		p.Decide(func(op int32, _ []byte) zkproxy.Action {
			if op == zkproxy.OpMulti {
				multis.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			switch rnd.IntN(60) {
			case 0:
				return zkproxy.CutBefore
			case 1, 2:
				return zkproxy.CutAfter
			}
			return zkproxy.Forward
		})
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	a, b := open(t, addrs, path), open(t, addrs, path)
	begin(t, a, 1, 0)
	journaltest.Check(t, b, 1, 0)
	tail := follow(t, b)
	load := startPump(t, a, 8, 1, last)
	for i := range 4 {
		durable(t, a, last/10+uint64(i)*last/5) //nolint:gosec // not negative
		if err := proxies[i%3].ExpireAll(); err != nil {
			t.Error(err)
		}
	}
	load.wg.Wait()
	tail.reach(last)
	tail.stop()
	for _, p := range proxies {
		p.Decide(nil)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	journaltest.Check(t, open(t, ensemble.Addrs(), path), 1, last)
	t.Logf("%d transactions for %d records", multis.Load(), last)
}

func TestStallEndsTheReign(t *testing.T) {
	p := proxy(t, ensemble.Server(2).Addr())
	j := open(t, []string{p.Addr()}, root(), func(c *zk.Config) { c.StallAfter = 200 * time.Millisecond })
	begin(t, j, 1, 0)
	p.Down()
	add(t, j, 1, 1) // what came later may find the journal ended
	if err := j.WaitDurable(t.Context(), 1); !errors.Is(err, journal.ErrFailed) {
		t.Fatalf("WaitDurable without ZooKeeper: %v", err)
	}
	<-j.Failed()
	if err := j.Close(); !errors.Is(err, journal.ErrFailed) {
		t.Fatalf("Close: %v", err)
	}
}

func TestCloseIsBounded(t *testing.T) {
	p := proxy(t, ensemble.Server(2).Addr())
	path := root()
	j := open(t, []string{p.Addr()}, path, func(c *zk.Config) { c.CloseTimeout = 100 * time.Millisecond })
	begin(t, j, 1, 0)
	p.Down()
	add(t, j, 1, 3)
	if err := j.Close(); !errors.Is(err, journal.ErrFailed) {
		t.Fatalf("Close without ZooKeeper: %v", err)
	}
	if err := j.WaitDurable(t.Context(), 1); !errors.Is(err, journal.ErrFailed) {
		t.Fatalf("WaitDurable after it: %v", err)
	}
	journaltest.Check(t, open(t, ensemble.Addrs(), path), 1, 0)
}

// A namenode that ends between two parts of a large record leaves no trace of it.
func TestAbandonedParts(t *testing.T) {
	path := root()
	p := proxy(t, ensemble.Server(0).Addr())
	a := open(t, []string{p.Addr()}, path, func(c *zk.Config) { c.MaxNode, c.CloseTimeout = 4<<10, 50*time.Millisecond })
	b, c := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	add(t, a, 1, 2)
	durable(t, a, 2)
	journaltest.Check(t, b, 1, 2)
	journaltest.Check(t, c, 1, 2)
	tail := follow(t, c)
	var parts atomic.Int64
	gone := make(chan struct{})
	p.Decide(func(op int32, _ []byte) zkproxy.Action {
		if op != zkproxy.OpMulti || parts.Add(1) < 4 {
			return zkproxy.Forward
		}
		if parts.Load() == 4 {
			close(gone)
		}
		return zkproxy.CutBefore
	})
	if err := a.Append(journal.Record{TxID: 3, Type: 1, Body: make([]byte, 20<<10)}); err != nil {
		t.Fatal(err)
	}
	<-gone
	p.Down()
	if err := a.Close(); !errors.Is(err, journal.ErrFailed) {
		t.Fatalf("Close: %v", err)
	}
	if h, late := takeOver(t, b, 2); h.Last != 2 || len(late) != 0 {
		t.Fatalf("hand-over %+v, %d late records", h, len(late))
	}
	add(t, b, 3, 40)
	durable(t, b, 40)
	tail.reach(40)
	journaltest.Check(t, open(t, ensemble.Addrs(), path), 1, 40)
	journaltest.Check(t, open(t, ensemble.Addrs(), path), 3, 40)
}
