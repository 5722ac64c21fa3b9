package zk_test

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/journaltest"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// raw is a session of the test's own.
func raw(t testing.TB) *zkconn.Session {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: ensemble.Addrs(), SessionTimeout: 20 * env.ZooKeeperTick, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// oneByOne appends records as batches of their own.
func oneByOne(t testing.TB, j *zk.Journal, from, to uint64) {
	t.Helper()
	for txid := from; txid <= to; txid++ {
		add(t, j, txid, txid)
		durable(t, j, txid)
	}
}

// A Purge that is cut short leaves a journal that can be read, and the next one
// removes all that it left.
func TestPurgeIsFinishedByTheNext(t *testing.T) {
	path := root()
	p := proxy(t, ensemble.Server(0).Addr())
	j := open(t, []string{p.Addr()}, path, func(c *zk.Config) { c.SegmentBytes = 500 })
	begin(t, j, 1, 0)
	oneByOne(t, j, 1, 1100) // the first of the second folder is batch 1000
	kept := j.Kept()
	var multis atomic.Int64
	p.Decide(func(op int32, _ []byte) zkproxy.Action {
		if op == zkproxy.OpMulti {
			switch multis.Add(1) {
			case 2, 4:
				return zkproxy.CutAfter
			case 3, 5:
				return zkproxy.CutBefore
			}
		}
		return zkproxy.Forward
	})
	if err := j.Purge(t.Context(), 1050); err != nil {
		t.Fatal(err)
	}
	if multis.Load() < 6 {
		t.Fatalf("%d transactions, so not all cuts came", multis.Load())
	}
	if j.Kept() >= kept/2 {
		t.Fatalf("%d bytes kept of %d", j.Kept(), kept)
	}
	left := batchNumbers(t, path)
	if len(left) < 51 || len(left) > 100 || left[0] < 1000 {
		t.Fatalf("the batches %d are left", left)
	}
	oneByOne(t, j, 1101, 1105)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, ensemble.Addrs(), path)
	journaltest.Check(t, j, 1050, 1105)
	if got := j.Kept(); got <= 0 || got >= kept/2 {
		t.Fatalf("%d bytes kept after reopening, %d before the purge", got, kept)
	}
}

