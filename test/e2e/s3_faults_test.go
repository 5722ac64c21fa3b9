package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	nn "github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// The tests in this file run namenodes in this process, since what becomes of
// an orphan takes longer than a URL lives: their clocks jump.

// bad is a namespace behind a bad line to its store.
type bad struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of the one test
	server *s3env.Server
	proxy  *s3env.Proxy
	clock  *env.LeapingClock
	n      *env.Namenode
	fs     *client.FS
}

const badBlock = 128 << 10 // bytes of a block

// badConfig makes files of few bytes have many blocks.
func badConfig(url string, c *env.LeapingClock) func(*nn.Config) {
	return func(cfg *nn.Config) {
		cfg.Blocks, cfg.Clock = url, c
		cfg.BlockSize, cfg.MaxTail, cfg.SealAfter = badBlock, 64<<10, 100*time.Millisecond
		cfg.CollectEvery, cfg.SweepEvery = time.Hour, 24*time.Hour // by hand
	}
}

// TestS3Faults: show 6 of several machines. No file ever changes, and no orphan
// survives collection.
func TestS3Faults(t *testing.T) {
	t.Parallel()
	for _, name := range s3env.ServersUnder() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := s3env.Start(t, name)
			server.SetEnv(t)
			for _, c := range []struct {
				name string
				test func(*bad)
			}{
				{"LatePutBeforeCommit", latePutBeforeCommit},
				{"LatePutAfterCollection", latePutAfterCollection},
				{"DuplicateWithOtherBytes", duplicateWithOtherBytes},
				{"LostReply", lostReply},
				{"Storms", storms},
				{"Everything", everything},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					b := &bad{T: t, ctx: deadline(t, 3*time.Minute), server: server, proxy: server.Proxy(t), clock: &env.LeapingClock{}}
					b.n = env.Start(t, badConfig(b.proxy.URL(prefixOf(t)), b.clock))
					b.connect()
					c.test(b)
					b.noOrphans()
				})
			}
		})
	}
}

// TestS3LatePutAfterTakeOver needs ZooKeeper, too.
func TestS3LatePutAfterTakeOver(t *testing.T) {
	t.Parallel()
	for _, name := range s3env.ServersUnder() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zk := env.LendZooKeeper(t)
			server := s3env.Start(t, name)
			server.SetEnv(t)
			latePutAfterTakeOver(t, server, zk.Addrs())
		})
	}
}

func (b *bad) connect() {
	b.Helper()
	b.fs = b.n.Client(b.T, func(c *client.Config) { c.Clock, c.Timeout = nil, time.Minute })
}

func (b *bad) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// content is what a file is to have: blocks, and a tail.
func content(seed byte, n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

func (b *bad) write(path string, data []byte) {
	b.Helper()
	b.must(b.fs.WriteFile(b.ctx, path, data))
}

func (b *bad) want(path string, data []byte) {
	b.Helper()
	got, err := b.fs.ReadFile(b.ctx, path)
	if err != nil || !bytes.Equal(got, data) {
		b.Fatalf("%s: %d bytes (%x), %v; want %d (%x)", path, len(got), sha256.Sum256(got), err, len(data), sha256.Sum256(data))
	}
}

// inStore is how many blocks the store has.
func (b *bad) inStore() int { return len(stored(b.T, b.server, "/blocks/")) }

// collect sweeps the store and deletes what may go. The line is good again.
func (b *bad) collect() client.CollectResult {
	b.Helper()
	b.proxy.Set(nil)
	var sum client.CollectResult
	for range 2 { // what is found, then what was found
		b.clock.BeyondURLs()
		r, err := b.fs.Admin().Collect(b.ctx)
		b.must(err)
		sum.Orphans += r.Orphans
		sum.Deleted += r.Deleted
	}
	return sum
}

// noOrphans collects, and wants the store to have what files have.
func (b *bad) noOrphans() {
	b.Helper()
	r := b.collect()
	s, err := b.fs.Status(b.ctx)
	b.must(err)
	if got := b.inStore(); got != int(s[0].Blocks) || s[0].GarbageBlocks != 0 { //nolint:gosec // few
		b.Errorf("%d blocks in the store, files have %d; %d wait; collected %+v", got, s[0].Blocks, s[0].GarbageBlocks, r)
	}
	b.Logf("%d blocks of files; the last collection found %d orphans and deleted %d blocks", s[0].Blocks, r.Orphans, r.Deleted)
	sum, err := b.fs.Admin().Fsck(b.ctx, "", true, func(p client.FsckProblem) error {
		b.Errorf("fsck: %s: %s", p.Path, p.Problem)
		return nil
	})
	if err != nil || sum.Problems != 0 {
		b.Errorf("fsck: %+v, %v", sum, err)
	}
}

// onFirst does something with the first PUT of a block.
func onFirst(do s3env.Around) s3env.Around {
	var done atomic.Bool
	return func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blocks/") && !done.Swap(true) {
			return do(r, body, send)
		}
		return send(body)
	}
}

