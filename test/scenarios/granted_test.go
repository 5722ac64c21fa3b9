package scenarios_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func asUser(name string) func(*client.Config) {
	return func(c *client.Config) { c.User = name }
}

func grant(t *testing.T, fs *client.FS, ttl time.Duration) client.LeaseID {
	t.Helper()
	g, err := fs.Leases().Grant(t.Context(), ttl, 0)
	must(t, err)
	return g.ID
}

// wantTTL checks what remains of a lease.
func wantTTL(t *testing.T, fs *client.FS, id client.LeaseID, remaining, ttl time.Duration) {
	t.Helper()
	got, err := fs.Leases().TimeToLive(t.Context(), id, false)
	must(t, err)
	if got.Remaining != remaining || got.TTL != ttl {
		t.Fatalf("%s of %s remain, want %s of %s", got.Remaining, got.TTL, remaining, ttl)
	}
}

// waitEnded waits until the monitor has ended the lease.
func waitEnded(t *testing.T, fs *client.FS, id client.LeaseID) {
	t.Helper()
	env.Eventually(t, "lease "+id.String()+" has ended", func() bool { return ended(t, fs, id) })
}

func ended(t *testing.T, fs *client.FS, id client.LeaseID) bool {
	t.Helper()
	_, err := fs.Leases().TimeToLive(t.Context(), id, false)
	if err != nil {
		wantKind(t, err, fserror.NotFound)
	}
	return err != nil
}

// wantAttached checks which lease a file is attached to; 0 for none.
func wantAttached(t *testing.T, fs *client.FS, path string, id client.LeaseID) {
	t.Helper()
	if got := stat(t, fs, path).Lease; got != id {
		t.Fatalf("%s is attached to lease %s, want %s", path, got, id)
	}
}

// A lease is granted, kept alive, listed, and ends by itself strictly later than
// its time to live.
func TestScenario08GrantedLease(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, raw := n.Client(t, env.Named("A")), n.Raw(t, "A")
	const ttl = 10 * time.Second
	g, err := a.Leases().Grant(t.Context(), ttl, 0)
	must(t, err)
	if g.ID == 0 || g.TTL != ttl {
		t.Fatalf("granted %+v", g)
	}
	wantTTL(t, a, g.ID, ttl, ttl)
	clk.Advance(4 * time.Second)
	wantTTL(t, a, g.ID, 6*time.Second, ttl)
	if got := keepAlive(t, raw, g.ID); got[0] != ttl {
		t.Fatalf("kept alive for %s", got[0])
	}
	wantTTL(t, a, g.ID, ttl, ttl)

	must(t, a.WriteFile(t.Context(), "/f", nil, client.WithLease(g.ID)))
	clk.Advance(time.Second)
	for what, f := range map[string]client.LeaseFilter{"all": {}, "id": {Lease: g.ID.String()}, "holder": {Holder: "A"}, "path": {Path: "/f"}} {
		var all []*client.Lease
		for l, err := range a.Leases().List(t.Context(), f) {
			must(t, err)
			all = append(all, l)
		}
		if len(all) != 1 {
			t.Fatalf("listed by %s: %d leases, want 1", what, len(all))
		}
		l := all[0]
		if l.ID != g.ID.String() || !l.Granted || l.TTL != ttl || l.Remaining != 9*time.Second || l.Holder.Client != "A" || l.Holder.User != "root" ||
			l.Holder.Idle != time.Second || l.AttachedCount != 1 || !slices.Equal(l.Attached, []string{"/f"}) || l.SoftExpired || l.Overdue != 0 || l.Ending {
			t.Fatalf("listed by %s: %+v", what, l)
		}
	}
	wantAttached(t, a, "/f", g.ID)

	clk.Advance(9 * time.Second) // exactly its time to live is not past it
	wantTTL(t, a, g.ID, 0, ttl)
	if got := keepAlive(t, raw, g.ID); got[0] != ttl {
		t.Fatalf("kept alive for %s at its last moment", got[0])
	}
	clk.Advance(ttl + time.Millisecond)
	waitEnded(t, a, g.ID)
	gone(t, a, "/f")

	// Nothing can be done with it any more.
	if got := keepAlive(t, raw, g.ID); got[0] != 0 {
		t.Fatalf("an ended lease is kept alive for %s", got[0])
	}
	must(t, a.WriteFile(t.Context(), "/g", nil))
	for what, do := range map[string]func() error{
		"keep-alive": func() error { _, err := a.Leases().KeepAlive(t.Context(), g.ID); return err },
		"revoke":     func() error { err := a.Leases().Revoke(t.Context(), g.ID); return err },
		"attach":     func() error { return a.Leases().Attach(t.Context(), g.ID, "/g") },
		"create":     func() error { _, err := a.Create(t.Context(), "/h", client.WithLease(g.ID)); return err },
		"whole file": func() error { return a.WriteFile(t.Context(), "/h", nil, client.WithLease(g.ID)) },
	} {
		if err := do(); fserror.KindOf(err) != fserror.NotFound || !strings.Contains(err.Error(), g.ID.String()) {
			t.Errorf("%s: %v, want that there is no lease %s", what, err, g.ID)
		}
	}
	gone(t, a, "/h")
}

