package zk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/test/env/journaltest"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

func takeOver(t testing.TB, j *zk.Journal, term uint64) (zk.Handover, []journal.Record) {
	t.Helper()
	var got []journal.Record
	h, err := j.TakeOver(t.Context(), term, func(r journal.Record) error {
		got = append(got, r)
		return nil
	})
	if err != nil {
		t.Fatalf("TakeOver %d: %v", term, err)
	}
	return h, got
}

// held makes multis wait at the proxy until release.
func held(p *zkproxy.Proxy) (waiting <-chan struct{}, release func()) {
	arrived, free := make(chan struct{}, 100), make(chan struct{})
	p.Decide(func(op int32, _ []byte) zkproxy.Action {
		if op == zkproxy.OpMulti {
			arrived <- struct{}{}
			<-free
		}
		return zkproxy.Forward
	})
	return arrived, func() { close(free) }
}

// TestScenario42 has a writer held up between sending and arriving, as by
// SIGSTOP, while another begins a term and writes the same txids.
func TestScenario42HeldUpWriterIsFenced(t *testing.T) {
	path := root()
	p := proxy(t, ensemble.Server(0).Addr())
	var confirmed atomic.Int64
	a := open(t, []string{p.Addr()}, path, func(c *zk.Config) {
		c.Written = func() func() { return func() { confirmed.Add(1) } }
	})
	b := open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	add(t, a, 1, 5)
	durable(t, a, 5)
	before := confirmed.Load()
	if before == 0 {
		t.Fatal("no write was confirmed")
	}
	journaltest.Check(t, b, 1, 5)

	waiting, release := held(p)
	add(t, a, 6, 8)
	<-waiting // it has left the writer, and is not at ZooKeeper
	h, late := takeOver(t, b, 2)
	if h.Last != 5 || len(late) != 0 || h.PrevTerm != 1 || h.Released {
		t.Fatalf("hand-over %+v with %d late records", h, len(late))
	}
	other := func(txid uint64) journal.Record { return journal.Record{TxID: txid, Time: 1, Type: 99} }
	for txid := uint64(6); txid <= 7; txid++ {
		if err := b.Append(other(txid)); err != nil {
			t.Fatal(err)
		}
	}
	durable(t, b, 7)
	release()

	for _, err := range []error{
		a.WaitDurable(t.Context(), 6), a.Err(), a.Append(journaltest.Rec(9)),
		a.Beat(t.Context()), a.Purge(t.Context(), 3), a.Release(t.Context()), a.Close(),
	} {
		if !errors.Is(err, journal.ErrFenced) && !errors.Is(err, journal.ErrClosed) {
			t.Fatalf("a deposed writer got %v", err)
		}
	}
	<-a.Failed()
	if a.Durable() != 5 || confirmed.Load() != before {
		t.Fatalf("a deposed writer: durable %d, %d confirmed after %d", a.Durable(), confirmed.Load(), before)
	}
	c := open(t, ensemble.Addrs(), path)
	last, err := c.Replay(t.Context(), 1, func(r journal.Record) error {
		if r.TxID <= 5 {
			journaltest.Same(t, r, journaltest.Rec(r.TxID))
		} else {
			journaltest.Same(t, r, other(r.TxID))
		}
		return nil
	})
	if err != nil || last != 7 {
		t.Fatalf("Replay: %d, %v", last, err)
	}
}

// What a writer had sent before its term ended is found by the next one.
func TestTakeOverReadsWhatCameLast(t *testing.T) {
	path := root()
	a, b := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	journaltest.Check(t, b, 1, 0)
	add(t, a, 1, 500)
	durable(t, a, 500)
	if err := b.BeginTerm(t.Context(), 2); err == nil {
		t.Fatal("BeginTerm passed over records")
	}
	if _, err := b.TakeOver(t.Context(), 2, nil); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("the term of an attempt that failed was taken again: %v", err)
	}
	h, late := takeOver(t, b, 3)
	if h.Last != 500 || len(late) != 500 {
		t.Fatalf("hand-over %+v with %d late records", h, len(late))
	}
	for i, r := range late {
		journaltest.Same(t, r, journaltest.Rec(uint64(i+1)))
	}
	add(t, b, 501, 510)
	durable(t, b, 510)
	journaltest.Check(t, b, 1, 510)
}

