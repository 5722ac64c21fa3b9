package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
)

// startLabFleet is startFleet on machines of their own, three for ZooKeeper, three
// for namenodes, one for clients, on a network that loses what it is told to.
func startLabFleet(ctx context.Context, t *testing.T, zk env.ZooKeeperConfig, mods ...func(*fleetConfig)) (*fleet, *env.Lab) {
	t.Helper()
	lab := env.StartLab(t, "zk0", "zk1", "zk2", "nn0", "nn1", "nn2", "clients")
	for i := range 3 {
		zk.Machines = append(zk.Machines, lab.Machine(fmt.Sprint("zk", i)))
	}
	z := env.StartZooKeeperWith(t, zk)
	return startFleet(ctx, t, append(mods, func(c *fleetConfig) { c.lab, c.zk = lab, z })...), lab
}

// keepWriting appends numbered lines with the program, from where clients are,
// until stop, which checks that all of them are there, once and in order.
func (e *fleet) keepWriting(ctx context.Context, path string) (w *process, stop func()) {
	e.t.Helper()
	w = e.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", path)
	var fed strings.Builder
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-w.done:
				return
			case <-time.After(size.Of(20*time.Millisecond, 5*time.Millisecond)): // as fast as a person would hardly be
			}
			line := fmt.Sprintf("%s line %d\n", path, i)
			fed.WriteString(line)
			if _, err := w.stdin.Write([]byte(line)); err != nil {
				return
			}
		}
	}()
	return w, func() {
		e.t.Helper()
		close(quit)
		<-done
		w.eof()
		w.ends(ctx, 0)
		if got := e.run(ctx, "cat", path); got != fed.String() {
			e.t.Errorf("%s: %d bytes were written, %d are there, or others", path, fed.Len(), len(got))
		}
	}
}

// goesOn waits until the writer has got some lines more acknowledged.
func goesOn(ctx context.Context, w *process) {
	w.t.Helper()
	w.acksUpTo(ctx, w.acked()+250)
}

// TestHALab cuts machines from each other by losing packets. Whatever is cut,
// nobody reads what is old, nobody writes besides the active one, and a writer
// continues.
func TestHALab(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	e, lab := startLabFleet(ctx, t, env.ZooKeeperConfig{})
	zookeepers := []*env.Machine{lab.Machine("zk0"), lab.Machine("zk1"), lab.Machine("zk2")}
	clients := lab.Machine("clients")
	e.run(ctx, "create", registerPath)

	// deposed does something to the active one after which it must be succeeded.
	// It is asked all the time, by those whom it still can reach.
	deposed := func(t *testing.T, harm func(a *env.Machine)) {
		t.Helper()
		a := e.settled(ctx)
		e.run(ctx, "chmod", "0", registerPath)
		var reg register
		work, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for i := range 4 {
			old := env.RawAt(t, "unix:"+clients.Way(a.listen), fmt.Sprint("reader", i))
			wg.Go(func() { reg.readOn(work, old) })
		}
		writers := e.others(a)
		wg.Go(func() { reg.writeOn(work, writers) })
		w, done := e.keepWriting(ctx, "/"+strings.ReplaceAll(t.Name(), "/", "-"))
		goesOn(ctx, w)
		a.atWork(ctx, "the readers are at work", func() bool { return reg.reads.Load() > 100 })
		harm(a.machine)
		e.successor(ctx, a)
		had := reg.written.Load()
		eventually(ctx, t, "the successor writes", func() bool { return reg.written.Load() > had+20 })
		goesOn(ctx, w)
		if role := a.role(ctx); role == "active" {
			t.Error("the old one says that it is active")
		}
		lab.Heal()
		a.standby(ctx)
		goesOn(ctx, w)
		stop()
		wg.Wait()
		reg.check(t)
		done()
		t.Logf("%d reads, %d writes", reg.reads.Load(), reg.written.Load())
	}
	t.Run("active cut from ZooKeeper", func(t *testing.T) {
		deposed(t, func(a *env.Machine) { lab.Cut(a, zookeepers...) })
	})
	t.Run("active not heard by ZooKeeper", func(t *testing.T) {
		deposed(t, func(a *env.Machine) {
			for _, z := range zookeepers {
				lab.Drop(a, z)
			}
		})
	})
	t.Run("active does not hear ZooKeeper", func(t *testing.T) {
		deposed(t, func(a *env.Machine) {
			for _, z := range zookeepers {
				lab.Drop(z, a)
			}
		})
	})
	t.Run("active cut from clients", func(t *testing.T) {
		a := e.settled(ctx)
		term := a.look(ctx).Term
		w, done := e.keepWriting(ctx, "/cut-from-clients")
		goesOn(ctx, w)
		lab.Cut(a.machine, clients)
		rest(ctx, 2*sessionTimeout)
		// A busy machine ends reigns, too, but not each time.
		for try := 1; ; try++ {
			s := a.look(ctx)
			if s.Role == "active" && s.Term == term {
				break
			}
			t.Logf("it is %s in term %d, and was active in %d: clients have no say in who is", s.Role, s.Term, term)
			if try == 4 {
				t.Fatal("cut from clients it was not active any more, each time")
			}
			lab.Heal()
			a = e.settled(ctx)
			term = a.look(ctx).Term
			lab.Cut(a.machine, clients)
			rest(ctx, 2*sessionTimeout)
		}
		// Somebody who reaches it makes it hand over. Clients follow, who do not.
		op := e.raw(t, "operator")
		eventually(ctx, t, "it hands over", func() bool { // a busy machine may hold the standbys up
			_, err := op.Admin.Failover(ctx, &pb.FailoverRequest{Caller: op.Who, Term: term})
			if err != nil && !errors.Is(err, fserror.Retry) {
				t.Fatal(err)
			}
			return err == nil
		})
		e.successor(ctx, a)
		goesOn(ctx, w)
		lab.Heal()
		done()
	})
	t.Run("standby cut from all for long", func(t *testing.T) {
		a := e.settled(ctx)
		b := e.another(a)
		lab.Cut(b.machine, zookeepers...)
		lab.Cut(b.machine, clients)
		had, before := len(b.err.String()), a.look(ctx).TxID
		w, done := e.keepWriting(ctx, "/meanwhile")
		for range 4 { // below two images the journal is purged
			goesOn(ctx, w)
			e.run(ctx, "admin", "checkpoint")
		}
		rest(ctx, 2*sessionTimeout)
		lab.Heal()
		var image uint64
		eventually(ctx, t, "it has restarted", func() bool {
			_, loaded, there := strings.Cut(b.err.String()[had:], `msg="namespace loaded" image_txid=`)
			_, err := fmt.Sscan(loaded, &image)
			return there && err == nil
		})
		if image <= before {
			t.Errorf("it began at image %d; the records up to %d and more were purged", image, before)
		}
		for at := e.settled(ctx); at != b; at = e.settled(ctx) { // until it is its turn
			e.failover(ctx, at)
		}
		goesOn(ctx, w)
		done()
		e.fsck(ctx)
	})
}