// held breaks the connection off, and delivers when it is released. late has
// the answer that nobody hears.
func held() (around s3env.Around, release func() int) {
	gate, late := make(chan struct{}), make(chan int, 1)
	return func(_ *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
			go func() {
				<-gate
				reply := send(body)
				if reply == nil {
					reply = &s3env.Reply{}
				}
				late <- reply.Status
			}()
			return nil
		}, func() int {
			close(gate)
			return <-late
		}
}

// latePutBeforeCommit: a PUT arrives when its writer has long put the bytes under
// another key; before the commit of that, and after.
func latePutBeforeCommit(b *bad) {
	around, release := held()
	b.proxy.Set(onFirst(around))
	w, err := b.fs.Create(b.ctx, "/f")
	b.must(err)
	data := content(1, 3*badBlock+1000)
	_, err = w.Write(data[:badBlock+10])
	b.must(err)
	b.must(w.Flush(b.ctx))
	if status := release(); status != http.StatusOK {
		b.Errorf("the late PUT: %d", status)
	}
	_, err = w.Write(data[badBlock+10:])
	b.must(err)
	b.must(w.Close())
	b.want("/f", data)
	if b.inStore() < 4 {
		b.Error("there is no orphan")
	}
	if r := b.collect(); r.Orphans == 0 {
		b.Error("no orphan was found")
	}
	b.want("/f", data)
}

// latePutAfterCollection: the copy of a PUT arrives when the block was deleted,
// and when it was collected as an orphan; each time it makes a new one.
func latePutAfterCollection(b *bad) {
	around, release := held()
	b.proxy.Set(onFirst(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		around(r, body, send) // the copy
		return send(body)
	}))
	data := content(2, badBlock)
	b.write("/doomed", data)
	b.want("/doomed", data)
	b.must(b.fs.Remove(b.ctx, "/doomed"))
	b.write("/stays", data)
	if r := b.collect(); r.Deleted == 0 {
		b.Errorf("nothing was deleted: %+v", r)
	}
	if status := release(); status != http.StatusOK {
		b.Errorf("the late copy: %d", status)
	}
	if got := b.inStore(); got != 2 {
		b.Errorf("%d blocks in the store, want the file's and the orphan", got)
	}
	if r := b.collect(); r.Orphans != 1 || r.Deleted != 1 {
		b.Errorf("%+v, want the orphan collected", r)
	}
	if got := b.inStore(); got != 1 {
		b.Errorf("%d blocks in the store, want the file's", got)
	}
	b.want("/stays", data)
}

// duplicateWithOtherBytes: the line repeats PUTs, with other bytes, and with
// another length, before and after the right ones.
func duplicateWithOtherBytes(b *bad) {
	b.proxy.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if r.Method != http.MethodPut {
			return send(body)
		}
		other := bytes.ToUpper(body)
		other[0]++
		for _, wrong := range [][]byte{other, body[:len(body)-1], append(bytes.Clone(body), 0)} {
			if reply := send(wrong); reply != nil && reply.Status/100 == 2 {
				b.Errorf("the store takes other bytes: %d", reply.Status)
			}
		}
		reply := send(body)
		for _, again := range [][]byte{other, body} {
			if reply := send(again); reply != nil && reply.Status/100 == 2 {
				b.Errorf("the store takes a second PUT: %d", reply.Status)
			}
		}
		return reply
	})
	for i := range 5 {
		data := content(byte(i), i*badBlock+500)
		b.write(fmt.Sprintf("/f%d", i), data)
		b.want(fmt.Sprintf("/f%d", i), data)
	}
	// The namenode's own PUTs, of tails that it seals.
	b.must(b.fs.WriteFile(b.ctx, "/sealed", content(9, 40_000)))
	w, err := b.fs.Append(b.ctx, "/sealed")
	b.must(err)
	_, err = w.Write(content(8, 60_000))
	b.must(err)
	b.must(w.Close())
	b.want("/sealed", append(content(9, 40_000), content(8, 60_000)...))
}

