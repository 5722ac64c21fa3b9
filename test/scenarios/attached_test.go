package scenarios_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

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
			must(t, a.Leases().Revoke(t.Context(), id))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, clk := frozen(t)
			ctx := t.Context()
			a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
			l, other := grant(t, a, time.Minute), grant(t, a, time.Hour)
			must(t, a.Mkdir(ctx, "/d", 0o755))
			mine := client.WithLease(l)
			must(t, a.WriteFile(ctx, "/d/small", []byte("x"), mine))
			must(t, a.WriteFile(ctx, "/d/later", []byte("x")))
			must(t, a.Leases().Attach(ctx, l, "/d/later"))
			must(t, a.Leases().Attach(ctx, l, "/d/later")) // again: nothing to do
			must(t, a.WriteFile(ctx, "/d/renamed", []byte("x"), mine))
			must(t, a.Rename(ctx, "/d/renamed", "/d/renamed2", false))
			must(t, a.WriteFile(ctx, "/d/replaced", []byte("old"), mine))
			must(t, a.WriteFile(ctx, "/d/replaced", []byte("new"), client.WithOverwrite()))
			must(t, a.WriteFile(ctx, "/d/detached", []byte("x"), mine))
			must(t, a.Leases().Detach(ctx, "/d/detached"))
			must(t, a.WriteFile(ctx, "/d/moved", []byte("x"), mine))
			must(t, a.Leases().Attach(ctx, other, "/d/moved"))
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
			ttl, err := a.Leases().TimeToLive(ctx, l, true)
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
			err = a.Leases().Revoke(ctx, other)
			must(t, err)
			gone(t, b, "/d/moved")
		})
	}
}

// The end of a lease outlives restarts, even during the removal of its files: they stay
// deleted, and its id is free.
func TestScenario08Restart(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, func(c *namenode.Config) { c.ReapRate = 100 })
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	g, err := a.Leases().Grant(ctx, time.Minute, 0x77)
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
	for i, left := 0, stored(t, a); left > 0; i, left = i+1, stored(t, a) {
		if n := entries(t, a, "/d"); n != 0 {
			t.Fatalf("%d files are there though their lease has ended", n)
		}
		wantKind(t, a.Leases().Detach(ctx, "/d/f099"), fserror.NotFound)
		n.Restart(t) // the rate begins again: with a tenth of a second's worth
		env.Eventually(t, "files are removed after a restart", func() bool { return stored(t, a) < left })
		if i == 0 {
			if !ended(t, a, g.ID) {
				t.Fatal("an ended lease lives after a restart")
			}
			_, err = a.Leases().Grant(ctx, time.Hour, 0x77)
			must(t, err)
		}
		if ended(t, a, g.ID) {
			t.Fatal("a lease has ended with an older one of its id")
		}
		_, err = a.Admin().Checkpoint(ctx)
		must(t, err)
		clk.Advance(time.Second)
	}
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

// stored is how many files take memory, including those that have left the tree.
func stored(t *testing.T, fs *client.FS) int {
	t.Helper()
	st, err := fs.Status(t.Context())
	must(t, err)
	return int(st[0].Files) //nolint:gosec // small
}

// A page of a listing has what lives, though more went with a lease, and is still in
// memory, than one look at the directory passes over.
func TestScenario08ListedAmidTheDead(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, func(c *namenode.Config) { c.ReapRate = 10 }) // by a clock that stands still
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	l := grant(t, a, time.Minute)
	attachMany(t, a, "/d", "f", 10_100, l)
	must(t, a.WriteFile(ctx, "/d/zz", nil))
	must(t, a.Leases().Revoke(ctx, l))
	listed, more, err := a.List(ctx, "/d", "", 0)
	if err != nil || more || len(listed) != 1 || listed[0].Name() != "zz" || stored(t, a) < 10_050 {
		t.Fatalf("%d entries of %d files in memory, more: %v, %v", len(listed), stored(t, a), more, err)
	}
}

