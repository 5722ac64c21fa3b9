package sim

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// These tests lead worlds to mended defects that no seed's world finds by chance.

// No client's cache shows that a file is open once the hard limit has closed it and another
// client knows.
func TestTheHardLimitIsNewsToReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(*worker) {})
		holder, other := w.clients[0], w.clients[1]
		must(t, holder.fs.Mkdir(t.Context(), "/d", 0o755))
		<-time.After(cacheTerm)
		for round := range 3 {
			path := fmt.Sprintf("/d/f%d", round)
			_, err := holder.fs.Lstat(t.Context(), "/d") // so what is made in it is kept
			must(t, err)
			f, err := holder.fs.Create(t.Context(), path)
			must(t, err)
			must(t, f.Detach()) // it is renewed no more, and what its opening said is kept
			misses := holder.fs.Stats().Cache.Misses
			if _, err := holder.fs.Lstat(t.Context(), path); err != nil || holder.fs.Stats().Cache.Misses != misses {
				t.Fatalf("round %d: %s is not kept by who has opened it, %v", round, path, err)
			}
			for began := time.Now(); ; <-time.After(time.Second) {
				theirs, err := other.fs.Stat(t.Context(), path)
				must(t, err)
				mine, err := holder.fs.Lstat(t.Context(), path)
				must(t, err)
				if theirs.Open == nil {
					if mine.Open != nil {
						t.Errorf("round %d: %s is closed, and who has opened it is shown that it is open", round, path)
					}
					break
				}
				if time.Since(began) > 2*hardLimit+settled {
					t.Fatalf("round %d: %s is still open", round, path)
				}
			}
		}
		w.check(t)
	})
}

// No lease stays that no writer knows of: a file that was opened by a call whose caller gave it up is
// free long before the soft limit, for the same client and for others, also over a take-over.
func TestOpensGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		a, b := w.clients[0], w.clients[1]
		must(t, a.fs.WriteFile(t.Context(), "/f", nil))
		for round := range 6 {
			w.waitActive(t.Context())
			old := w.theActive()
			_, err := a.fs.Stat(t.Context(), "/f") // it is connected
			must(t, err)
			w.net.Line(old.name, a.name).Cut()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err = a.fs.Append(ctx, "/f") // it is carried out
			cancel()
			if err == nil {
				t.Fatalf("round %d: the call was answered", round)
			}
			if round%3 == 2 {
				w.succeed()
			}
			w.net.Line(old.name, a.name).Mend()
			healed := time.Now()
			next := a
			if round%2 == 0 {
				next = b
			}
			f, err := next.fs.Append(t.Context(), "/f", client.WithWait(softLimit/2))
			if err != nil {
				t.Fatalf("round %d, %v after all was healed: %v", round, time.Since(healed), err)
			}
			must(t, f.Close())
		}
		w.check(t)
	})
}

// A tail is not sealed into a block that took so long to arrive that its key was given up
// and the block deleted.
func TestTailsOutliveTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, files = 12 << 10, 4
		var armed atomic.Bool
		stored, release := make(chan struct{}), make(chan struct{})
		var w *World
		w = calmWorld(t, Config{Seed: 1, TailBudget: 64 << 10, Removing: func(name string) {
			// The last step of a PUT, when the block is there.
			if strings.HasPrefix(name, sharedDir) && strings.Contains(name, "/tmp/") && armed.Load() && w.stored() > 0 && armed.CompareAndSwap(true, false) {
				close(stored)
				<-release
			}
		}}, 1, func(c *worker) { c.plain = true })
		fs := w.clients[0].fs
		<-time.After(2 * time.Minute) // blocks may be deleted
		armed.Store(true)
		text := strings.Repeat("0", size)
		for i := range files {
			must(t, fs.WriteFile(t.Context(), fmt.Sprintf("/f%d", i), []byte(text)))
		}
		<-stored
		for began := time.Now(); w.stored() > 0; <-time.After(time.Second) {
			if time.Since(began) > orphansGone {
				t.Error("a block whose key was given up is not deleted")
				break
			}
		}
		close(release)
		<-time.After(time.Minute)
		for i := range files {
			path := fmt.Sprintf("/f%d", i)
			if data, err := fs.ReadFile(t.Context(), path); err != nil || string(data) != text {
				t.Errorf("%s has %d bytes, %v", path, len(data), err)
			}
		}
		w.check(t)
	})
}

