package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
)

// register is a file whose mode is a number that only grows, written at whoever
// is active and read at one namenode that may be so no longer.
type register struct {
	written atomic.Uint32 // acknowledged by now
	reads   atomic.Int64
	stale   atomic.Pointer[string]
}

const registerPath = "/register"

// read asks r once. An answer older than what was acknowledged before the
// question is stale.
func (g *register) read(ctx context.Context, r *env.Raw) error {
	known := g.written.Load()
	out, err := r.NN.Stat(ctx, &pb.StatRequest{Caller: r.Who, At: pb.At(registerPath)})
	if err != nil {
		return err
	}
	g.reads.Add(1)
	if got := out.GetAttr().GetMode(); got < known {
		text := fmt.Sprintf("read %d, and %d was written before", got, known)
		g.stale.CompareAndSwap(nil, &text)
	}
	return nil
}

// readOn reads until ctx ends: as often as it can in a full run, else so often that
// the readers of a test do not take a processor for themselves.
func (g *register) readOn(ctx context.Context, r *env.Raw) {
	pause := size.Of(5*time.Millisecond, 0)
	for ctx.Err() == nil {
		if err := g.read(ctx, r); err != nil {
			rest(ctx, max(pause, time.Millisecond))
			continue
		}
		rest(ctx, pause)
	}
}

// writeOn writes the next number, over and over, at whichever of the namenodes is
// active. The one whose reign is to end is not among them: a write that it never
// got done would hold up reads of it, right or wrong.
func (g *register) writeOn(ctx context.Context, at []*env.Raw) {
	for i := 0; ctx.Err() == nil; i++ {
		r, n := at[i%len(at)], g.written.Load()+1
		if n > 0o777 {
			return
		}
		_, err := r.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: r.Call(), Caller: r.Who, At: pb.At(registerPath), SetMode: true, Mode: n})
		if err == nil {
			g.written.Store(n)
			i--
		}
		rest(ctx, 20*time.Millisecond)
	}
}

// others are sessions at all members but this one.
func (e *fleet) others(than *member) (list []*env.Raw) {
	for _, m := range e.members {
		if m != than {
			list = append(list, env.RawAt(e.t, m.direct, "writer"))
		}
	}
	return list
}

func (g *register) check(t *testing.T) {
	t.Helper()
	if s := g.stale.Load(); s != nil {
		t.Errorf("a stale read: %s", *s)
	}
}

// TestScenario42: the active one is stopped past its session while readers and
// writers ask it; a successor writes; the old one continues. It answers nothing
// from what it knew, writes nothing, and comes back as a standby.
func TestScenario42PausedPastItsSession(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	e := startFleet(ctx, t)
	fsys := e.library(ctx)
	if err := fsys.WriteFile(ctx, registerPath, nil); err != nil {
		t.Fatal(err)
	}
	var reg register
	number := func(n uint32) {
		t.Helper()
		if err := fsys.Chmod(ctx, registerPath, fs.FileMode(n)); err != nil {
			t.Fatal(err)
		}
		reg.written.Store(n)
	}
	number(1)
	for round := range size.Of(2, 6) {
		before := e.raw(t, fmt.Sprint("reader", round))
		w := before.Create(fmt.Sprintf("/w%d", round))
		if err := before.Flush(w, 0, "before"); err != nil {
			t.Fatal(err)
		}
		a := e.settled(ctx)
		old := before.At(a.listen)
		work, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { reg.readOn(work, old) })
		}
		had := reg.reads.Load()
		a.atWork(ctx, "the readers are at work", func() bool { return reg.reads.Load() > had+100 })
		a.stop(ctx)
		// These lie before it when it continues, and it does not know how long
		// it was away.
		var refused, answered atomic.Int64
		outcome := func(err error) {
			switch {
			case errors.Is(err, fserror.NotActive), errors.Is(err, fserror.Unknown), errors.Is(err, fserror.Unavailable):
				refused.Add(1)
			case err == nil:
				answered.Add(1)
			default:
				t.Errorf("the old one answered %v", err)
			}
		}
		e.successor(ctx, a)
		for i := range uint32(5) {
			number(uint32(round*10) + i + 2) //nolint:gosec // small
		}
		// The file is the successor's writer's by now.
		if _, err := e.raw(t, "other").NN.Recover(ctx, &pb.RecoverRequest{
			Call:   &pb.CallId{Session: make([]byte, 16), Seq: uint64(round + 1)}, //nolint:gosec // small
			Caller: &pb.Caller{User: "root", Client: "other", Session: make([]byte, 16), Host: "h", Pid: 1}, At: pb.Follow(fmt.Sprintf("/w%d", round)), Force: true,
		}); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			wg.Go(func() { outcome(reg.read(ctx, old)) })
			wg.Go(func() { outcome(old.Flush(w, 6, "after")) })
			wg.Go(func() {
				_, err := old.NN.RenewLease(ctx, &pb.RenewLeaseRequest{Caller: old.Who, Session: old.Who.GetSession()})
				outcome(err)
			})
			wg.Go(func() {
				_, err := old.NN.Mkdir(ctx, &pb.MkdirRequest{Call: old.Call(), Caller: old.Who, At: pb.At(fmt.Sprintf("/d%d", round))})
				outcome(err)
			})
		}
		rest(ctx, 200*time.Millisecond) // for them to lie there
		a.cont()
		a.standby(ctx)
		stop()
		wg.Wait()
		t.Logf("round %d: %d refused, %d reads in all", round, refused.Load(), reg.reads.Load())
		if answered.Load() > 0 {
			t.Errorf("the old one answered %d calls", answered.Load())
		}
		reg.check(t)
		if got := e.run(ctx, "cat", fmt.Sprintf("/w%d", round)); got != "before" {
			t.Errorf("the file holds %q", got)
		}
		if r := e.try(ctx, "", "stat", fmt.Sprintf("/d%d", round)); r.code == 0 {
			t.Error("the old one's directory is there")
		}
	}
	e.settled(ctx)
	e.fsck(ctx)
}