// Everything up to its TxID is in a listing, also if it took several looks at a directory
// to pass over what went with a lease.
func TestScenario08ListingsHaveAllUpToTheirTxID(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, func(c *namenode.Config) { c.ReapRate = 10 })
	ctx := t.Context()
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	l := grant(t, a, time.Minute)
	attachMany(t, a, "/d", "f", 30_100, l)
	must(t, a.WriteFile(ctx, "/d/zz", nil))
	must(t, a.Leases().Revoke(ctx, l))
	type listing struct {
		names map[string]bool
		upTo  uint64
		err   error
	}
	listings := make(chan listing)
	go func() {
		defer close(listings)
		for range 100 {
			got, _, err := a.List(ctx, "/d", "", 0)
			l := listing{names: map[string]bool{}, err: err}
			for _, e := range got {
				l.names[e.Name()], l.upTo = true, e.TxID
			}
			listings <- l
		}
	}()
	type made struct {
		name string
		txid uint64 // it was there by then
	}
	var all []made
	for listing := range listings {
		must(t, listing.err)
		for _, m := range all {
			if m.txid <= listing.upTo && !listing.names[m.name] {
				t.Errorf("a listing up to %d lacks %s, which was there by %d", listing.upTo, m.name, m.txid)
			}
		}
		for range 3 { // while the next listing is under way
			name := fmt.Sprintf("a%06d", len(all))
			must(t, b.WriteFile(ctx, "/d/"+name, nil))
			st, err := b.Status(ctx)
			must(t, err)
			all = append(all, made{name, st[0].DurableTxID})
		}
	}
}

// In safe mode nothing ends, by itself or by a call, and nothing is removed; the
// time to live counts from its end.
func TestScenario08SafeMode(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, func(c *namenode.Config) { c.ReapRate = 100 })
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	l, revoked := grant(t, a, time.Minute), grant(t, a, time.Minute)
	must(t, a.WriteFile(ctx, "/f", nil, client.WithLease(l)))
	attachMany(t, a, "/d", "f", 200, revoked)
	must(t, a.Leases().Revoke(ctx, revoked))
	if n := entries(t, a, "/d"); n != 0 {
		t.Fatalf("%d files are there though their lease was revoked", n)
	}
	env.Eventually(t, "the rate is used up", func() bool { return stored(t, a) == 201-10 })
	before := stored(t, a)

	_, err := a.Admin().SafeMode(ctx, client.SafeModeEnter)
	must(t, err)
	clk.Advance(time.Hour)
	raw := n.Raw(t, "A")
	safe := raw.TxID()
	wantTTL(t, a, l, time.Minute, time.Minute)
	if got := keepAlive(t, raw, l); got[0] != time.Minute {
		t.Fatalf("kept alive for %s in safe mode", got[0])
	}
	_, err = raw.NN.RevokeLease(ctx, &pb.RevokeLeaseRequest{Call: raw.Call(), Caller: raw.Who, Id: uint64(l)})
	wantKind(t, err, fserror.Retry)
	_, err = raw.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: raw.Call(), Caller: raw.Who, TtlMs: 60_000})
	wantKind(t, err, fserror.Retry)
	n.Restart(t)
	wantTTL(t, a, l, time.Minute, time.Minute)
	if now := stored(t, a); now != before {
		t.Fatalf("%d of %d files were removed in safe mode", before-now, before)
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
	env.Eventually(t, "the rest is removed", func() bool {
		clk.Advance(10 * time.Millisecond)
		return stored(t, a) == 0
	})
}