// lostReply: every PUT is done and seems to have failed, for a while.
func lostReply(b *bad) {
	var lost atomic.Int32
	b.proxy.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		reply := send(body)
		if r.Method == http.MethodPut && lost.Add(1)%3 != 0 {
			return nil
		}
		return reply
	})
	data := content(3, 6*badBlock+77)
	b.write("/f", data)
	b.want("/f", data)
	if r := b.collect(); r.Orphans == 0 {
		b.Error("lost replies left no orphan")
	}
	b.want("/f", data)
}

// storms: of four requests three get 503, and later of three one; half of these
// were carried out.
func storms(b *bad) {
	var n atomic.Uint32
	var calm atomic.Bool
	b.proxy.Set(func(_ *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		switch i := n.Add(1); {
		case i%4 == 0, calm.Load() && i%3 != 0:
			return send(body)
		case i%2 == 0:
			send(body)
		}
		return s3env.Trouble()
	})
	data := content(4, badBlock+5)
	b.write("/f", data)
	b.want("/f", data)
	b.write("/gone", data)
	b.must(b.fs.Remove(b.ctx, "/gone"))
	// Sweeping and deleting, too. The namenode's pauses are longer.
	calm.Store(true)
	for range 2 {
		b.clock.BeyondURLs()
		eventually(b.ctx, b.T, "a collection ends", func() bool {
			_, err := b.fs.Admin().Collect(b.ctx)
			return err == nil
		})
	}
	b.want("/f", data)
}

// everything: writers, readers and the namenode's sealing over a line that does
// all of it by chance.
func everything(b *bad) {
	var late sync.WaitGroup
	var counts [12]atomic.Int32
	b.proxy.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		other := func() []byte {
			o := bytes.Clone(body)
			if len(o) > 0 {
				o[len(o)/2] ^= 1
			}
			return o
		}
		later := func(what []byte) {
			late.Go(func() {
				rest(b.ctx, time.Duration(rand.IntN(400))*time.Millisecond) // the delay of a line
				send(what)
			})
		}
		if r.Method != http.MethodPut {
			switch rand.IntN(16) {
			case 0:
				return s3env.Trouble()
			case 1:
				send(body)
				return s3env.Trouble()
			case 2:
				return nil
			case 3: // an answer that breaks off
				reply := send(body)
				if reply != nil && len(reply.Body) > 1 {
					reply.Body = reply.Body[:len(reply.Body)/2]
				}
				return reply
			}
			return send(body)
		}
		what := rand.IntN(len(counts))
		counts[what].Add(1)
		switch what {
		case 0: // lost
			return nil
		case 1: // lost reply
			send(body)
			return nil
		case 2: // twice
			send(body)
			return send(body)
		case 3: // other bytes first
			send(other())
			return send(body)
		case 4: // other bytes later
			reply := send(body)
			later(other())
			return reply
		case 5: // late
			later(body)
			return nil
		case 6: // a late copy
			later(body)
			return send(body)
		case 7:
			return s3env.Trouble()
		case 8:
			send(body)
			return s3env.Trouble()
		}
		return send(body)
	})
	const writers, files = 6, 8
	var wg sync.WaitGroup
	want := make([][]byte, writers*files)
	path := func(i int) string { return fmt.Sprintf("/f%d", i) }
	for w := range writers {
		wg.Go(func() {
			for f := range files {
				i := w*files + f
				data := content(byte(i), rand.IntN(4*badBlock)+40_000)
				if err := b.fs.WriteFile(b.ctx, path(i), data); err != nil {
					b.Errorf("%s: %v", path(i), err)
					return
				}
				for range 2 { // appends merge, and are sealed
					more := content(byte(100+i), rand.IntN(60_000)+1)
					a, err := b.fs.Append(b.ctx, path(i))
					if err == nil {
						_, err = a.Write(more)
					}
					if err == nil {
						err = a.Close()
					}
					if err != nil {
						b.Errorf("%s: %v", path(i), err)
						return
					}
					data = append(data, more...)
				}
				want[i] = data
				if got, err := b.fs.ReadFile(b.ctx, path(i)); err != nil || !bytes.Equal(got, data) {
					b.Errorf("%s: %d bytes, want %d, %v", path(i), len(got), len(data), err)
				}
				if i%4 == 3 {
					if err := b.fs.Remove(b.ctx, path(i)); err != nil {
						b.Errorf("%s: %v", path(i), err)
					}
					want[i] = nil
				}
			}
		})
	}
	wg.Wait()
	late.Wait()
	var did []int32
	for i := range counts {
		did = append(did, counts[i].Load())
	}
	b.Logf("PUTs lost, reply lost, twice, other bytes first, later, late, late copy, 503, 503 after, plain: %d; in the store: %d", did, b.inStore())
	b.proxy.Set(nil)
	check := func() {
		for i, data := range want {
			if data != nil {
				b.want(path(i), data)
			}
		}
	}
	check()
	b.noOrphans()
	check()
	b.n.Restart(b.T)
	b.connect()
	check()
}

