package scenarios_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/testenv"
)

func asUser(name string) func(*client.Config) {
	return func(c *client.Config) { c.User = name }
}

func grant(t *testing.T, fs *client.FS, ttl time.Duration) client.LeaseID {
	t.Helper()
	g, err := fs.Grant(t.Context(), ttl, 0)
	must(t, err)
	return g.ID
}

// wantTTL checks what remains of a lease.
func wantTTL(t *testing.T, fs *client.FS, id client.LeaseID, remaining, ttl time.Duration) {
	t.Helper()
	got, err := fs.LeaseTimeToLive(t.Context(), id, false)
	must(t, err)
	if got.Remaining != remaining || got.TTL != ttl {
		t.Fatalf("%s of %s remain, want %s of %s", got.Remaining, got.TTL, remaining, ttl)
	}
}

// waitEnded waits until the monitor has ended the lease.
func waitEnded(t *testing.T, fs *client.FS, id client.LeaseID) {
	t.Helper()
	testenv.Eventually(t, "lease "+id.String()+" has ended", func() bool { return ended(t, fs, id) })
}

func ended(t *testing.T, fs *client.FS, id client.LeaseID) bool {
	t.Helper()
	_, err := fs.LeaseTimeToLive(t.Context(), id, false)
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

// keepAlive sends one message of keep-alives and returns what each lease has.
func keepAlive(t *testing.T, r *testenv.Raw, ids ...client.LeaseID) (ttls []time.Duration) {
	t.Helper()
	s, err := r.NN.KeepAlive(t.Context())
	must(t, err)
	req := &pb.KeepAliveRequest{Caller: r.Who}
	for _, id := range ids {
		req.Ids = append(req.Ids, uint64(id))
	}
	must(t, s.Send(req))
	resp, err := s.Recv()
	must(t, err)
	for i, l := range resp.GetLeases() {
		if l.GetId() != req.GetIds()[i] {
			t.Fatalf("the answer is about %v, want them in the order %v", resp.GetLeases(), req.GetIds())
		}
		ttls = append(ttls, time.Duration(l.GetTtlMs())*time.Millisecond)
	}
	must(t, s.CloseSend())
	if _, err := s.Recv(); err != io.EOF { //nolint:errorlint // that very one
		t.Fatalf("the stream ended with %v", err)
	}
	return ttls
}

// A lease is granted, kept alive, listed, and ends by itself strictly later than
// its time to live.
func TestScenario08GrantedLease(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, raw := n.Client(t, testenv.Named("A")), n.Raw(t, "A")
	const ttl = 10 * time.Second
	g, err := a.Grant(t.Context(), ttl, 0)
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
		for l, err := range a.Leases(t.Context(), f) {
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
		"keep-alive": func() error { _, err := a.KeepAlive(t.Context(), g.ID); return err },
		"revoke":     func() error { _, err := a.Revoke(t.Context(), g.ID); return err },
		"attach":     func() error { return a.Attach(t.Context(), g.ID, "/g") },
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
		g, err := a.Grant(t.Context(), asked, 0)
		must(t, err)
		if g.TTL != 3*time.Second {
			t.Errorf("asked for %s, got %s, want the minimum", asked, g.TTL)
		}
		wantTTL(t, a, g.ID, 3*time.Second, 3*time.Second)
	}
	g, err := a.Grant(t.Context(), 3*time.Second+time.Microsecond, 0) // whole milliseconds, no shorter
	must(t, err)
	if g.TTL != 3001*time.Millisecond {
		t.Errorf("granted %s", g.TTL)
	}
	for _, asked := range []time.Duration{0, -time.Second, 366 * 24 * time.Hour} {
		_, err := a.Grant(t.Context(), asked, 0)
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
	wantKind(t, a.Attach(t.Context(), g.ID, "/d"), fserror.IsDirectory)
	wantKind(t, a.Attach(t.Context(), g.ID, "/link"), fserror.InvalidArgument)
	wantKind(t, a.Attach(t.Context(), g.ID, "/missing"), fserror.NotFound)
	wantKind(t, a.Detach(t.Context(), "/missing"), fserror.NotFound)
	must(t, a.WriteFile(t.Context(), "/f", nil))
	must(t, a.Detach(t.Context(), "/f")) // attached to none

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
	a := n.Client(t, testenv.Named("A"))
	g, err := a.Grant(t.Context(), time.Minute, 0x2f)
	must(t, err)
	if g.ID != 0x2f {
		t.Fatalf("granted %s", g.ID)
	}
	_, err = a.Grant(t.Context(), time.Minute, 0x2f)
	if wantKind(t, err, fserror.Exists); !strings.Contains(err.Error(), "2f") {
		t.Errorf("%v: does not name the id", err)
	}
	_, err = a.Revoke(t.Context(), g.ID)
	must(t, err)
	_, err = a.Grant(t.Context(), time.Minute, 0x2f)
	must(t, err)

	const rivals = 8
	raws := make([]*testenv.Raw, rivals)
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

// What is attached goes with its lease, however that ends; what was detached,
// moved to another lease or published stays.
func TestScenario08AttachedFiles(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, a *client.FS, id client.LeaseID, advance func(time.Duration)){
		"expired": func(t *testing.T, a *client.FS, id client.LeaseID, advance func(time.Duration)) {
			advance(time.Minute + time.Second)
			waitEnded(t, a, id)
		},
		"revoked": func(t *testing.T, a *client.FS, id client.LeaseID, _ func(time.Duration)) {
			left, err := a.Revoke(t.Context(), id)
			must(t, err)
			if left != 0 {
				t.Fatalf("%d files are left", left)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, clk := frozen(t)
			ctx := t.Context()
			a, b := n.Client(t, testenv.Named("A")), n.Client(t, testenv.Named("B"))
			l, other := grant(t, a, time.Minute), grant(t, a, time.Hour)
			must(t, a.Mkdir(ctx, "/d", 0o755))
			mine := client.WithLease(l)
			must(t, a.WriteFile(ctx, "/d/small", []byte("x"), mine))
			must(t, a.WriteFile(ctx, "/d/later", []byte("x")))
			must(t, a.Attach(ctx, l, "/d/later"))
			must(t, a.Attach(ctx, l, "/d/later")) // again: nothing to do
			must(t, a.WriteFile(ctx, "/d/renamed", []byte("x"), mine))
			must(t, a.Rename(ctx, "/d/renamed", "/d/renamed2", false))
			must(t, a.WriteFile(ctx, "/d/replaced", []byte("old"), mine))
			must(t, a.WriteFile(ctx, "/d/replaced", []byte("new"), client.WithOverwrite()))
			must(t, a.WriteFile(ctx, "/d/detached", []byte("x"), mine))
			must(t, a.Detach(ctx, "/d/detached"))
			must(t, a.WriteFile(ctx, "/d/moved", []byte("x"), mine))
			must(t, a.Attach(ctx, other, "/d/moved"))
			must(t, a.WriteFile(ctx, "/d/.tmp", []byte("whole"), mine))
			must(t, a.WriteFile(ctx, "/d/published", []byte("old")))
			must(t, a.Publish(ctx, "/d/.tmp", "/d/published", true))
			w := create(t, a, "/d/open", mine)
			flush(t, w, "x")
			done := create(t, a, "/d/done", mine)
			flush(t, done, "x")
			must(t, done.Close())
			for path, want := range map[string]client.LeaseID{
				"small": l, "later": l, "renamed2": l, "open": l, "done": l,
				"replaced": 0, "detached": 0, "moved": other, "published": 0,
			} {
				wantAttached(t, b, "/d/"+path, want)
			}
			ttl, err := a.LeaseTimeToLive(ctx, l, true)
			must(t, err)
			slices.Sort(ttl.Files)
			if want := []string{"/d/done", "/d/later", "/d/open", "/d/renamed2", "/d/small"}; !slices.Equal(ttl.Files, want) || ttl.FileCount != 5 {
				t.Fatalf("attached are %v (%d), want %v", ttl.Files, ttl.FileCount, want)
			}
			wantSound(t, b)

			end(t, a, l, clk.Advance)
			wantLost(t, waitLost(t, w), "", "deleted")
			wantLost(t, late(t, w), "", "")
			wantLost(t, w.Close(), "", "")
			for round := range 2 {
				for _, path := range []string{"small", "later", "renamed2", "open", "done"} {
					gone(t, b, "/d/"+path)
				}
				wantContent(t, b, "/d/detached", "x")
				wantContent(t, b, "/d/moved", "x")
				wantContent(t, b, "/d/published", "whole")
				wantContent(t, b, "/d/replaced", "new")
				if !ended(t, b, l) || ended(t, b, other) {
					t.Fatal("the wrong lease ended")
				}
				for _, l := range leases(t, b, "A") {
					if !l.Granted {
						t.Fatalf("the writer's session still has %+v", l)
					}
				}
				if round == 0 {
					n.Restart(t)
				}
			}
			wantSound(t, b)
			_, err = a.Revoke(ctx, other)
			must(t, err)
			gone(t, b, "/d/moved")
		})
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
		"revoke":     func() error { _, err := bob.Revoke(ctx, l); return err },
		"attach":     func() error { return bob.Attach(ctx, l, "/open/bob") },
		"create":     func() error { _, err := bob.Create(ctx, "/open/g", client.WithLease(l)); return err },
		"whole file": func() error { return bob.WriteFile(ctx, "/open/g", nil, client.WithLease(l)) },
		"their file": func() error { return bob.Attach(ctx, bobs, "/ann/f") },
		"detach":     func() error { return bob.Detach(ctx, "/ann/f") },
	} {
		if err := do(); fserror.KindOf(err) != fserror.Permission {
			t.Errorf("%s by another user: %v, want PERMISSION", what, err)
		}
	}
	_, err := bob.KeepAlive(ctx, l)
	wantKind(t, err, fserror.NotFound)
	raw := n.Raw(t, "bob")
	raw.Who.User = "bob"
	if got := keepAlive(t, raw, l, bobs, 12345); got[0] != 0 || got[1] != time.Minute || got[2] != 0 {
		t.Errorf("bob keeps ann's, his own and no lease alive for %v", got)
	}
	// The names in a closed directory are not shown.
	ttl, err := bob.LeaseTimeToLive(ctx, l, true)
	must(t, err)
	if ttl.FileCount != 1 || len(ttl.Files) != 0 {
		t.Errorf("bob sees %+v of ann's lease", ttl)
	}
	for lease, err := range bob.Leases(ctx, client.LeaseFilter{Lease: l.String()}) {
		must(t, err)
		if lease.AttachedCount != 1 || len(lease.Attached) != 0 {
			t.Errorf("bob sees %+v", lease)
		}
	}
	// Another process of the same user may use it, and the superuser.
	must(t, ann2.WriteFile(ctx, "/ann/g", nil, client.WithLease(l)))
	kept, err := ann2.KeepAlive(ctx, l)
	must(t, err)
	kept.Stop()
	_, err = root.Revoke(ctx, l)
	must(t, err)
	gone(t, root, "/ann/f")
	gone(t, root, "/ann/g")
}

// The end of a lease outlives restarts, in the middle of its files too: they are
// deleted then, and its id is free only after the last of them.
func TestScenario08Restart(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, func(c *namenode.Config) { c.ReapRate = 100 })
	ctx := t.Context()
	a := n.Client(t, testenv.Named("A"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	g, err := a.Grant(ctx, time.Minute, 0x77)
	must(t, err)
	attachMany(t, a, "/d", "f", 100, g.ID)
	n.Restart(t)
	wantTTL(t, a, g.ID, time.Minute, time.Minute)
	if l := leases(t, a, "A"); len(l) != 1 || l[0].AttachedCount != 100 || l[0].Holder.Host == "" {
		t.Fatalf("after a restart: %+v", l)
	}
	_, err = a.Admin().Checkpoint(ctx)
	must(t, err)
	clk.Advance(time.Minute + time.Second)
	waitEnded(t, a, g.ID)
	for left := entries(t, a, "/d"); left > 0; left = entries(t, a, "/d") {
		_, err = a.Grant(ctx, time.Minute, 0x77)
		wantKind(t, err, fserror.Exists)
		wantKind(t, a.Detach(ctx, "/d/f099"), fserror.NotFound) // it is being deleted
		n.Restart(t)                                            // the rate begins anew: with a tenth of a second's worth
		testenv.Eventually(t, "files go after a restart", func() bool { return entries(t, a, "/d") < left })
		if !ended(t, a, g.ID) {
			t.Fatal("an ended lease lives after a restart")
		}
		_, err = a.Admin().Checkpoint(ctx)
		must(t, err)
		clk.Advance(time.Second)
	}
	testenv.Eventually(t, "the id is free", func() bool {
		_, err = a.Grant(ctx, time.Minute, 0x77)
		if err != nil {
			wantKind(t, err, fserror.Exists)
		}
		return err == nil
	})
	wantSound(t, a)
}

// attachMany makes files that are attached to a lease.
func attachMany(t *testing.T, a *client.FS, dir, prefix string, count int, id client.LeaseID) {
	t.Helper()
	files := make([]client.FileData, count)
	for i := range files {
		files[i] = client.FileData{Path: fmt.Sprintf("%s/%s%03d", dir, prefix, i), Options: []client.OpenOption{client.WithLease(id)}}
	}
	_, err := a.WriteFiles(t.Context(), files)
	must(t, err)
}

func entries(t *testing.T, fs *client.FS, dir string) int {
	t.Helper()
	return int(stat(t, fs, dir).Entries) //nolint:gosec // small
}

// In safe mode nothing ends, by itself or by a call, and nothing is deleted; the
// time to live counts from its end.
func TestScenario08SafeMode(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, func(c *namenode.Config) { c.ReapRate = 100 })
	ctx := t.Context()
	a := n.Client(t, testenv.Named("A"))
	hasty := n.Client(t, func(c *client.Config) { c.Timeout = 100 * time.Millisecond }) // safe mode is waited for
	must(t, a.Mkdir(ctx, "/d", 0o755))
	l, revoked := grant(t, a, time.Minute), grant(t, a, time.Minute)
	must(t, a.WriteFile(ctx, "/f", nil, client.WithLease(l)))
	attachMany(t, a, "/d", "f", 200, revoked)
	left, err := a.Revoke(ctx, revoked)
	must(t, err)
	if left == 0 {
		t.Fatal("200 files went with one record")
	}
	testenv.Eventually(t, "the rate is used up", func() bool { return entries(t, a, "/d") <= 200-64-10 })
	before := entries(t, a, "/d")

	_, err = a.Admin().SafeMode(ctx, client.SafeModeEnter)
	must(t, err)
	clk.Advance(time.Hour)
	raw := n.Raw(t, "A")
	safe := raw.TxID()
	wantTTL(t, a, l, time.Minute, time.Minute)
	if got := keepAlive(t, raw, l); got[0] != time.Minute {
		t.Fatalf("kept alive for %s in safe mode", got[0])
	}
	_, err = hasty.Revoke(ctx, l)
	wantKind(t, err, fserror.Retry)
	_, err = hasty.Grant(ctx, time.Minute, 0)
	wantKind(t, err, fserror.Retry)
	n.Restart(t)
	wantTTL(t, a, l, time.Minute, time.Minute)
	if now := entries(t, a, "/d"); now != before {
		t.Fatalf("%d of %d files were deleted in safe mode", before-now, before)
	}
	if now := raw.TxID(); now != safe+1 { // the activation
		t.Fatalf("%d records were written in safe mode", now-safe)
	}

	clk.Advance(time.Hour)
	_, err = a.Admin().SafeMode(ctx, client.SafeModeLeave)
	must(t, err)
	wantTTL(t, a, l, time.Minute, time.Minute)
	clk.Advance(time.Minute)
	wantTTL(t, a, l, 0, time.Minute)
	stat(t, a, "/f")
	clk.Advance(time.Millisecond)
	waitEnded(t, a, l)
	gone(t, a, "/f")
	testenv.Eventually(t, "the rest is deleted", func() bool {
		clk.Advance(10 * time.Millisecond)
		return entries(t, a, "/d") == 0
	})
}

// No more is deleted than the rate allows, whatever ends at once; the lease that
// ended first loses its files first, and other calls go on.
func TestScenario08ReapRate(t *testing.T) {
	t.Parallel()
	const rate, burst, one = 100, 10, 64 // one: what may go with the record that ends a lease
	for name, sizes := range map[string][]int{
		"two large leases":   {600, 400},
		"many middling ones": slices.Repeat([]int{50}, 20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, clk := frozen(t, func(c *namenode.Config) { c.ReapRate = rate })
			ctx := t.Context()
			a, b := n.Client(t, testenv.Named("A")), n.Client(t, testenv.Named("B"))
			must(t, a.Mkdir(ctx, "/d", 0o755))
			total := 0
			for i, size := range sizes {
				l := grant(t, a, time.Minute+time.Duration(i)*time.Millisecond)
				attachMany(t, a, "/d", fmt.Sprintf("%02d-", i), size, l)
				total += size
			}
			w, err := b.Watch(ctx, "/d", client.WatchOptions{})
			must(t, err)
			defer w.Close()

			clk.Advance(2 * time.Minute)
			testenv.Eventually(t, "the first files go", func() bool { return entries(t, b, "/d") <= total-burst })
			const step = 100 * time.Millisecond
			over := time.After(30 * time.Second)
			for steps, left := 0, total; left > 0; {
				// Time goes on when the rate is used up, as far as can be seen.
				before := left
				for look := 0; look < 50 && left == before; look++ {
					left = entries(t, b, "/d")
				}
				if most := burst + steps*rate/10 + one; total-left > most {
					t.Fatalf("%d files are gone after %s, at most %d should be", total-left, time.Duration(steps)*step, most)
				}
				select {
				case <-over:
					t.Fatalf("%d files are left after %s", left, time.Duration(steps)*step)
				default:
				}
				steps++
				clk.Advance(step)
				must(t, b.MkdirAll(ctx, fmt.Sprint("/other/", steps), 0o755))
			}

			// The order of the deletions.
			var order []string
			for len(order) < total {
				events, err := w.Next()
				must(t, err)
				for _, e := range events {
					if e.Type == client.EventDelete {
						order = append(order, strings.TrimPrefix(e.Path, "/d/"))
					}
				}
			}
			seen := map[string]int{}
			last := ""
			for i, name := range order {
				lease := name[:2]
				if seen[lease]++; seen[lease] > one && lease < last {
					t.Fatalf("deletion %d: %s of an older lease after those of %s", i, name, last)
				}
				if seen[lease] > one {
					last = lease
				}
			}
			if first := order[0][:2]; first != "00" {
				t.Errorf("the first file to go is of lease %s", first)
			}
		})
	}
}

// A client keeps all its leases alive in one message a round, over restarts. It
// tells of those that ended, and of all of them when no answer came for their
// time to live by its own clock.
func TestScenario08KeptAlive(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, func(c *namenode.Config) { c.MinLeaseTTL = 300 * time.Millisecond })
	ctx := t.Context()
	b := n.Client(t, testenv.Named("B"))
	a, wire := n.Wired(t, testenv.Named("A"))
	const count, ttl = 20, 300 * time.Millisecond // a round each 100 ms of the real clock
	ids := make([]client.LeaseID, count)
	kept := make([]*client.KeptLease, count)
	var err error
	for i := range ids {
		ids[i] = grant(t, a, ttl)
		kept[i], err = a.KeepAlive(ctx, ids[i])
		must(t, err)
	}
	round := func() { // at least one whole round
		t.Helper()
		from := wire.Count("KeepAlive")
		testenv.Eventually(t, "two rounds", func() bool { return wire.Count("KeepAlive") >= from+2 })
	}
	round()
	wire.Set(func(method string, req any, send func() error) error {
		if r, ok := req.(*pb.KeepAliveRequest); ok && len(r.GetIds()) != count {
			t.Errorf("a message keeps %d leases alive, want all %d", len(r.GetIds()), count)
		}
		return send()
	})
	for range 5 {
		clk.Advance(200 * time.Millisecond)
		round()
	}
	n.Restart(t)
	round()
	for range 3 {
		clk.Advance(200 * time.Millisecond)
		round()
	}
	for i, k := range kept {
		if k.ID() != ids[i] || k.Context().Err() != nil || ended(t, b, ids[i]) {
			t.Fatalf("lease %s ended: %v", ids[i], context.Cause(k.Context()))
		}
	}
	wire.Set(nil)

	// One is revoked: its context ends, and no other's.
	_, err = b.Revoke(ctx, ids[0])
	must(t, err)
	<-kept[0].Context().Done()
	wantKind(t, context.Cause(kept[0].Context()), fserror.LeaseLost)
	// One is let go: it ends, and not before its time.
	kept[1].Stop()
	<-kept[1].Context().Done()
	wantKind(t, context.Cause(kept[1].Context()), fserror.Closed)
	round()
	clk.Advance(200 * time.Millisecond)
	if ended(t, b, ids[1]) {
		t.Fatal("Stop revoked the lease")
	}
	round()
	clk.Advance(200 * time.Millisecond)
	waitEnded(t, b, ids[1])
	if err := context.Cause(kept[2].Context()); err != nil {
		t.Fatalf("the others ended: %v", err)
	}
	// A context of its own.
	short, cancel := context.WithCancel(ctx)
	extra, err := a.KeepAlive(short, grant(t, a, ttl))
	must(t, err)
	cancel()
	<-extra.Context().Done()

	// Cut off for as long as they live.
	wire.Cut()
	clk.Advance(200 * time.Millisecond)
	if err := context.Cause(kept[2].Context()); err != nil {
		t.Fatalf("given up before its time: %v", err)
	}
	clk.Advance(100 * time.Millisecond)
	for _, k := range kept[2:] {
		<-k.Context().Done()
		wantKind(t, context.Cause(k.Context()), fserror.LeaseLost)
	}
	wire.Mend()
	last, err := b.KeepAlive(ctx, grant(t, b, ttl))
	must(t, err)
	must(t, b.Close())
	wantKind(t, context.Cause(last.Context()), fserror.Closed)
}