// Leases that expire together end together, however many files that deletes. Their memory is
// freed no faster than the rate allows, and other calls continue.
func TestScenario08ReapRate(t *testing.T) {
	t.Parallel()
	const rate, burst = 100, 10
	for name, sizes := range map[string][]int{
		"two large leases":   {600, 400},
		"many middling ones": slices.Repeat([]int{50}, 20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, clk := frozen(t, func(c *namenode.Config) { c.ReapRate = rate })
			ctx := t.Context()
			a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
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
			env.Eventually(t, "all leases end while no time passes", func() bool {
				left := entries(t, b, "/d")
				if left > 0 && left != total && !partOf(sizes, total-left) {
					t.Fatalf("%d of %d files are there: a lease has ended in part", left, total)
				}
				return left == 0
			})
			for steps, left := 0, total; left > 0; {
				env.Eventually(t, "what the rate allows is removed", func() bool {
					left = stored(t, b)
					return left <= max(0, total-burst-steps*rate/10)
				})
				if most := burst + steps*rate/10; total-left > most {
					t.Fatalf("%d files are removed after %d steps, at most %d should be", total-left, steps, most)
				}
				steps++
				clk.Advance(100 * time.Millisecond)
				must(t, b.MkdirAll(ctx, fmt.Sprint("/other/", steps), 0o755))
			}

			// Watchers were told of each file once, lease by lease.
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
			if !slices.IsSortedFunc(order, func(a, b string) int { return strings.Compare(a[:2], b[:2]) }) {
				t.Errorf("files went in the order %v", order)
			}
			slices.Sort(order)
			if len(slices.Compact(order)) != total {
				t.Error("watchers were told of a file twice")
			}
		})
	}
}

// partOf reports whether a number is the sum of the first sizes.
func partOf(sizes []int, n int) bool {
	for _, size := range sizes {
		if n -= size; n == 0 {
			return true
		}
	}
	return false
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
				err := r.b.Leases().Revoke(t.Context(), id)
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
					err = r.b.Leases().Revoke(t.Context(), id)
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
		must(t, r.b.Remove(t.Context(), p)) // else its removal would be a record, too
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
		must(t, r.b.Leases().Detach(t.Context(), p))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.AttachLease(r.ctx, &pb.AttachLeaseRequest{Call: call, Caller: r.a.Who, Id: uint64(id), At: pb.At(r.path(dir, "f", other))})
			},
			undo:  func(t *testing.T) { must(t, r.b.Leases().Detach(t.Context(), p)) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, 0) },
		}
	},
	"DetachLease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/f"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.DetachLease(r.ctx, &pb.DetachLeaseRequest{Call: call, Caller: r.a.Who, At: pb.At(r.path(dir, "f", other))})
			},
			undo:  func(t *testing.T) { must(t, r.b.Leases().Attach(t.Context(), id, p)) },
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
				return r.a.NN.Create(r.ctx, &pb.CreateRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Lease: lease, Close: true})
			},
			undo:  func(t *testing.T) { must(t, r.b.Leases().Detach(t.Context(), p)) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, 0) },
		}
	},
	"Mkdir with a lease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/made"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				lease := map[bool]uint64{true: 0, false: uint64(id)}[other]
				return r.a.NN.Mkdir(r.ctx, &pb.MkdirRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Lease: lease})
			},
			undo:  func(t *testing.T) { must(t, r.b.Leases().Detach(t.Context(), p)) },
			check: func(t *testing.T) { wantAttached(t, r.b, p, 0) },
		}
	},
	"Symlink with a lease": func(t *testing.T, r *rig, dir string) change {
		id, p := leaseIn(dir), "/"+dir+"/link"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				lease := map[bool]uint64{true: 0, false: uint64(id)}[other]
				return r.a.NN.Symlink(r.ctx, &pb.SymlinkRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Target: "f", Lease: lease})
			},
			undo: func(t *testing.T) { must(t, r.b.Leases().Detach(t.Context(), p)) },
			check: func(t *testing.T) {
				if l, err := r.b.Lstat(t.Context(), p); err != nil || l.Lease != 0 {
					t.Fatal(l, err)
				}
			},
		}
	},
	"Rename that detaches": func(t *testing.T, r *rig, dir string) change {
		id, from, to := leaseIn(dir), "/"+dir+"/f", "/"+dir+"/to"
		r.lease(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Rename(r.ctx, &pb.RenameRequest{Call: call, Caller: r.a.Who, From: pb.At(from), To: pb.At(to), Detach: !other})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Rename(t.Context(), to, from, false))
				must(t, r.b.Leases().Attach(t.Context(), id, from))
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
	_, err := r.b.Leases().Grant(t.Context(), time.Minute, leaseIn(dir))
	must(t, err)
	must(t, r.b.WriteFile(t.Context(), "/"+dir+"/f", nil, client.WithLease(leaseIn(dir))))
}

