package scenarios_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

const (
	soft, hard    = namenode.DefaultSoftLimit, namenode.DefaultHardLimit
	renewalPeriod = soft / 2
	ageStep       = namenode.DefaultAgesEvery // the checkpoint interval
)

// aging is a namenode whose restarts follow each other, and who looks at it.
type aging struct {
	n   *env.Namenode
	clk *clock.Fake
	b   *client.FS
	raw *env.Raw
}

func newAging(t *testing.T) *aging {
	t.Helper()
	n, clk := frozen(t)
	return &aging{n: n, clk: clk, b: n.Client(t, env.Named("B")), raw: n.Raw(t, "looker")}
}

// idle lets time go by, and waits until the journal knows of it: nothing else
// writes records here.
func (g *aging) idle(t *testing.T, d time.Duration) {
	t.Helper()
	before := g.raw.TxID()
	g.clk.Advance(d)
	env.Eventually(t, "the ages are journalled", func() bool { return g.raw.TxID() > before })
}

// lease is the one lease of a path.
func (g *aging) lease(t *testing.T, path string) *client.Lease {
	t.Helper()
	var found []*client.Lease
	for l, err := range g.b.Leases().List(t.Context(), client.LeaseFilter{Path: path}) {
		must(t, err)
		found = append(found, l)
	}
	if len(found) != 1 {
		t.Fatalf("%s has the leases %+v, want one", path, found)
	}
	return found[0]
}

// wantLeft checks how long a lease has until its end, which is limit after it was
// heard of last: at least what it is due, and at most late more.
func (g *aging) wantLeft(t *testing.T, path string, limit, due, late time.Duration) {
	t.Helper()
	if left := limit - g.lease(t, path).Holder.Idle; left < due || left > due+late {
		t.Fatalf("%s has %s left, want %s, or up to %s more", path, left, due, late)
	}
}

// A holder is gone and idle for nine tenths of its hard limit. Three restarts in
// a row do not keep it alive: its file is closed at its own time.
func TestScenario09LeaseCheckpoint(t *testing.T) {
	t.Parallel()
	g := newAging(t)
	dead := g.n.Raw(t, "A")
	must(t, dead.Flush(dead.Create("/f"), 0, "flushed"))
	g.idle(t, hard*9/10)
	for range 3 {
		g.n.Restart(t)
		g.wantLeft(t, "/f", hard, hard/10, 0)
	}
	g.clk.Advance(hard / 10) // exactly the limit is not past it
	if l := g.lease(t, "/f"); l.HardExpired || l.Overdue != 0 {
		t.Fatalf("its time is over too early: %+v", l)
	}
	g.clk.Advance(time.Millisecond)
	waitClosed(t, g.b, "/f")
	wantContent(t, g.b, "/f", "flushed")
}

// The same when time goes by between the restarts: each costs one checkpoint
// interval at most.
func TestScenario09RestartsWithTimeBetween(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// before each restart: what the journal gets to know of, and what not
		known, unknown time.Duration
		late           time.Duration // in all
	}{
		{"journalled", hard * 3 / 10, 0, 0},
		{"just not journalled", hard*3/10 - ageStep, ageStep - 1, 3 * ageStep},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newAging(t)
			g.n.Raw(t, "A").Create("/f")
			for i := range 3 {
				g.idle(t, tc.known)
				g.clk.Advance(tc.unknown)
				g.n.Restart(t)
				due := hard - time.Duration(i+1)*(tc.known+tc.unknown)
				g.wantLeft(t, "/f", hard, due, tc.late)
			}
			left := hard - g.lease(t, "/f").Holder.Idle
			g.clk.Advance(left)
			if l := g.lease(t, "/f"); l.HardExpired {
				t.Fatalf("its time is over too early: %+v", l)
			}
			g.clk.Advance(time.Millisecond)
			waitClosed(t, g.b, "/f")
		})
	}
}

// However old a lease is, after an activation its holder has a renewal period to
// come back, and no restart gives it more than that.
func TestScenario09GraceAfterARestart(t *testing.T) {
	t.Parallel()
	g := newAging(t)
	a := g.n.Raw(t, "A")
	w := a.Create("/f")
	g.idle(t, hard-time.Second)
	for range 3 {
		g.n.Restart(t)
		g.wantLeft(t, "/f", hard, renewalPeriod, 0)
	}
	_, err := g.b.Append(t.Context(), "/f")
	if e := asHeld(t, err, "A"); e.TakeableIn > renewalPeriod+time.Millisecond {
		t.Fatalf("%v: takeable in %s, want a renewal period at most", err, e.TakeableIn)
	}
	g.clk.Advance(renewalPeriod)
	renew(t, a, w) // in the last moment
	g.wantLeft(t, "/f", hard, hard, 0)
	must(t, a.Flush(w, 0, "alive"))
	must(t, a.Close(w, 5))
}

// renew is a renewal of a session with these files, all of which it still has.
func renew(t *testing.T, r *env.Raw, files ...*pb.WriterId) {
	t.Helper()
	req := &pb.RenewLeaseRequest{Session: r.Who.GetSession(), Caller: r.Who, Version: 1, HasSet: true}
	for _, w := range files {
		req.Open = append(req.Open, &pb.OpenRef{Inode: w.GetInode(), Epoch: w.GetEpoch()})
	}
	resp, err := r.NN.RenewLease(t.Context(), req)
	must(t, err)
	if resp.GetUnknownSession() || len(resp.GetLost()) > 0 || len(resp.GetUnknown()) > 0 {
		t.Fatalf("the renewal says %v", resp)
	}
}