// A time to live below the minimum is raised to it, and the answer says so;
// numbers and ids that cannot be are refused with what can.
func TestScenario08BadTimesAndIDs(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, func(c *namenode.Config) { c.MinLeaseTTL = 3 * time.Second })
	a, raw := n.Client(t), n.Raw(t, "A")
	for _, asked := range []time.Duration{1, time.Millisecond, 2999 * time.Millisecond, 3 * time.Second} {
		g, err := a.Leases().Grant(t.Context(), asked, 0)
		must(t, err)
		if g.TTL != 3*time.Second {
			t.Errorf("asked for %s, got %s, want the minimum", asked, g.TTL)
		}
		wantTTL(t, a, g.ID, 3*time.Second, 3*time.Second)
	}
	g, err := a.Leases().Grant(t.Context(), 3*time.Second+time.Microsecond, 0) // whole milliseconds, no shorter
	must(t, err)
	if g.TTL != 3001*time.Millisecond {
		t.Errorf("granted %s", g.TTL)
	}
	for _, asked := range []time.Duration{0, -time.Second, 366 * 24 * time.Hour} {
		_, err := a.Leases().Grant(t.Context(), asked, 0)
		if wantKind(t, err, fserror.InvalidArgument); !strings.Contains(err.Error(), "365 days") {
			t.Errorf("%v: does not say what can be", err)
		}
	}
	for _, id := range []uint64{1 << 63, 1<<64 - 1} {
		_, err := raw.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: raw.Call(), Caller: raw.Who, Id: id, TtlMs: 5000})
		if wantKind(t, err, fserror.InvalidArgument); !strings.Contains(err.Error(), "7fffffffffffffff") {
			t.Errorf("%v: does not say what can be", err)
		}
	}
	for _, s := range []string{"", "0", "xyz", "-1", "8000000000000000", "10000000000000000"} {
		if id, err := client.ParseLeaseID(s); fserror.KindOf(err) != fserror.InvalidArgument {
			t.Errorf("%q is id %s, %v", s, id, err)
		}
	}
	_, err = raw.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Caller: raw.Who, TtlMs: 5000})
	wantKind(t, err, fserror.InvalidArgument) // no call id

	must(t, a.MkdirAll(t.Context(), "/d", 0o755))
	must(t, a.Symlink(t.Context(), "/d", "/link"))
	must(t, a.Leases().Attach(t.Context(), g.ID, "/d"))
	must(t, a.Leases().Detach(t.Context(), "/d"))
	must(t, a.Leases().Attach(t.Context(), g.ID, "/link"))
	wantKind(t, a.Leases().Attach(t.Context(), g.ID, "/"), fserror.InvalidArgument)
	wantKind(t, a.Leases().Attach(t.Context(), g.ID, "/missing"), fserror.NotFound)
	wantKind(t, a.Leases().Detach(t.Context(), "/missing"), fserror.NotFound)
	must(t, a.WriteFile(t.Context(), "/f", nil))
	must(t, a.Leases().Detach(t.Context(), "/f")) // attached to none

	// A message of too many, and one of none.
	s, err := raw.NN.KeepAlive(t.Context())
	must(t, err)
	must(t, s.Send(&pb.KeepAliveRequest{Caller: raw.Who}))
	if resp, err := s.Recv(); err != nil || len(resp.GetLeases()) != 0 {
		t.Fatalf("%v, %v", resp, err)
	}
	must(t, s.Send(&pb.KeepAliveRequest{Ids: make([]uint64, 50_001)}))
	if _, err := s.Recv(); err == nil || !strings.Contains(err.Error(), "50000") {
		t.Errorf("50,001 leases in a message: %v", err)
	}
}