// leaseChanges are the calls about granted leases, for the tests of requests
// that are sent twice (scenario 40).
var leaseChanges = map[string]func(t *testing.T, r *rig, dir string) change{
	"GrantLease": func(_ *testing.T, r *rig, dir string) change {
		id := leaseIn(dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				ttl := map[bool]int64{true: 70_000, false: 60_000}[other]
				return r.a.NN.GrantLease(r.ctx, &pb.GrantLeaseRequest{Call: call, Caller: r.a.Who, Id: uint64(id), TtlMs: ttl})
			},
			undo: func(t *testing.T) {
				_, err := r.b.Revoke(t.Context(), id)
				must(t, err)
			},
			check: func(t *testing.T) {
				if !ended(t, r.b, id) {
					t.Fatal("the lease was granted again")
				}
			},
		}
	},
	"GrantLease without an id": func(_ *testing.T, r *rig, _ string) change {
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				ttl := map[bool]int64{true: 70_000, false: 60_000}[other]
				return r.a.NN.GrantLease(r.ctx, &pb.GrantLeaseRequest{Call: call, Caller: r.a.Who, TtlMs: ttl})
			},
			undo: func(t *testing.T) {
				for _, l := range leases(t, r.b, "A") {
					id, err := client.ParseLeaseID(l.ID)
					must(t, err)
					_, err = r.b.Revoke(t.Context(), id)
					must(t, err)
				}
			},
			check: func(t *testing.T) {
				if l := leases(t, r.b, "A"); len(l) != 0 {
					t.Fatalf("A has %d leases again", len(l))
				}
			},
		}
	},
	"RevokeLease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/f"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				req := &pb.RevokeLeaseRequest{Call: call, Caller: r.a.Who, Id: uint64(id)}
				if other {
					req.Id++
				}
				return r.a.NN.RevokeLease(r.ctx, req)
			},
			undo:  func(t *testing.T) { r.lease(t, dir) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, id) },
		}
	},
	"AttachLease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/f"
		r.lease(t, dir)
		must(t, r.b.Detach(t.Context(), p))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.AttachLease(r.ctx, &pb.AttachLeaseRequest{Call: call, Caller: r.a.Who, Id: uint64(id), Path: r.path(dir, "f", other)})
			},
			undo:  func(t *testing.T) { must(t, r.b.Detach(t.Context(), p)) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, 0) },
		}
	},
	"DetachLease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/f"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.DetachLease(r.ctx, &pb.DetachLeaseRequest{Call: call, Caller: r.a.Who, Path: r.path(dir, "f", other)})
			},
			undo:  func(t *testing.T) { must(t, r.b.Attach(t.Context(), id, p)) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, id) },
		}
	},
	"Create with a lease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/g"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				lease := map[bool]uint64{true: 0, false: uint64(id)}[other]
				return r.a.NN.Create(r.ctx, &pb.CreateRequest{Call: call, Caller: r.a.Who, Path: p, Lease: lease, Close: true})
			},
			undo:  func(t *testing.T) { must(t, r.b.Detach(t.Context(), p)) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, 0) },
		}
	},
	"Rename that detaches": func(t *testing.T, r *rig, dir string) change {
		id, from, to := leaseIn(dir), "/"+dir+"/f", "/"+dir+"/to"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Rename(r.ctx, &pb.RenameRequest{Call: call, Caller: r.a.Who, From: from, To: to, Detach: !other})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Rename(t.Context(), to, from, false))
				must(t, r.b.Attach(t.Context(), id, from))
			},
			check: func(t *testing.T) { wantAttached(t, r.b, from, id); gone(t, r.b, to) },
		}
	},
}

// leaseIn is the id of the lease of a test's directory.
func leaseIn(dir string) client.LeaseID {
	id := client.LeaseID(1000)
	for _, c := range dir {
		id = id*31 + client.LeaseID(c)
	}
	return id
}

// lease grants the lease of a directory and makes a file f that is attached.
func (r *rig) lease(t *testing.T, dir string) {
	t.Helper()
	_, err := r.b.Grant(t.Context(), time.Minute, leaseIn(dir))
	must(t, err)
	must(t, r.b.WriteFile(t.Context(), "/"+dir+"/f", nil, client.WithLease(leaseIn(dir))))
}