// batchNumbers lists the batches below a journal's path. The test fails if a
// folder has none, or more than 1,000.
func batchNumbers(t testing.TB, path string) (all []int) {
	t.Helper()
	s := raw(t)
	if err := s.Sync(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	list := func(path string) []string {
		names, err := s.Children(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 || len(names) > 1000 {
			t.Fatalf("%s has %d nodes", path, len(names))
		}
		slices.Sort(names)
		return names
	}
	for _, folder := range list(path + "/batches") {
		for _, name := range list(path + "/batches/" + folder) {
			n, err := strconv.Atoi(folder + name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	return all
}

// What ZooKeeper keeps is counted with its nodes: of small batches they take more
// of its memory than the bytes that are in them.
func TestKeptCountsNodes(t *testing.T) {
	const n = 150
	path := root()
	j := open(t, ensemble.Addrs(), path, func(c *zk.Config) { c.SegmentBytes = 500 })
	begin(t, j, 1, 0)
	oneByOne(t, j, 1, n)
	check := func(j *zk.Journal) {
		t.Helper()
		all := int64(len(batchNumbers(t, path)))
		bytes, _ := j.Size()
		if j.KeptNodes() != all || j.Kept() < bytes+364*all || j.Kept() > bytes+500*all {
			t.Fatalf("%d nodes are kept, of %d bytes; counted are %d, of %d", all, bytes, j.KeptNodes(), j.Kept())
		}
	}
	check(j)
	if err := j.Purge(t.Context(), n-20); err != nil {
		t.Fatal(err)
	}
	check(j)
	if j.KeptNodes() > 50 {
		t.Fatalf("%d nodes are left", j.KeptNodes())
	}
	other := open(t, ensemble.Addrs(), path)
	if _, err := other.Replay(t.Context(), n, func(journal.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	check(other)
}

// However many batches a journal has, a list of nodes is short: ZooKeeper's own
// tools, and ours, cannot read one of more than a megabyte.
func TestFoldersOfBatches(t *testing.T) {
	path := root()
	j := open(t, ensemble.Addrs(), path, func(c *zk.Config) { c.MaxNode = 4 << 10 })
	begin(t, j, 1, 0)
	const records = 2 // of some thousand batches each, as parts
	for txid := uint64(1); txid <= records; txid++ {
		if err := j.Append(journal.Record{TxID: txid, Body: make([]byte, journal.MaxBody)}); err != nil {
			t.Fatal(err)
		}
	}
	durable(t, j, records)
	all := batchNumbers(t, path)
	for i, n := range all {
		if n != i {
			t.Fatalf("batch %d where %d is due", n, i)
		}
	}
	if len(all) < 1000*records {
		t.Fatalf("%d batches", len(all))
	}
	if last, err := open(t, ensemble.Addrs(), path).Replay(t.Context(), 1, func(journal.Record) error { return nil }); err != nil || last != records {
		t.Fatalf("Replay: %d, %v", last, err)
	}
}

// A server keeps its last 500 transactions in memory, also when what they made is no
// longer there. Those of a journal of large records leave it room.
func TestLastTransactionsLeaveRoom(t *testing.T) {
	const size, records = 1 << 20, 128
	server := env.StartZooKeeperWith(t, env.ZooKeeperConfig{Servers: 1, Heap: 192})
	j := open(t, server.Addrs(), root(), func(c *zk.Config) { c.SegmentBytes, c.StallAfter = size, time.Minute })
	begin(t, j, 1, 0)
	body := make([]byte, size)
	for txid := uint64(1); txid <= records; txid++ {
		if err := j.Append(journal.Record{TxID: txid, Body: body}); err != nil {
			t.Fatal(err)
		}
		if txid%8 == 0 {
			durable(t, j, txid)
			if err := j.Purge(t.Context(), txid); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Nodes of 960 KiB were the default once.
func TestNodesOverTheDefaultAreRead(t *testing.T) {
	path := root()
	j := open(t, ensemble.Addrs(), path, func(c *zk.Config) { c.MaxNode = 960 << 10 })
	begin(t, j, 1, 0)
	body := bytes.Repeat([]byte("many bytes "), 90_000) // in two nodes
	if err := j.Append(journal.Record{TxID: 1, Body: body}); err != nil {
		t.Fatal(err)
	}
	durable(t, j, 1)
	var got []byte
	last, err := open(t, ensemble.Addrs(), path).Replay(t.Context(), 1, func(r journal.Record) error {
		got = bytes.Clone(r.Body)
		return nil
	})
	if err != nil || last != 1 || !bytes.Equal(got, body) {
		t.Fatalf("Replay: %d, %v, %d bytes, want those %d written", last, err, len(got), len(body))
	}
}

func TestDamageIsRefused(t *testing.T) {
	s := raw(t)
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, j *zk.Journal)
		node   uint64
		off    int64
		detail string
	}{
		{"flipped bit", func(t *testing.T, j *zk.Journal) {
			rewrite(t, s, j.BatchPath(5), func(b []byte) []byte { b[80] ^= 4; return b })
		}, 5, 68, "bits have changed"},
		{"short", func(t *testing.T, j *zk.Journal) {
			rewrite(t, s, j.BatchPath(10), func(b []byte) []byte { return b[:len(b)-1] })
		}, 10, 64, "bytes where"},
		{"no batch", func(t *testing.T, j *zk.Journal) {
			rewrite(t, s, j.BatchPath(7), func([]byte) []byte { return []byte("x") })
		}, 7, 1, "at least 72"},
		{"another batch", func(t *testing.T, j *zk.Journal) {
			var other []byte
			rewrite(t, s, j.BatchPath(6), func(b []byte) []byte { other = b; return b })
			rewrite(t, s, j.BatchPath(5), func([]byte) []byte { return other })
		}, 5, 16, "holds batch 6"},
		{"missing", func(t *testing.T, j *zk.Journal) {
			if err := s.Delete(t.Context(), j.BatchPath(5), -1); err != nil {
				t.Fatal(err)
			}
		}, 5, 0, "is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := root()
			j := open(t, ensemble.Addrs(), path)
			begin(t, j, 1, 0)
			oneByOne(t, j, 1, 10)
			c.damage(t, j)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, ensemble.Addrs(), path)
			_, err := j.Replay(t.Context(), 1, func(journal.Record) error { return nil })
			var d *journal.DamageError
			if !errors.As(err, &d) || !strings.HasSuffix(d.Segment, j.BatchPath(c.node)) || d.Offset != c.off ||
				!strings.Contains(d.Detail, c.detail) || d.Remedy == "" {
				t.Fatalf("Replay: %v", err)
			}
			if err := j.BeginTerm(t.Context(), 2); err == nil {
				t.Fatal("BeginTerm after damage")
			}
		})
	}
}

func rewrite(t testing.TB, s *zkconn.Session, path string, change func([]byte) []byte) {
	t.Helper()
	if err := s.Sync(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	data, _, err := s.Get(t.Context(), path)
	if err == nil {
		_, err = s.Set(t.Context(), path, change(data), -1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A batch that somebody removed under a writer ends it.
func TestMissingBatchEndsTheWriter(t *testing.T) {
	j := open(t, ensemble.Addrs(), root())
	begin(t, j, 1, 0)
	oneByOne(t, j, 1, 3)
	if err := raw(t).Delete(t.Context(), j.BatchPath(3), -1); err != nil {
		t.Fatal(err)
	}
	add(t, j, 4, 4)
	var d *journal.DamageError
	if err := j.WaitDurable(t.Context(), 4); !errors.Is(err, journal.ErrFailed) || !errors.As(err, &d) {
		t.Fatalf("WaitDurable: %v", err)
	}
	if err := j.Close(); !errors.Is(err, journal.ErrFailed) {
		t.Fatalf("Close: %v", err)
	}
}

func TestStandbyFallsBehindPurge(t *testing.T) {
	path := root()
	a, b := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	oneByOne(t, a, 1, 5)
	journaltest.Check(t, b, 1, 5)
	oneByOne(t, a, 6, 10)
	if err := a.Roll(); err != nil {
		t.Fatal(err)
	}
	oneByOne(t, a, 11, 12)
	if err := a.Purge(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	err := b.Tail(t.Context(), func(journal.Record) error { return nil })
	if !errors.Is(err, journal.ErrPurged) {
		t.Fatalf("Tail: %v", err)
	}
	journaltest.Check(t, b, 11, 12) // as from an image; and then it follows again
	tail := follow(t, b)
	oneByOne(t, a, 13, 20)
	tail.reach(20)
}

// TestStandbyHearsOfPurges: what a standby says is kept falls when the writer purges, though each
// word of the writer comes in time.
func TestStandbyHearsOfPurges(t *testing.T) {
	const n = 60
	path := root()
	clk := new(env.LeapingClock)
	a := open(t, ensemble.Addrs(), path, func(c *zk.Config) { c.SegmentBytes = 500 })
	b := open(t, ensemble.Addrs(), path, func(c *zk.Config) { c.Clock = clk })
	begin(t, a, 1, 0)
	oneByOne(t, a, 1, n)
	journaltest.Check(t, b, 1, n)
	tail := follow(t, b)
	if err := a.Purge(t.Context(), n-5); err != nil {
		t.Fatal(err)
	}
	clk.BeyondURLs()
	last := uint64(n)
	env.Eventually(t, "it has heard of it", func() bool { // while beats come, so that it is never late
		last++
		oneByOne(t, a, last, last)
		tail.reach(last)
		return b.KeptNodes() == a.KeptNodes() && b.Kept() == a.Kept()
	})
}

// Much is appended at once: batches stay below the limit.
func TestManyBytes(t *testing.T) {
	const records = 3000
	path := root()
	j := open(t, ensemble.Addrs(), path)
	begin(t, j, 1, 0)
	body := func(txid uint64) []byte { return []byte(strings.Repeat(string(rune('a'+txid%26)), 2000)) }
	for txid := uint64(1); txid <= records; txid++ {
		if err := j.Append(journal.Record{TxID: txid, Time: 5, Body: body(txid)}); err != nil {
			t.Fatal(err)
		}
	}
	durable(t, j, records)
	next := uint64(1)
	last, err := open(t, ensemble.Addrs(), path).Replay(t.Context(), 1, func(r journal.Record) error {
		journaltest.Same(t, r, journal.Record{TxID: next, Time: 5, Body: body(next)})
		next++
		return nil
	})
	if err != nil || last != records || next != records+1 {
		t.Fatalf("Replay: %d, %v", last, err)
	}
}

func TestUsersAreKeptApart(t *testing.T) {
	path := root()
	as := func(user, password string) option {
		return func(c *zk.Config) { c.ZooKeeper.User, c.ZooKeeper.Password = user, password }
	}
	a := open(t, ensemble.Addrs(), path, as("nn", "secret"))
	begin(t, a, 1, 0)
	oneByOne(t, a, 1, 3)
	for _, other := range []option{as("", ""), as("nn", "wrong")} {
		b, err := zk.Open(t.Context(), func() zk.Config {
			c := zk.Config{ZooKeeper: zkconn.Config{Servers: ensemble.Addrs(), Logger: quiet}, Path: path, Logger: quiet}
			other(&c)
			return c
		}())
		if err == nil {
			_, err = b.Replay(t.Context(), 1, func(journal.Record) error { return nil })
			if cerr := b.Close(); cerr != nil {
				t.Fatal(cerr)
			}
		}
		if !errors.Is(err, zookeeper.ErrNoAuth) || !strings.Contains(err.Error(), "user and password") {
			t.Fatalf("another user reads: %v", err)
		}
	}
	if err := raw(t).Delete(t.Context(), path+"/beat", -1); !errors.Is(err, zookeeper.ErrNoAuth) {
		t.Fatalf("another user deletes: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, ensemble.Addrs(), path, as("nn", "secret"))
	begin(t, b, 2, 3)
	oneByOne(t, b, 4, 5)
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []zk.Config{
		{Path: "leasefs", ZooKeeper: zkconn.Config{Servers: ensemble.Addrs()}},
		{Path: "/leasefs/", ZooKeeper: zkconn.Config{Servers: ensemble.Addrs()}},
		{Path: "/leasefs/x", MaxNode: 2 << 20, ZooKeeper: zkconn.Config{Servers: ensemble.Addrs()}},
		{Path: "/leasefs/x"},
	} {
		if _, err := zk.Open(t.Context(), c); err == nil {
			t.Errorf("Open took %+v", c)
		}
	}
}