// TestHAStaleReads reads as often as it can, at the one that was active, while
// it is paused for short, cut from ZooKeeper, and succeeded.
func TestHAStaleReads(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	e := startFleet(ctx, t)
	fsys := e.library(ctx)
	if err := fsys.WriteFile(ctx, registerPath, nil); err != nil {
		t.Fatal(err)
	}
	harms := e.harms(ctx)
	harms["many short pauses"] = func(a *member) {
		for range 10 {
			a.stop(ctx)
			rest(ctx, 300*time.Millisecond)
			a.cont()
			rest(ctx, 5*time.Millisecond)
		}
	}
	harms["cut from ZooKeeper"] = func(a *member) {
		a.fromZooKeeper()
		e.successor(ctx, a)
		rest(ctx, sessionTimeout) // the old one is asked all the time, and others write
		a.toZooKeeper()
	}
	for _, how := range []string{"cut from ZooKeeper", "SIGSTOP", "many short pauses", "graceful"} {
		a := e.settled(ctx)
		var reg register
		if err := fsys.Chmod(ctx, registerPath, 0); err != nil {
			t.Fatal(err)
		}
		work, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for i := range 8 {
			at := e.members[i%len(e.members)] // each of them may be the old one
			if i < 4 {
				at = a
			}
			r := env.RawAt(t, at.listen, fmt.Sprint("reader", i))
			wg.Go(func() { reg.readOn(work, r) })
		}
		writers := e.others(a)
		if how == "many short pauses" { // it may stay the active one
			writers = e.others(nil)
		}
		wg.Go(func() { reg.writeOn(work, writers) })
		harms[how](a)
		e.settled(ctx)
		rest(ctx, 500*time.Millisecond)
		stop()
		wg.Wait()
		reg.check(t)
		t.Logf("%s: %d reads, %d writes", how, reg.reads.Load(), reg.written.Load())
	}
}

// TestHAFollowerCutFromItsLeader is show 5: the ZooKeeper server that the active
// namenode is connected to is cut from its leader, and keeps answering pings
// and reads. No stale read, no second writer.
func TestHAFollowerCutFromItsLeader(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	// Each namenode knows one server only.
	e, lab := startLabFleet(ctx, t, env.ZooKeeperConfig{SyncLimit: 30}, // 15 s until a follower notices that it is alone
		func(c *fleetConfig) { c.only = func(i int) int { return i } })
	zk := e.zk
	leader, _ := zk.Leader(t)
	of := -1
	for i := range 3 {
		if zk.Server(i) == leader {
			of = i
		}
	}
	index := func(m *member) int {
		for i := range e.members {
			if e.members[i] == m {
				return i
			}
		}
		return -1
	}
	a := e.settled(ctx)
	for index(a) == of { // the active one must sit at a follower
		e.failover(ctx, a)
		a = e.settled(ctx)
	}
	at := index(a)
	fsys := e.library(ctx)
	if err := fsys.WriteFile(ctx, registerPath, nil); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Chmod(ctx, registerPath, 0); err != nil {
		t.Fatal(err)
	}
	var reg register
	old := env.RawAt(t, a.direct, "reader")
	w := old.Create("/w")
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { reg.readOn(work, old) })
	}
	writers := e.others(a)
	wg.Go(func() { reg.writeOn(work, writers) })
	a.atWork(ctx, "the readers are at work", func() bool { return reg.reads.Load() > 100 })
	before := reg.written.Load()
	lab.Cut(lab.Machine(fmt.Sprint("zk", at)), lab.Machine(fmt.Sprint("zk", of)))
	began := time.Now()
	e.successor(ctx, a)
	t.Logf("succeeded after %s", since(began))
	eventually(ctx, t, "the successor writes", func() bool { return reg.written.Load() > before+20 })
	if m := zk.Server(at).Mode(); m != "follower" {
		t.Logf("the follower has noticed already: %q", m)
	} else if role := a.role(ctx); role == "active" {
		t.Error("the old one says that it is active")
	}
	// It writes nothing, through whom it still believes to be a part.
	short, cancel := context.WithTimeout(ctx, time.Second)
	if _, err := old.NN.AppendTail(short, env.TailRequest(w, 0, "old")); err == nil {
		t.Error("the old one has written")
	}
	cancel()
	now := e.raw(t, "")
	now.Who = old.Who
	if err := now.Flush(w, 0, "new"); err != nil {
		t.Error(err)
	}
	lab.Heal()
	a.standby(ctx)
	stop()
	wg.Wait()
	reg.check(t)
	t.Logf("%d reads, %d writes", reg.reads.Load(), reg.written.Load())
	if got := e.run(ctx, "cat", "/w"); got != "new" {
		t.Errorf("%q", got)
	}
}