// A namenode whose disk is full does not take over while another could.
func TestWhoHasRoomTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, func(c *worker) { c.plain = true })
		fs := w.clients[0].fs
		for round := range 2 {
			<-time.After(2 * time.Minute) // nobody has failed just now, and all follow
			old := w.theActive()
			last := w.rejoin(t, old) // the other one is the first in line
			first := w.neither(old, last)
			first.mu.Lock()
			disk := first.disk
			first.mu.Unlock()
			disk.Capacity(1)
			<-time.After(10 * time.Second) // it has told
			w.succeed()
			soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := fs.Mkdir(soon, fmt.Sprintf("/d%d", round), 0o755); err != nil {
				t.Errorf("round %d: %s has no room, and %s has not taken over: %v", round, first.name, last.name, err)
			}
			cancel()
			disk.Capacity(1 << 50)
		}
		w.check(t)
	})
}

// rejoin has a standby join the election again, and so be the last in line.
func (w *World) rejoin(t *testing.T, active *Node) *Node {
	t.Helper()
	n := w.neither(active, active)
	n.kill(crashfs.Strict)
	<-time.After(2 * sessionTimeout) // its node is gone
	n.start()
	<-time.After(time.Minute) // it follows, and all is at rest
	return n
}

// neither is a node other than two.
func (w *World) neither(a, b *Node) *Node {
	for _, n := range w.nodes {
		if n != a && n != b {
			return n
		}
	}
	w.t.Fatal("there is no other node")
	return nil
}

// A client that leaves while its session is being written leaves nothing behind.
func TestWhoLeavesEarlyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 0, nil)
		w.waitActive(t.Context())
		before := w.Base(w.used)
		for range 3 {
			active, c := w.theActive(), w.clients[0]
			var heals []func()
			for i := range w.cfg.ZooKeeper {
				heals = append(heals, w.cut(active.name, zkName(i), 0))
			}
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() { defer close(gone); _ = c.connect(ctx) }()
			<-time.After(500 * time.Millisecond) // it is greeted
			cancel()
			<-gone
			<-time.After(100 * time.Millisecond) // the namenode has heard of it
			all(heals)
			<-time.After(10 * time.Second)
		}
		w.CheckGone(before, w.used)
		w.check(t)
	})
}

// A namenode in line that finds the one before it gone, just as it looks, leaves no watch
// on it.
func TestNoWatchOnWhoHasJustGone(t *testing.T) {
	const way = 200 * time.Millisecond // between the last in line and ZooKeeper
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 0, nil)
		w.waitActive(t.Context())
		w.rejoin(t, w.theActive())
		before := w.Base(w.used)
		for range 3 {
			first := w.theActive()
			last := w.rejoin(t, first)
			second := w.neither(first, last)
			slow := func(d time.Duration) {
				for i := range w.cfg.ZooKeeper {
					w.net.Line(last.name, zkName(i)).SetDelay(d)
					w.net.Line(zkName(i), last.name).SetDelay(d)
				}
			}
			slow(way)
			<-time.After(2 * time.Second)
			expire := func(n *Node) {
				for _, id := range w.zk.SessionsFrom(n.name) {
					w.zk.Expire(id)
				}
			}
			expire(second)
			// Last is told after one way, has an up-to-date view after three, gets the answer to
			// "who is before me?" after five, and looks at that node after six.
			<-time.After(5 * way)
			expire(first) // it is in the answer, but has gone by then
			<-time.After(2 * time.Second)
			slow(usualDelay)
			w.waitActive(t.Context())
			<-time.After(time.Minute)
		}
		w.CheckGone(before, w.used)
		w.check(t)
	})
}

// A lock that was taken away has no time left, even if its holder's renewals arrive.
func TestALockThatWasTakenHasNoTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		holder, other := w.clients[0], w.clients[1]
		for round := range 3 {
			lock, err := holder.fs.Lock(t.Context(), "/lock", client.LockOptions{})
			must(t, err)
			if lock.Remaining() <= 0 {
				t.Fatalf("round %d: a lock that was just taken has %v left", round, lock.Remaining())
			}
			_, err = other.fs.Recover(t.Context(), "/lock", true)
			must(t, err)
			select {
			case <-lock.Context().Done():
			case <-time.After(softLimit):
				t.Fatalf("round %d: the holder is not told", round)
			}
			for range 3 {
				if left := lock.Remaining(); left > 0 {
					t.Errorf("round %d: %v remain of a lock that was taken away", round, left)
				}
				<-time.After(softLimit)
			}
			_ = lock.Unlock(t.Context()) // it is lost
		}
		w.check(t)
	})
}