// A granted lease is idle for most of its life; restarts do not prolong it, and
// after each it has a third of its time to live at least.
func TestScenario09GrantedLease(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Minute
	for _, tc := range []struct{ idle, due time.Duration }{
		{ttl * 6 / 10, ttl * 4 / 10},
		{ttl * 9 / 10, ttl / 3},
	} {
		t.Run(fmt.Sprint(tc.idle), func(t *testing.T) {
			t.Parallel()
			g := newAging(t)
			a := g.n.Client(t, env.Named("A"))
			l := grant(t, a, ttl)
			must(t, a.WriteFile(t.Context(), "/f", nil, client.WithLease(l)))
			g.idle(t, tc.idle)
			for range 3 {
				g.n.Restart(t)
				g.wantLeft(t, "/f", ttl, tc.due, 0)
			}
			g.clk.Advance(tc.due - time.Millisecond)
			if ended(t, g.b, l) {
				t.Fatal("it ended too early")
			}
			g.clk.Advance(2 * time.Millisecond)
			waitEnded(t, g.b, l)
			gone(t, g.b, "/f")

			// The same id again is as young as any.
			_, err := a.Leases().Grant(t.Context(), ttl, l)
			must(t, err)
			g.n.Restart(t)
			wantTTL(t, a, l, ttl, ttl)
		})
	}
}

// A holder that renews in time is never evicted, however often the namenode is
// restarted, with whatever pause it was late before.
func TestScenario09LiveHolder(t *testing.T) {
	t.Parallel()
	g := newAging(t)
	a := g.n.Raw(t, "A")
	end := a.Connect()
	w := a.Create("/f")
	l := grant(t, g.b, 2*renewalPeriod)
	for i := range 3 * int(hard/renewalPeriod) { // an hour
		switch {
		case i%40 == 39: // it was away for long, and comes back
			keepAlive(t, a, l)
			for range 18 * 2 {
				g.clk.Advance(renewalPeriod)
				keepAlive(t, a, l)
			}
			g.n.Restart(t)
			end()
			end = a.Connect()
		case i%7 == 6:
			g.n.Restart(t)
		default:
			g.clk.Advance(renewalPeriod)
		}
		renew(t, a, w)
		if got := keepAlive(t, a, l); got[0] != 2*renewalPeriod {
			t.Fatalf("round %d: kept alive for %s", i, got[0])
		}
		if lease := g.lease(t, "/f"); lease.Holder.Client != "A" || lease.SoftExpired || lease.Holder.Idle != 0 {
			t.Fatalf("round %d: %+v", i, lease)
		}
	}
	must(t, a.Flush(w, 0, "alive"))
	must(t, a.Close(w, 5))
	end()
}

// An age that is journalled is taken back when the holder is heard of again: the
// next restart does not find it old.
func TestScenario09ComesBack(t *testing.T) {
	t.Parallel()
	g := newAging(t)
	a := g.n.Raw(t, "A")
	w := a.Create("/f")
	const ttl = time.Hour
	l := grant(t, g.b, ttl)
	must(t, g.b.WriteFile(t.Context(), "/g", nil, client.WithLease(l)))
	g.idle(t, hard*9/10)
	before := g.raw.TxID()
	renew(t, a, w)
	g.clk.Advance(ageStep)
	env.Eventually(t, "that it was renewed is journalled", func() bool { return g.raw.TxID() > before })
	g.clk.Advance(hard / 2)
	g.n.Restart(t)
	g.wantLeft(t, "/f", hard, hard/2-ageStep, hard/2+ageStep)
	// In between the granted one got older than half its time.
	g.idle(t, ttl/4)
	keepAlive(t, a, l)
	before = g.raw.TxID()
	g.clk.Advance(ageStep)
	env.Eventually(t, "that it was kept alive is journalled", func() bool { return g.raw.TxID() > before })
	g.n.Restart(t)
	wantTTL(t, g.b, l, ttl, ttl)
}

// Restarts every few seconds, too short for the monitor to end anything: the age
// continues all the same, and of the grace after an activation only what is left.
func TestScenario09RestartsEveryFewSeconds(t *testing.T) {
	t.Parallel()
	const reign = 5 * time.Second
	g := newAging(t)
	g.n.Raw(t, "A").Create("/f")
	b := g.n.Raw(t, "B")
	w := b.Create("/g")
	g.idle(t, hard-2*renewalPeriod)
	renew(t, b, w)
	for range 2 * renewalPeriod / reign {
		g.clk.Advance(reign)
		g.n.Restart(t)
		renew(t, b, w)
	}
	g.wantLeft(t, "/f", hard, renewalPeriod, 0) // it is as old as can be
	for range renewalPeriod / reign {
		g.clk.Advance(reign)
		g.n.Restart(t)
		renew(t, b, w)
	}
	g.wantLeft(t, "/f", hard, renewalPeriod/10, 0)
	g.clk.Advance(renewalPeriod/10 + time.Millisecond)
	waitClosed(t, g.b, "/f")
	g.wantLeft(t, "/g", hard, hard-reign, reign)
	must(t, b.Flush(w, 0, "alive"))
	must(t, b.Close(w, 5))
}