// How long there was no record is known from the first one on: a journal's first batch
// has none.
func TestIdleIsSinceTheLastRecord(t *testing.T) {
	path := root()
	a, b := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	journaltest.Check(t, a, 1, 0)
	if h, _ := takeOver(t, a, 1); h.Idle >= 0 {
		t.Errorf("%s since the last record, and there is none", h.Idle)
	}
	add(t, a, 1, 1)
	durable(t, a, 1)
	journaltest.Check(t, b, 1, 1)
	if h, _ := takeOver(t, b, 2); h.Idle < 0 {
		t.Error("the time since the last record is not known")
	}
}

func TestReleaseNeedsNoWait(t *testing.T) {
	path := root()
	lease := func(c *zk.Config) { c.Lease, c.Holder = 3*time.Second, "nn 1:8020" }
	a, b := open(t, ensemble.Addrs(), path, lease), open(t, ensemble.Addrs(), path, lease)
	begin(t, a, 1, 0)
	add(t, a, 1, 3)
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.Durable() != 3 {
		t.Fatalf("released with %d durable", a.Durable())
	}
	if err := a.Append(journaltest.Rec(4)); !errors.Is(err, journal.ErrClosed) {
		t.Fatalf("Append after Release: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	journaltest.Check(t, b, 1, 3)
	if last, err := b.Term(t.Context()); last != (zk.Reign{Term: 1, Holder: "nn 1:8020", Released: true}) || err != nil {
		t.Fatalf("%+v, %v", last, err)
	}
	if h, _ := takeOver(t, b, 2); !h.Released || h.Lease != 3*time.Second {
		t.Fatalf("hand-over %+v after Release", h)
	}
	c := open(t, ensemble.Addrs(), path)
	journaltest.Check(t, c, 1, 3)
	if h, _ := takeOver(t, c, 3); h.Released {
		t.Fatalf("hand-over %+v without Release", h)
	}
}

// Two that were elected one after the other, and chose their terms at the same
// time: blocks are named after the term, so that only one may have it.
func TestNoTermTwice(t *testing.T) {
	path := root()
	a, b, c := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	journaltest.Check(t, b, 1, 0)
	journaltest.Check(t, c, 1, 0)
	takeOver(t, b, 2)
	add(t, b, 1, 3)
	durable(t, b, 3)
	none := func(r journal.Record) error {
		return fmt.Errorf("record %d was read for a term that is another's", r.TxID)
	}
	if _, err := c.TakeOver(t.Context(), 2, none); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("term 2 was begun twice: %v", err)
	}
	add(t, b, 4, 5)
	durable(t, b, 5)
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.TakeOver(t.Context(), 2, none); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("term 2 was begun again after its release: %v", err)
	}
	if h, late := takeOver(t, c, 3); h.PrevTerm != 2 || len(late) != 5 {
		t.Fatalf("hand-over %+v with %d records", h, len(late))
	}
}

// A reign that ended before its predecessor's lease did leaves its successor to
// wait for both.
func TestReleaseBeforeTheEndOfTheOneBefore(t *testing.T) {
	path := root()
	lease := func(d time.Duration) option { return func(c *zk.Config) { c.Lease = d } }
	a, b := open(t, ensemble.Addrs(), path, lease(time.Hour)), open(t, ensemble.Addrs(), path, lease(time.Second))
	begin(t, a, 1, 0)
	journaltest.Check(t, b, 1, 0)
	takeOver(t, b, 2)
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := open(t, ensemble.Addrs(), path, lease(time.Second))
	journaltest.Check(t, c, 1, 0)
	if h, _ := takeOver(t, c, 3); h.Released || h.Lease != time.Hour {
		t.Fatalf("hand-over %+v, while the first may answer for an hour", h)
	}
	c.Awaited()
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := open(t, ensemble.Addrs(), path, lease(time.Second))
	journaltest.Check(t, d, 1, 0)
	if h, _ := takeOver(t, d, 4); !h.Released {
		t.Fatalf("hand-over %+v after all was awaited", h)
	}
	e := open(t, ensemble.Addrs(), path)
	journaltest.Check(t, e, 1, 0)
	if h, _ := takeOver(t, e, 5); h.Released || h.Lease != time.Second {
		t.Fatalf("hand-over %+v of a reign that followed a release", h)
	}
}