// How long each pass of the monitor held the lock is a metric.
func TestScenario06PassLockIsMeasured(t *testing.T) {
	t.Parallel()
	n := env.Start(t, func(c *namenode.Config) { c.MinLeaseTTL = 50 * time.Millisecond })
	a := n.Client(t)
	for range 20 {
		attachMany(t, a, "/", "f"+grant(t, a, time.Hour).String(), 1, grant(t, a, 50*time.Millisecond))
	}
	var got string
	env.Eventually(t, "all are counted, the files are gone, and a pass was measured", func() bool {
		got = n.Metrics(t)
		return strings.Contains(got, "leasefs_granted_leases_expired_total 20\n") && entries(t, a, "/") == 0 &&
			!strings.Contains(got, "leasefs_lease_pass_lock_seconds_count 0\n")
	})
	if line := `leasefs_lease_pass_lock_seconds_bucket{le="0.025"} `; !strings.Contains(got, line) {
		t.Errorf("%q is not in\n%s", line, got)
	}
}

// Who may remove another's file where it is now can do that, but not have it go
// later, when it may be where he could not.
func TestOnlyOwnersAttach(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	as := func(user string) *client.FS {
		return n.Client(t, env.Named(user), func(c *client.Config) { c.User = user })
	}
	root, victim, stranger := as("root"), as("victim"), as("stranger")
	must(t, root.Mkdir(ctx, "/in", 0o777))
	must(t, root.Chmod(ctx, "/in", 0o777))
	must(t, root.Mkdir(ctx, "/private", 0o700))
	must(t, root.Chown(ctx, "/private", "victim", ""))
	l := grant(t, stranger, time.Hour)
	for _, name := range []string{"a", "b", "c"} {
		must(t, victim.WriteFile(ctx, "/in/"+name, []byte(name)))
	}
	if err := stranger.Leases().Attach(ctx, l, "/in/a"); !errors.Is(err, fserror.Permission) {
		t.Errorf("a stranger attaches another's file: %v", err)
	}
	b, err := victim.Stat(ctx, "/in/b")
	must(t, err)
	if hidden, err := lowlevel.Of(stranger).RemoveTaken(ctx, lowlevel.At("/in/b"), lowlevel.Taken{Inode: b.Inode, Hidden: "b2", Lease: uint64(l)}); hidden || err != nil {
		t.Errorf("a stranger who removes another's file has it hidden: %v, %v", hidden, err)
	}
	all, err := victim.ReadDir(ctx, "/in")
	must(t, err)
	for _, i := range all {
		must(t, victim.Rename(ctx, i.Path, "/private/"+i.Name(), false))
	}
	err = stranger.Leases().Revoke(ctx, l)
	must(t, err)
	for _, i := range all {
		if _, err := victim.Stat(ctx, "/private/"+i.Name()); err != nil {
			t.Errorf("a stranger's lease has removed a private file: %v", err)
		}
	}
	if len(all) != 2 {
		t.Errorf("there are %d files, want what was not removed", len(all))
	}
	// The owner and a superuser may.
	mine := grant(t, victim, time.Hour)
	must(t, victim.Leases().Attach(ctx, mine, "/private/a"))
	must(t, root.Leases().Attach(ctx, grant(t, root, time.Hour), "/private/c"))
}
