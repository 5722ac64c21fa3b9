package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/size"
)

// scribe appends numbered lines to one file.
type scribe struct {
	path  string
	acked atomic.Int64  // lines
	last  time.Time     // when the last was acknowledged
	waits []wait        // of those between two, the long ones
	idle  time.Duration // between two lines; 0: as the size of tests says
	err   error         // after its end
}

// wait is a time without an acknowledgement.
type wait struct{ from, to time.Time }

// noteWait adds one, if it is long.
func noteWait(all []wait, from, to time.Time) []wait {
	if to.Sub(from) > time.Second/5 {
		all = append(all, wait{from, to})
	}
	return all
}

// line is the n-th one of a file, from 0 on.
func (s *scribe) line(n int64) string { return fmt.Sprintf("%s line %d\n", s.path, n) }

// ack notes that n lines are acknowledged.
func (s *scribe) ack(n int64) {
	now := time.Now()
	if !s.last.IsZero() {
		s.waits = noteWait(s.waits, s.last, now)
	}
	s.last = now
	s.acked.Store(n)
}

// write continues until stop is closed, and closes the file. Now and then it
// closes it in between and opens it again. Each line is acknowledged before the
// next; nothing may fail, whatever happens to namenodes.
func (s *scribe) write(ctx context.Context, fsys *client.FS, rnd *rand.Rand, stop <-chan struct{}) error {
	w, err := fsys.Create(ctx, s.path)
	if err != nil {
		return err
	}
	for n := int64(0); ; n++ {
		select {
		case <-stop:
			return w.Close()
		default:
		}
		if _, err := io.WriteString(w, s.line(n)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if rnd.IntN(50) == 0 {
			if err := w.Close(); err != nil {
				return fmt.Errorf("close behind line %d: %w", n, err)
			}
			s.ack(n + 1)
			if w, err = fsys.Append(ctx, s.path); err != nil {
				return fmt.Errorf("append behind line %d: %w", n, err)
			}
			continue
		}
		if err := w.Flush(ctx); err != nil {
			return fmt.Errorf("flush line %d: %w", n, err)
		}
		s.ack(n + 1)
		rest(ctx, cmp.Or(s.idle, size.Of(10*time.Millisecond, 0)))
	}
}

// TestHAStress: 32 writers append numbered lines while the active namenode is
// killed, stopped, cut from ZooKeeper, cut from its clients, and made to hand
// over, in random order. Every acknowledged line is there once, in order; no
// line is there twice; every file ends closed.
func TestHAStress(t *testing.T) {
	besideOthers(t)
	const writers, clients = 32, 8
	rounds := size.Of(5, 25)
	ctx := deadline(t, time.Duration(rounds+4)*40*time.Second)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // a test's
	e := startFleet(ctx, t, func(c *fleetConfig) { c.flags = []string{"--soft-limit", "5m", "--hard-limit", "10m"} })
	scribes := make([]scribe, writers)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var libs []*client.FS
	for i := range clients {
		libs = append(libs, e.library(ctx, func(c *client.Config) { c.Cache = i%2 == 0 }))
	}
	for i := range scribes {
		s := &scribes[i]
		s.path = fmt.Sprintf("/lines%02d", i)
		r := rand.New(rand.NewPCG(uint64(seed), uint64(i+2))) //nolint:gosec // a test's
		wg.Go(func() { s.err = s.write(ctx, libs[i%clients], r, stop) })
	}
	progress := func(why string) {
		t.Helper()
		var was [writers]int64
		for i := range scribes {
			was[i] = scribes[i].acked.Load()
		}
		short, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		eventually(short, t, "every writer continues after "+why, func() bool {
			for i := range scribes {
				if scribes[i].acked.Load() < was[i]+3 {
					return false
				}
			}
			return true
		})
	}
	progress("the start")
	harms := []struct {
		name string
		do   func(a *member)
	}{
		{"kill -9", func(a *member) { a.kill(); e.successor(ctx, a); a.start(ctx) }},
		{"kill -9 and an early start", func(a *member) { a.crash(ctx) }},
		{"SIGSTOP until another is active", func(a *member) { a.stop(ctx); e.successor(ctx, a); a.cont() }},
		{"SIGSTOP for about a session", func(a *member) {
			a.stop(ctx)
			rest(ctx, sessionTimeout/2+time.Duration(rnd.Int64N(int64(sessionTimeout))))
			a.cont()
		}},
		{"cut from ZooKeeper", func(a *member) { a.fromZooKeeper(); e.successor(ctx, a); a.toZooKeeper() }},
		{"connections to ZooKeeper broken", func(a *member) {
			for _, l := range a.zk {
				l.sever()
			}
		}},
		{"cut from clients", func(a *member) {
			a.fromClients()
			rest(ctx, time.Duration(rnd.Int64N(int64(3*time.Second))))
			a.toClients()
		}},
		{"connections to clients broken", func(a *member) { a.clients.sever(); a.blocks.sever() }},
		{"admin failover", func(a *member) { e.failover(ctx, a) }},
		{"SIGTERM", func(a *member) { a.term(ctx); e.successor(ctx, a); a.start(ctx) }},
	}
	var order []int
	for round := range rounds {
		if len(order) == 0 {
			order = rnd.Perm(len(harms))
		}
		h := harms[order[0]]
		order = order[1:]
		a := e.active(ctx)
		began := time.Now()
		h.do(a)
		progress(h.name)
		t.Logf("%d: %s of %s: every writer went on after %s", round, h.name, a.name, since(began))
		if t.Failed() {
			break
		}
	}
	close(stop)
	wg.Wait()
	total := e.written(ctx, t, scribes)
	if got := e.run(ctx, "find", "/", "--open"); got != "" {
		t.Errorf("left open: %s", got)
	}
	e.fsck(ctx)
	t.Logf("%d lines in %d files over %d rounds", total, writers, rounds)
}

// written checks that each acknowledged line of scribes that have ended is there, once and in
// order, and returns how many lines they are.
func (e *fleet) written(ctx context.Context, t *testing.T, scribes []scribe) int64 {
	t.Helper()
	total := int64(0)
	for i := range scribes {
		s := &scribes[i]
		if s.err != nil {
			t.Errorf("%s: %v", s.path, s.err)
		}
		total += s.acked.Load()
	}
	e.settled(ctx)
	fsys := e.library(ctx)
	for i := range scribes {
		s := &scribes[i]
		st, err := fsys.Stat(ctx, s.path)
		if err != nil {
			t.Error(err)
			continue
		}
		if st.Open != nil {
			t.Errorf("%s is still open", s.path)
		}
		got := string(readAll(ctx, t, fsys, s.path))
		n := int64(0)
		for line := range strings.Lines(got) {
			if line != s.line(n) {
				t.Errorf("%s: %q where line %d is due", s.path, line, n)
				break
			}
			n++
		}
		if n < s.acked.Load() || n > s.acked.Load()+1 {
			t.Errorf("%s: %d lines were acknowledged, %d are there", s.path, s.acked.Load(), n)
		}
	}
	return total
}

// rest is the time for which something lasts that a test does to a process: it
// waits for nothing.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func readAll(ctx context.Context, t *testing.T, fsys *client.FS, path string) []byte {
	t.Helper()
	r, err := fsys.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