// A standby that tails knows since when the predecessor has been silent.
func TestSeenIsOfTheLastWrite(t *testing.T) {
	path := root()
	a, b := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	journaltest.Check(t, b, 1, 0)
	tail := follow(t, b)
	add(t, a, 1, 10)
	durable(t, a, 10)
	tail.reach(10)
	if err := a.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	for b.SeenBeat() != 2+int32(a.Batches()) { //nolint:gosec // a few; the first was that of the term's beginning
		tail.step()
	}
	if txid, _ := b.Observed(); txid != 10 {
		t.Fatalf("the writer says that %d are durable", txid)
	}
	tail.stop()
	_, seen := b.Observed()
	if h, _ := takeOver(t, b, 2); h.Seen != seen {
		t.Fatalf("last write seen at %s, the hand-over says %s", seen, h.Seen)
	}
	c := open(t, ensemble.Addrs(), path)
	journaltest.Check(t, c, 1, 10)
	if h, _ := takeOver(t, c, 3); h.Seen <= seen {
		t.Fatalf("nothing was tailed, and the last write was seen at %s", h.Seen)
	}
}

// tailing is a Tail in a goroutine.
type tailing struct {
	t      testing.TB
	came   chan uint64
	cancel context.CancelFunc
	ended  chan error
	next   uint64
}

func follow(t testing.TB, j *zk.Journal) *tailing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &tailing{t: t, came: make(chan uint64, 100_000), cancel: cancel, ended: make(chan error, 1), next: j.Durable() + 1}
	go func() {
		f.ended <- j.Tail(ctx, func(r journal.Record) error {
			journaltest.Same(t, r, journaltest.Rec(r.TxID))
			f.came <- r.TxID
			return nil
		})
	}()
	t.Cleanup(f.stop)
	return f
}

// reach waits until record txid came, and all before it, once and in order.
func (f *tailing) reach(txid uint64) {
	f.t.Helper()
	for f.next <= txid {
		select {
		case got := <-f.came:
			if got != f.next {
				f.t.Fatalf("record %d came where %d was due", got, f.next)
			}
			f.next++
		case err := <-f.ended:
			f.t.Fatalf("Tail ended before record %d: %v", f.next, err)
		}
	}
}

// step gives Tail a moment, and fails the test if it has ended.
func (f *tailing) step() {
	f.t.Helper()
	select {
	case err := <-f.ended:
		f.t.Fatalf("Tail: %v", err)
	case <-time.After(time.Millisecond):
	}
}

func (f *tailing) stop() {
	f.t.Helper()
	if f.ended == nil {
		return
	}
	f.cancel()
	if err := <-f.ended; !errors.Is(err, context.Canceled) {
		f.t.Fatalf("Tail ended with %v", err)
	}
	f.ended = nil
}

// A reign that is released just as its successor begins is not another reign.
func TestReleaseDuringATakeOver(t *testing.T) {
	path := root()
	lease := func(d time.Duration) option { return func(c *zk.Config) { c.Lease = d } }
	p := proxy(t, ensemble.Server(0).Addr())
	a, b, c := open(t, ensemble.Addrs(), path, lease(time.Hour)), open(t, []string{p.Addr()}, path, lease(time.Second)), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	oneByOne(t, a, 1, 3)
	journaltest.Check(t, b, 1, 3)
	journaltest.Check(t, c, 1, 3)
	var once sync.Once
	p.Decide(func(op int32, _ []byte) zkproxy.Action {
		if op == zkproxy.OpMulti {
			once.Do(func() {
				if err := a.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		return zkproxy.Forward
	})
	if h, _ := takeOver(t, b, 2); !h.Released || h.PrevTerm != 1 {
		t.Errorf("hand-over %+v", h)
	}
	if h, _ := takeOver(t, c, 3); h.Lease != time.Second {
		t.Errorf("the successor would wait for %s, though the lease of an hour was released", h.Lease)
	}
}
