package zk_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/test/env/journaltest"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// losing is a journal that reads by a server which, once lose is called, has lost
// some batches, until it asks for one of them: then there is another server.
type losing struct {
	*zk.Journal
	bad, good *zkproxy.Proxy
	asked     chan struct{}
}

func openLosing(t *testing.T, path string) *losing {
	t.Helper()
	l := &losing{asked: make(chan struct{})}
	l.good, l.bad = proxy(t, ensemble.Server(1).Addr()), proxy(t, ensemble.Server(2).Addr())
	l.good.Down()
	l.Journal = open(t, []string{l.good.Addr(), l.bad.Addr()}, path)
	return l
}

func (l *losing) lose(from, n int) { l.loseAnd(from, n, zkproxy.Forward) }

// loseAnd is lose, and what becomes of the next transaction.
func (l *losing) loseAnd(from, n int, act zkproxy.Action) {
	var once, first sync.Once
	lost := map[string]bool{}
	for number := from; number < from+n; number++ {
		lost[l.BatchPath(uint64(number))] = true //nolint:gosec // small
	}
	l.bad.Decide(func(op int32, body []byte) zkproxy.Action {
		if op == zkproxy.OpMulti {
			does := zkproxy.Forward
			first.Do(func() { does = act })
			return does
		}
		if op != zkproxy.OpGetData && op != zkproxy.OpExists {
			return zkproxy.Forward
		}
		if !lost[zkproxy.PathOf(body)] {
			return zkproxy.Forward
		}
		once.Do(func() { l.good.Up(); close(l.asked) })
		return zkproxy.NoNode
	})
}

// check fails the test if the server was asked for nothing that it has lost.
func (l *losing) check(t *testing.T) {
	t.Helper()
	select {
	case <-l.asked:
	default:
		t.Fatal("nothing was asked of the server that has lost it")
	}
}

// A server that does not have what the others have is left: neither the end of
// what it has nor a hole in it is taken for the journal's.
func TestServerThatLostBatches(t *testing.T) {
	const last, kept = 200, 50
	path := root()
	a := open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	write := func(from, to uint64) { // a batch each
		for n := from; n <= to; n++ {
			add(t, a, n, n)
			durable(t, a, n)
		}
	}
	write(1, last)
	for n, what := range map[int]string{last: "the last", 1: "one", 5: "some"} {
		t.Run(what, func(t *testing.T) {
			b := openLosing(t, path)
			b.lose(kept, n)
			journaltest.Check(t, b, 1, last)
			b.check(t)
		})
	}
	t.Run("the oldest", func(t *testing.T) {
		b := openLosing(t, path)
		b.lose(0, 1)
		journaltest.Check(t, b, 1, last)
		b.check(t)
	})
	t.Run("while it follows", func(t *testing.T) {
		b := openLosing(t, path)
		journaltest.Check(t, b, 1, last)
		b.lose(last+2, 1)
		tail := follow(t, b.Journal)
		write(last+1, last+5)
		if err := a.Beat(t.Context()); err != nil { // as an idle writer does
			t.Fatal(err)
		}
		tail.reach(last + 5)
		tail.stop()
		b.check(t)
	})
	t.Run("at a take-over", func(t *testing.T) {
		b := openLosing(t, path)
		journaltest.Check(t, b, 1, last+5)
		b.lose(last+6, last)
		write(last+6, last+9)
		if h, late := takeOver(t, b.Journal, 2); h.Last != last+9 || len(late) != 4 {
			t.Fatalf("hand-over %+v with %d records", h, len(late))
		}
		b.check(t)
	})
}

// A writer that lost an answer does not take the word of one server for it that its
// batches are gone.
func TestWriterAtAServerThatLostBatches(t *testing.T) {
	path := root()
	l := openLosing(t, path)
	begin(t, l.Journal, 1, 0)
	oneByOne(t, l.Journal, 1, 5)
	l.loseAnd(5, 10, zkproxy.CutAfter)
	oneByOne(t, l.Journal, 6, 9)
	l.check(t)
	journaltest.Check(t, open(t, ensemble.Addrs(), path), 1, 9)
}

// Whoever misses a batch that is purged just when the ensemble is asked for it does not
// take the journal for damaged.
func TestPurgedWhileItIsMissed(t *testing.T) {
	for missed, what := range map[uint64]string{0: "the oldest", 3: "one between others"} {
		t.Run(what, func(t *testing.T) {
			path := root()
			writer := open(t, ensemble.Addrs(), path)
			begin(t, writer, 1, 0)
			oneByOne(t, writer, 1, 10)
			if err := writer.Roll(); err != nil {
				t.Fatal(err)
			}
			oneByOne(t, writer, 11, 12)
			way := proxy(t, ensemble.Server(1).Addr())
			reader := open(t, []string{way.Addr()}, path)
			var once sync.Once
			way.Decide(func(op int32, body []byte) zkproxy.Action {
				switch {
				case op == zkproxy.OpMulti:
					once.Do(func() {
						if err := writer.Purge(t.Context(), 12); err != nil {
							t.Error(err)
						}
					})
				case (op == zkproxy.OpGetData || op == zkproxy.OpExists) && zkproxy.PathOf(body) == reader.BatchPath(missed):
					return zkproxy.NoNode
				}
				return zkproxy.Forward
			})
			if _, err := reader.Replay(t.Context(), 1, func(journal.Record) error { return nil }); !errors.Is(err, journal.ErrPurged) {
				t.Errorf("Replay: %v", err)
			}
		})
	}
}