// TestScenario57: what a reader has cached under one namenode does not change
// under its successor until the reader has come back, or its term is over.
func TestScenario57CachesOverAFailover(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	const term = 4 * time.Second
	e := startFleet(ctx, t, func(c *fleetConfig) { c.flags = []string{"--cache-term", term.String()} })
	other := e.library(ctx)
	if err := other.WriteFile(ctx, "/f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []bool{true, false} {
		t.Run(map[bool]string{true: "reader is cut off", false: "reader comes back"}[cut], func(t *testing.T) {
			if err := other.Chmod(ctx, "/f", 0o600); err != nil {
				t.Fatal(err)
			}
			a := e.settled(ctx)
			var ways []*link
			var addrs []string
			for _, m := range e.members {
				l := startLink(t, m.listen)
				ways, addrs = append(ways, l), append(addrs, l.addr())
			}
			reader, err := client.New(ctx, client.Config{Namenodes: addrs, Cache: true, Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reader.Close() }()
			eventually(ctx, t, "the reader answers from its cache", func() bool {
				before := reader.Stats().Cache.Hits
				_, err := reader.Stat(ctx, "/f")
				return err == nil && reader.Stats().Cache.Hits > before
			})
			var changed atomic.Bool
			var lastOld atomic.Int64 // Unix nanoseconds
			work, stop := context.WithCancel(ctx)
			var wg sync.WaitGroup
			wg.Go(func() {
				for ; work.Err() == nil; rest(work, time.Millisecond) {
					known := changed.Load()
					short, cancel := context.WithTimeout(work, 100*time.Millisecond)
					i, err := reader.Stat(short, "/f")
					cancel()
					if err != nil {
						continue
					}
					if i.Mode().Perm() == 0o600 {
						lastOld.Store(time.Now().UnixNano())
						if known {
							t.Error("the reader answered what was before the change")
							return
						}
					}
				}
			})
			if cut {
				for _, l := range ways {
					l.freeze()
				}
			}
			a.kill()
			next := e.successor(ctx, a)
			began := time.Now()
			if err := other.Chmod(ctx, "/f", 0o644); err != nil {
				t.Fatal(err)
			}
			changed.Store(true)
			took := time.Since(began)
			rest(ctx, 300*time.Millisecond)
			stop()
			wg.Wait()
			t.Logf("the change took %s; the reader answered from before until %s before it was done", took.Round(time.Millisecond), began.Add(took).Sub(time.Unix(0, lastOld.Load())).Round(time.Millisecond))
			// The wait begins with the reign, however late this test asks.
			if cut {
				if waited := began.Add(took).Sub(next.said(`"took over"`)); waited < term/2 {
					t.Errorf("the change waited %s only for a reader that is cut off", waited)
				}
			}
			a.start(ctx)
		})
	}
}

// TestHAStandbyFallsBehind: a standby that was away while two images were written
// and the journal purged starts from an image, and can take over.
func TestHAStandbyFallsBehind(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.n = 2 })
	a := e.settled(ctx)
	b := e.another(a)
	for _, away := range []struct {
		name       string
		leave, ret func()
	}{
		{"stopped", func() { b.stop(ctx) }, b.cont},
		{"killed", b.kill, func() { b.start(ctx) }},
		{"cut from ZooKeeper", b.fromZooKeeper, b.toZooKeeper},
	} {
		away.leave()
		var want strings.Builder
		for i := range 4 {
			text := strings.Repeat(fmt.Sprintln(away.name, i), 100)
			e.write(ctx, text, "append", "--create", "/"+strings.ReplaceAll(away.name, " ", "-"))
			want.WriteString(text)
			e.run(ctx, "admin", "checkpoint")
		}
		away.ret()
		e.settled(ctx)
		e.failover(ctx, a)
		if got := e.run(ctx, "cat", "/"+strings.ReplaceAll(away.name, " ", "-")); got != want.String() {
			t.Errorf("%s: %d bytes, want %d", away.name, len(got), want.Len())
		}
		e.fsck(ctx)
		e.run(ctx, "admin", "checkpoint")
		e.settled(ctx)
		e.failover(ctx, b)
		e.settled(ctx)
	}
}