// An id is granted once, also when many ask for it at the same moment. It is
// free again when the lease has ended and its files are gone.
func TestScenario08DuplicateID(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a := n.Client(t, env.Named("A"))
	g, err := a.Leases().Grant(t.Context(), time.Minute, 0x2f)
	must(t, err)
	if g.ID != 0x2f {
		t.Fatalf("granted %s", g.ID)
	}
	_, err = a.Leases().Grant(t.Context(), time.Minute, 0x2f)
	if wantKind(t, err, fserror.Exists); !strings.Contains(err.Error(), "2f") {
		t.Errorf("%v: does not name the id", err)
	}
	err = a.Leases().Revoke(t.Context(), g.ID)
	must(t, err)
	_, err = a.Leases().Grant(t.Context(), time.Minute, 0x2f)
	must(t, err)

	const rivals = 8
	raws := make([]*env.Raw, rivals)
	for i := range raws {
		raws[i] = n.Raw(t, fmt.Sprint("rival", i))
	}
	for id := uint64(100); id < 120; id++ {
		var errs [rivals]error
		var wg sync.WaitGroup
		start := newGate()
		for i, r := range raws {
			wg.Go(func() {
				start.wait()
				_, errs[i] = r.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, Id: id, TtlMs: 60_000})
			})
		}
		start.open()
		wg.Wait()
		won := ""
		for i, err := range errs {
			switch {
			case err == nil && won == "":
				won = fmt.Sprint("rival", i)
			case err == nil:
				t.Fatalf("lease %x was granted to %s and to rival %d", id, won, i)
			default:
				wantKind(t, err, fserror.Exists)
			}
		}
		l := leases(t, a, won)
		if len(l) == 0 || !slices.ContainsFunc(l, func(l *client.Lease) bool { return l.ID == client.LeaseID(id).String() }) {
			t.Fatalf("lease %x was granted to %q, whose leases are %+v", id, won, l)
		}
	}
}

// A lease is its user's: others can look how long it lives, and do nothing with
// it. A file is attached by who may delete it. The superuser may all.
func TestScenario08OtherUsers(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	root, ann, bob := n.Client(t), n.Client(t, asUser("ann")), n.Client(t, asUser("bob"))
	ann2 := n.Client(t, asUser("ann"))
	must(t, root.Mkdir(ctx, "/open", 0o777))
	must(t, root.Mkdir(ctx, "/ann", 0o700))
	must(t, root.Chown(ctx, "/ann", "ann", "ann"))
	l, bobs := grant(t, ann, time.Minute), grant(t, bob, time.Minute)
	must(t, ann.WriteFile(ctx, "/ann/f", nil, client.WithLease(l)))
	must(t, bob.WriteFile(ctx, "/open/bob", nil))

	for what, do := range map[string]func() error{
		"revoke":     func() error { err := bob.Leases().Revoke(ctx, l); return err },
		"attach":     func() error { return bob.Leases().Attach(ctx, l, "/open/bob") },
		"create":     func() error { _, err := bob.Create(ctx, "/open/g", client.WithLease(l)); return err },
		"whole file": func() error { return bob.WriteFile(ctx, "/open/g", nil, client.WithLease(l)) },
		"their file": func() error { return bob.Leases().Attach(ctx, bobs, "/ann/f") },
		"detach":     func() error { return bob.Leases().Detach(ctx, "/ann/f") },
	} {
		if err := do(); fserror.KindOf(err) != fserror.Permission {
			t.Errorf("%s by another user: %v, want PERMISSION", what, err)
		}
	}
	_, err := bob.Leases().KeepAlive(ctx, l)
	wantKind(t, err, fserror.Permission)
	raw := n.Raw(t, "bob")
	raw.Who.User = "bob"
	if got := keepAlive(t, raw, l, bobs, 12345); got[0] != 0 || got[1] != time.Minute || got[2] != 0 {
		t.Errorf("bob keeps ann's, his own and no lease alive for %v", got)
	}
	// The names in a closed directory are not shown.
	ttl, err := bob.Leases().TimeToLive(ctx, l, true)
	must(t, err)
	if ttl.FileCount != 1 || len(ttl.Files) != 0 {
		t.Errorf("bob sees %+v of ann's lease", ttl)
	}
	for lease, err := range bob.Leases().List(ctx, client.LeaseFilter{Lease: l.String()}) {
		must(t, err)
		if lease.AttachedCount != 1 || len(lease.Attached) != 0 {
			t.Errorf("bob sees %+v", lease)
		}
	}
	// Another process of the same user may use it, and the superuser.
	must(t, ann2.WriteFile(ctx, "/ann/g", nil, client.WithLease(l)))
	kept, err := ann2.Leases().KeepAlive(ctx, l)
	must(t, err)
	kept.Stop()
	err = root.Leases().Revoke(ctx, l)
	must(t, err)
	gone(t, root, "/ann/f")
	gone(t, root, "/ann/g")
}