// latePutAfterTakeOver: a PUT under a key of a reign that is over arrives after
// the take-over. Its writer has gone on with the successor, who collects it.
func latePutAfterTakeOver(t *testing.T, server *s3env.Server, zk []string) {
	b := &bad{T: t, ctx: deadline(t, 3*time.Minute), server: server, proxy: server.Proxy(t)}
	var clocks []*env.LeapingClock
	var all []*env.Namenode
	var addrs []string
	for range 2 {
		c := &env.LeapingClock{}
		clocks = append(clocks, c)
		n := env.Start(t, badConfig(b.proxy.URL(prefixOf(t)), c), func(cfg *nn.Config) {
			cfg.HA = &nn.HA{ZooKeeper: zk, Name: "late", SessionTimeout: 8 * time.Second} // no election but the one that is asked for
		})
		all = append(all, n)
		addrs = append(addrs, n.Addr())
	}
	active := func() int {
		var at int
		eventually(b.ctx, t, "one is active", func() bool {
			for i, n := range all {
				if n.Server != nil && n.Role() == "active" {
					at = i
					return true
				}
			}
			return false
		})
		return at
	}
	first := active()
	fs, err := client.New(b.ctx, client.Config{Namenodes: addrs, User: "root", Timeout: time.Minute})
	b.must(err)
	t.Cleanup(func() { _ = fs.Close() })
	b.fs = fs
	around, release := held()
	second, releaseSecond := held() // a copy of a PUT that is committed in time
	b.proxy.Set(onFirst(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		second(r, body, send)
		return send(body)
	}))
	data := content(5, 2*badBlock)
	b.write("/before", data)
	b.must(fs.Remove(b.ctx, "/before"))
	b.proxy.Set(onFirst(around))
	w, err := fs.Create(b.ctx, "/f")
	b.must(err)
	_, err = w.Write(data[:badBlock])
	b.must(err)
	b.must(w.Flush(b.ctx))
	before := all[first].Server
	_, err = fs.Admin().Failover(b.ctx)
	b.must(err)
	select {
	case <-before.Done():
	case <-b.ctx.Done():
		t.Fatal("the deposed namenode does not end")
	}
	successor := 1 - first
	eventually(b.ctx, t, "the other is active", func() bool { return all[successor].Role() == "active" })
	_, err = w.Write(data[badBlock:])
	b.must(err)
	b.must(w.Close())
	b.want("/f", data)
	// What the deposed one has in hand does nothing: it may not collect.
	b.clock = clocks[first]
	clocks[first].BeyondURLs()
	// It may still tell clients where to go.
	if list, err := client.QueryStatus(b.ctx, client.Config{Namenodes: []string{addrs[first]}, User: "root", Timeout: time.Second}); err != nil {
		t.Fatal(err)
	} else if list[0].Err == nil && list[0].Role == "active" {
		t.Error("the deposed namenode says that it is active")
	}
	if status := release(); status != http.StatusOK {
		t.Errorf("the late PUT: %d", status)
	}
	b.want("/f", data)
	b.clock = clocks[successor]
	if r := b.collect(); r.Orphans == 0 || r.Deleted < 3 {
		t.Errorf("%+v, want the orphan and the removed file's blocks collected", r)
	}
	if status := releaseSecond(); status != http.StatusOK {
		t.Errorf("the late copy: %d", status)
	}
	b.want("/f", data)
	r := b.collect()
	if r.Orphans != 1 || r.Deleted != 1 {
		t.Errorf("%+v, want the second orphan collected", r)
	}
	if got := b.inStore(); got != 2 {
		t.Errorf("%d blocks in the store, want the file's", got)
	}
	b.want("/f", data)
}
