package zk_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/journaltest"
	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

var (
	ensemble *env.ZooKeeper // of all tests that leave it as it is
	quiet    = slog.New(slog.DiscardHandler)
	roots    atomic.Int64
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.AroundTests(m, &ensemble)) }

// root is a path of a test's own.
func root() string { return fmt.Sprintf("/leasefs/test%d/journal", roots.Add(1)) }

type option = func(*zk.Config)

func open(t testing.TB, addrs []string, path string, options ...option) *zk.Journal {
	t.Helper()
	cfg := zk.Config{ZooKeeper: zkconn.Config{Servers: addrs, SessionTimeout: 20 * env.ZooKeeperTick, Logger: quiet}, Path: path, Logger: quiet}
	for _, o := range options {
		o(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j, err := zk.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func TestConformance(t *testing.T) {
	suite := func(more ...option) func(*testing.T) {
		return func(t *testing.T) {
			journaltest.Run(t, journaltest.Opener{New: func(*testing.T) func(*testing.T, journaltest.Options) journal.Journal {
				path := root()
				return func(t *testing.T, o journaltest.Options) journal.Journal {
					t.Helper()
					return open(t, ensemble.Addrs(), path, append(more, func(c *zk.Config) {
						c.SegmentBytes, c.MaxBacklog = o.SegmentBytes, o.MaxBacklog
					})...)
				}
			}})
		}
	}
	t.Run("default", suite())
	t.Run("small nodes, one under way", suite(func(c *zk.Config) { c.MaxNode, c.InFlight = size.Of(64<<10, 16<<10), 1 }))
}

// begin replays all and begins a term.
func begin(t testing.TB, j *zk.Journal, term, last uint64) {
	t.Helper()
	journaltest.Check(t, j, 1, last)
	if err := j.BeginTerm(t.Context(), term); err != nil {
		t.Fatalf("BeginTerm %d: %v", term, err)
	}
}

func add(t testing.TB, j *zk.Journal, from, to uint64) {
	t.Helper()
	for txid := from; txid <= to; txid++ {
		if err := j.Append(journaltest.Rec(txid)); err != nil {
			t.Fatalf("Append %d: %v", txid, err)
		}
	}
}

func durable(t testing.TB, j *zk.Journal, txid uint64) {
	t.Helper()
	if err := j.WaitDurable(t.Context(), txid); err != nil {
		t.Fatalf("WaitDurable %d: %v", txid, err)
	}
}

func proxy(t testing.TB, target string) *zkproxy.Proxy {
	t.Helper()
	p, err := zkproxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}
