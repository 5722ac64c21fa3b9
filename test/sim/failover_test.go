package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// A granted lease, and a lock, that live as short as the namenodes grant outlive the crash
// of the active one, whenever it comes between two renewals: their holder need not give
// them up, and the lease is alive afterwards.
func TestShortestLeasesOutliveACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.ttl = time.Second })
		fs := w.clients[0].fs
		g, err := fs.Leases().Grant(t.Context(), time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := fs.Leases().KeepAlive(t.Context(), g.ID)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := w.clients[1].fs.Lock(t.Context(), "/lock", client.LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if least := 3 * sessionTimeout; g.TTL != least || lock.TTL() != least {
			t.Fatalf("the lease lives for %s, the lock for %s; want %s", g.TTL, lock.TTL(), least)
		}
		for round := range 40 {
			w.waitActive(t.Context())
			<-time.After(20*time.Second + time.Duration(round)*137*time.Millisecond) // renewals come at any time before
			began := time.Now()
			active := w.theActive()
			active.kill(crashfs.Strict)
			w.waitActive(t.Context())
			took := time.Since(began)
			active.start()
			<-time.After(2 * g.TTL)
			select {
			case <-lock.Jeopardy():
				t.Errorf("round %d: the lock was in jeopardy; the failover took %s", round, took)
			default:
			}
			if err := context.Cause(kept.Context()); err != nil {
				t.Errorf("round %d: %v; the failover took %s", round, err, took)
			}
			if _, err := fs.Leases().TimeToLive(t.Context(), g.ID, false); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			if t.Failed() {
				break
			}
		}
		kept.Stop()
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// calm is a world in which nothing fails by itself, with some clients.
func calm(t *testing.T, clients int, set func(*worker)) *World {
	t.Helper()
	return calmWorld(t, Config{Seed: 1}, clients, set)
}

// calmWorld is calm for a world that is otherwise as cfg says.
func calmWorld(t *testing.T, cfg Config, clients int, set func(*worker)) *World {
	t.Helper()
	cfg.Calm = true
	w := New(t, cfg)
	if err := w.format(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		w.running.Go(n.run)
	}
	for _, c := range w.clients[:clients] {
		set(c)
		if err := c.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// theActive is who is active.
func (w *World) theActive() *Node {
	for _, n := range w.nodes {
		if n.active() {
			return n
		}
	}
	w.t.Fatal("nobody is active")
	return nil
}

// succeed crashes who is active, ends its session, and waits for its successor.
func (w *World) succeed() {
	n := w.theActive()
	w.running.Go(func() { // until its process has ended, which takes longer
		n.kill(crashfs.Strict)
		n.start()
	})
	synctest.Wait()
	for _, id := range w.zk.SessionsFrom(n.name) {
		w.zk.Expire(id)
	}
	w.waitActive(w.t.Context())
}

// What a dead writer left open can be opened after twice the soft limit and a while,
// also if no reign is as long as that limit: how long a lease was not renewed adds up.
func TestShortReignsEndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		dead, other := w.clients[0], w.clients[1]
		f, err := dead.fs.Append(t.Context(), "/left", client.WithCreate())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		if err := f.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		dead.life.dead.Store(true)
		dead.host.Crash()
		const limit = 2*softLimit + settled
		ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
		defer cancel()
		began, opened := time.Now(), make(chan time.Duration, 1)
		go func() {
			defer close(opened)
			for ctx.Err() == nil {
				if f, err := other.fs.Append(ctx, "/left", client.WithWait(20*time.Second)); err == nil {
					opened <- time.Since(began)
					_ = f.CloseContext(ctx)
					return
				}
			}
		}()
		for over := false; !over; {
			select {
			case took, ok := <-opened:
				if !ok {
					t.Errorf("/left cannot be opened after %v", 2*limit)
				} else if took > limit {
					t.Errorf("/left was opened after %v, want %v at most", took, limit)
				}
				over = true
			case <-time.After(softLimit * 5 / 8):
				w.succeed()
			}
		}
		w.end()
	})
}

// contend has a client lock what another one waits for, and lets the first be silent,
// by what silence does, until the other has the lock; then it hears again. To nobody
// may the lock promise anything by then.
func (w *World) contend(silent, other *worker, silence func() (heal func())) {
	ctx := w.t.Context()
	mine, err := silent.fs.Lock(ctx, "/lock", client.LockOptions{Wait: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	w.truth.locked(silent, "/lock", mine)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		theirs, err := other.fs.Lock(ctx, "/lock", client.LockOptions{Wait: time.Minute})
		if err != nil {
			w.t.Error(err)
			return
		}
		w.truth.locked(other, "/lock", theirs)
		w.truth.unlocking(theirs)
		if err := theirs.Unlock(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	heal := silence()
	<-taken
	heal()
	w.truth.unlocking(mine)
	_ = mine.Unlock(ctx) // it is lost
}

// A lock is nobody else's while it promises something to its holder, however late it
// is told that it was renewed.
func TestLocksEndBeforeOthersHaveThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		silent, other := w.clients[0], w.clients[1]
		for round := 0; round < 10 && len(w.Broken()) == 0; round++ {
			for _, n := range w.nodes { // only answers take long
				w.net.Line(n.name, silent.name).SetDelay(usualDelay + time.Duration(round%2)*softLimit/8)
			}
			w.contend(silent, other, func() func() {
				<-time.After(softLimit/2 + time.Duration(round)*softLimit/20)
				return w.cutOff(silent)
			})
		}
		w.end()
		for _, what := range w.Broken() {
			t.Error(what)
		}
	})
}

// A writer whose machine stood still until another had its file changes it no more.
func TestWhoStoodStillIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		still, other := w.clients[0], w.clients[1]
		for round := range 5 {
			path := fmt.Sprintf("/fenced%d", round)
			f, err := still.fs.Append(t.Context(), path, client.WithCreate())
			if err != nil {
				t.Fatal(err)
			}
			still.clock.stop(false)
			w.net.Host(still.name).Pause()
			flushed := make(chan error)
			go func() { // as what it was just about to do
				_, _ = f.Write([]byte("a line\n")) // Flush tells of its error, too
				flushed <- f.Flush(t.Context())
			}()
			theirs, err := other.fs.Append(t.Context(), path, client.WithWait(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			still.clock.resume()
			w.net.Host(still.name).Resume()
			if err := <-flushed; err == nil {
				t.Errorf("round %d: flushed with token %d after token %d was given", round, f.Token(), theirs.Token())
			}
			_ = f.Close() // it is lost
			if err := theirs.Close(); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		w.end()
	})
}

// Who was suspended for longer than a lease of temporary files lives makes files as
// before, at once.
func TestFilesAreMadeAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, func(c *worker) { c.plain = true })
		c := w.clients[0]
		for _, slept := range []time.Duration{0, time.Second, time.Minute, 5 * time.Minute, time.Hour} {
			c.clock.stop(true)
			w.net.Host(c.name).Pause()
			<-time.After(slept)
			c.clock.resume()
			w.net.Host(c.name).Resume()
			if _, err := c.fs.WriteFrom(t.Context(), fmt.Sprintf("/after %v", slept), strings.NewReader("text")); err != nil {
				t.Errorf("after %v: %v", slept, err)
			}
		}
		w.end()
	})
}

// Nobody is shown from what he keeps what has changed since, also by a namenode that
// took over while he could not be asked.
func TestTakeOversWaitForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(*worker) {})
		reader, writer := w.clients[0], w.clients[1]
		for round := range 5 {
			w.waitActive(t.Context())
			path := fmt.Sprintf("/f%d", round)
			if err := writer.fs.WriteFile(t.Context(), path, []byte("old")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := reader.fs.Stat(t.Context(), path); err != nil {
					t.Fatal(err)
				}
			}
			heal := w.cutOff(reader)
			w.succeed()
			f, err := writer.fs.Append(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.Write([]byte(" and more")) // Close tells of its error, too
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			soon, cancel := context.WithTimeout(t.Context(), usualDelay)
			if i, err := reader.fs.Stat(soon, path); err == nil && i.Length != int64(len("old and more")) {
				t.Errorf("round %d: %s has %d bytes for who has kept that, and another is told that it has %d", round, path, i.Length, len("old and more"))
			}
			cancel()
			heal()
		}
		w.end()
	})
}

// waitActive waits until a namenode is active.
func (w *World) waitActive(ctx context.Context) {
	for {
		for _, n := range w.nodes {
			if n.active() {
				return
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// A lease ends as a whole, whichever namenode is active: the active one crashes during the
// end, and during the removal of what was attached; observers see all files, or none.
func TestLeaseEndsInOneStepOverACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const files = 1200 // more than are removed in a second
		w := calm(t, 2, func(*worker) {})
		a, b := w.clients[0].fs, w.clients[1].fs
		must(t, a.Mkdir(t.Context(), "/d", 0o755))
		look := func(when string) int {
			t.Helper()
			d, err := b.Stat(t.Context(), "/d")
			must(t, err)
			if d.Entries != 0 && d.Entries != files {
				t.Errorf("%s: %d files of %d are there", when, d.Entries, files)
			}
			if l, err := b.ReadDir(t.Context(), "/d"); d.Entries == 0 && (err != nil || len(l) > 0) {
				t.Errorf("%s: %d files are listed, %v", when, len(l), err)
			}
			return int(d.Entries) //nolint:gosec // few
		}
		for round := range 5 {
			g, err := a.Leases().Grant(t.Context(), time.Hour, 7) // the id is free each time
			must(t, err)
			all := make([]client.FileData, files)
			for i := range all {
				all[i] = client.FileData{Path: fmt.Sprint("/d/", i), Options: []client.OpenOption{client.WithLease(g.ID)}}
			}
			_, err = a.WriteFiles(t.Context(), all)
			must(t, err)
			revoked := make(chan error, 1)
			go func() { revoked <- a.Leases().Revoke(t.Context(), g.ID) }()
			<-time.After(time.Duration(round) * 3 * time.Millisecond)
			w.succeed()
			look("after the crash")
			must(t, <-revoked)
			if n := look("after the end"); n != 0 {
				t.Errorf("round %d: %d files are there after the end", round, n)
			}
			w.succeed() // amid the removal
			if n := look("after another crash"); n != 0 {
				t.Errorf("round %d: %d files are there again", round, n)
			}
		}
		w.end()
	})
}
