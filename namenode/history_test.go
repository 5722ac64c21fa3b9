package namenode_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/leasehistory"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// told is the history as lines: who held what, and why that ended, by whom.
func told(t *testing.T, fs *client.FS, f leasehistory.Filter) (lines []string) {
	t.Helper()
	about, err := leasehistory.Read(t.Context(), fs, f, func(s *leasehistory.Span) error {
		line := fmt.Sprint(s.Holder.Client, " ", s.Path, s.Name, " ", s.Why)
		if s.TxID == 0 {
			line += "now"
		}
		if s.By != nil {
			line += fmt.Sprint(" by ", s.By.User, "/", s.By.Client)
		}
		if s.Unknown {
			line = "unknown"
		}
		if s.To.Before(s.From) && s.TxID != 0 || s.From.IsZero() {
			t.Errorf("%+v", s)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil || about.Problem != "" || about.KeptFrom.IsZero() {
		t.Fatal(about, err)
	}
	return lines
}

func wantTold(t *testing.T, fs *client.FS, f leasehistory.Filter, want ...string) {
	t.Helper()
	if got := told(t, fs, f); !slices.Equal(got, want) {
		t.Errorf("%+v\n%s\nwant\n%s", f, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestLeaseHistory: each way in which a lease ends is told, the same after a restart, also
// one from an image, and one that was no clean one.
func TestLeaseHistory(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	a, b := n.Client(t, env.Named("a")), n.Client(t, env.Named("b"))
	writer := must[*client.Writer](t)
	check(t, writer(a.Create(ctx, "/d/f", client.WithParents())).Close())
	writer(a.Append(ctx, "/d/f"))
	must[client.RecoverResult](t)(b.Recover(ctx, "/d/f", true))
	writer(a.Append(ctx, "/d/f"))
	writer(b.Create(ctx, "/d/f", client.WithOverwrite(), client.WithSteal()))
	check(t, a.RemoveAll(ctx, "/d"))
	g := must[client.Granted](t)(a.Leases().GrantNamed(ctx, time.Hour, "server-1"))
	writer(b.Create(ctx, "/g", client.WithLease(g.ID)))
	check(t, a.Rename(ctx, "/g", "/h", false))
	want := func() {
		t.Helper()
		ended := []string{"a /d/f replaced by root/b", "a /d/f forced by root/b", "a /d/f closed"}
		wantTold(t, b, leasehistory.Filter{Path: "/d/f"}, append([]string{"b /d/f deleted by root/a"}, ended...)...)
		wantTold(t, b, leasehistory.Filter{Path: "/d/f", Limit: 2}, "b /d/f deleted by root/a", ended[0])
		wantTold(t, b, leasehistory.Filter{Holder: "a"}, append([]string{"a server-1 now"}, ended...)...)
		wantTold(t, b, leasehistory.Filter{Path: "/h"}, "b /h now", "a server-1 now")
		wantTold(t, b, leasehistory.Filter{Path: "/g"})
		wantTold(t, b, leasehistory.Filter{Path: "/d/f", Since: time.Now().Add(time.Hour)})
	}
	want()
	n.Restart(t)
	want()
	must[client.CheckpointResult](t)(a.Admin().Checkpoint(ctx))
	n.Restart(t)
	want()
	check(t, a.Leases().Revoke(ctx, g.ID))
	wantTold(t, b, leasehistory.Filter{Lease: "server-1"}, "a server-1 revoked by root/a")
	wantTold(t, b, leasehistory.Filter{Lease: g.ID.String()}, "a server-1 revoked by root/a")
	wantTold(t, b, leasehistory.Filter{Path: "/h"}, "b /h lease revoked by root/a")
	if _, err := leasehistory.Read(ctx, a, leasehistory.Filter{Path: "/h", Holder: "a"}, nil); !errors.Is(err, fserror.InvalidArgument) {
		t.Error(err)
	}

	// Paging, over a restart.
	for range 250 {
		check(t, writer(a.Create(ctx, "/p", client.WithOverwrite())).Close())
	}
	if got := told(t, b, leasehistory.Filter{Path: "/p"}); len(got) != 250 || got[7] != "a /p closed" {
		t.Errorf("%d: %v", len(got), got[:8])
	}
	seen := 0
	if _, err := leasehistory.Read(ctx, b, leasehistory.Filter{Path: "/p"}, func(*leasehistory.Span) error {
		if seen++; seen == 10 {
			n.Restart(t)
		}
		return nil
	}); err != nil || seen != 250 {
		t.Error(seen, err)
	}
}

// TestLeaseHistoryOfWhatExpired: of a writer that falls silent it is told that the hard limit closed
// its file, and of a granted lease that nobody kept alive that it expired, as of its files; to
// a watcher, too. Nobody has done that. Of what others took over or recovered after the soft limit
// it is told who.
func TestLeaseHistoryOfWhatExpired(t *testing.T) {
	t.Parallel()
	clk, fake := env.FakeClock()
	n := env.Start(t, fake, reapFast)
	ctx := t.Context()
	a, b := n.Raw(t, "a"), n.Client(t, env.Named("b"))
	for _, path := range []string{"/f", "/taken", "/recovered"} {
		a.Create(path)
	}
	g, err := a.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: a.Call(), Caller: a.Who, TtlMs: shortTTL.Milliseconds(), Name: "server-1"})
	if err == nil {
		_, err = a.NN.Create(ctx, &pb.CreateRequest{Call: a.Call(), Caller: a.Who, At: pb.At("/open"), Lease: g.GetId()})
	}
	if err == nil {
		_, err = a.NN.Create(ctx, &pb.CreateRequest{Call: a.Call(), Caller: a.Who, At: pb.At("/closed"), Lease: g.GetId(), Close: true})
	}
	check(t, err)
	clk.Advance(shortTTL + time.Second)
	env.Eventually(t, "the granted lease ends", func() bool { return look(t, a, "/open") == nil && look(t, a, "/closed") == nil })
	check(t, must[*client.Writer](t)(b.Append(ctx, "/taken")).Close())
	must[client.RecoverResult](t)(b.Recover(ctx, "/recovered", false))
	clk.Advance(namenode.DefaultHardLimit)
	env.Eventually(t, "the file is closed", func() bool { return look(t, a, "/f").GetOpen() == nil })
	for range 2 {
		wantTold(t, b, leasehistory.Filter{Path: "/f"}, "a /f hard limit")
		wantTold(t, b, leasehistory.Filter{Path: "/open"}, "a /open lease expired")
		wantTold(t, b, leasehistory.Filter{Lease: "server-1"}, "a server-1 expired")
		wantTold(t, b, leasehistory.Filter{Path: "/taken"}, "b /taken closed", "a /taken taken over by root/b")
		wantTold(t, b, leasehistory.Filter{Path: "/recovered"}, "a /recovered soft limit by root/b")
		wantWatched(t, b, "close /open lease expired", "delete /open lease expired", "delete /closed lease expired", "close /recovered soft limit by root/b", "close /f hard limit")
		n.Restart(t)
	}
}

// TestLeaseHistoryPermission: who may not search a directory learns no name in it, and
// whose leases there are everybody may know.
func TestLeaseHistoryPermission(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	a, ann := n.Client(t, env.Named("a")), n.Client(t, env.Named("b"), func(c *client.Config) { c.User = "ann" })
	check(t, a.Mkdir(ctx, "/closed", 0o700))
	check(t, must[*client.Writer](t)(a.Create(ctx, "/closed/f")).Close(), must[*client.Writer](t)(a.Create(ctx, "/gone/f", client.WithParents())).Close())
	check(t, a.RemoveAll(ctx, "/gone"))
	wantTold(t, ann, leasehistory.Filter{Holder: "a"}, "a  closed", "a  closed")
	wantTold(t, a, leasehistory.Filter{Holder: "a"}, "a /gone/f closed", "a /closed/f closed")
	if _, err := leasehistory.Read(ctx, ann, leasehistory.Filter{Path: "/closed/f"}, nil); !errors.Is(err, fserror.Permission) {
		t.Error(err)
	}
	wantTold(t, ann, leasehistory.Filter{Path: "/gone/f"})
	check(t, a.Rename(ctx, "/closed", "/moved", false), a.Mkdir(ctx, "/closed", 0o755))
	wantTold(t, ann, leasehistory.Filter{Path: "/closed/f"}) // what that name was of is elsewhere
	wantTold(t, a, leasehistory.Filter{Path: "/moved/f"}, "a /closed/f closed")
}

// TestLeaseHistoryOff: a namenode that keeps none says so, and one that keeps it again does
// not pretend to know of the time between.
func TestLeaseHistoryOff(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	a := n.Client(t, env.Named("a"))
	write := func(path string) { check(t, must[*client.Writer](t)(a.Create(ctx, path)).Close()) }
	write("/1")
	wantTold(t, a, leasehistory.Filter{Holder: "a"}, "a /1 closed")
	n.Restart(t, func(c *namenode.Config) { c.LeaseHistory = -1 })
	write("/2")
	if _, err := leasehistory.Read(ctx, a, leasehistory.Filter{Path: "/1"}, nil); !errors.Is(err, fserror.Unsupported) {
		t.Error(err)
	}
	must[client.CheckpointResult](t)(a.Admin().Checkpoint(ctx))
	n.Restart(t, func(c *namenode.Config) { c.LeaseHistory = 0 })
	write("/3")
	wantTold(t, a, leasehistory.Filter{Holder: "a"}, "a /3 closed", "unknown", "a /1 closed")
}

// TestLeaseHistoryAfterFailover: each of several namenodes tells the same.
func TestLeaseHistoryAfterFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	a, b := p.active(acfg), p.start(bcfg)
	fs := p.client(acfg.Listen, bcfg.Listen)
	ctx := t.Context()
	for i := range 20 {
		w := must[*client.Writer](t)(fs.Create(ctx, fmt.Sprint("/", i)))
		if i%2 == 0 {
			must[client.RecoverResult](t)(fs.Recover(ctx, fmt.Sprint("/", i), true))
		} else {
			check(t, w.Close())
		}
	}
	holder := fs.Info().Client
	before := told(t, fs, leasehistory.Filter{Holder: holder})
	if len(before) != 20 {
		t.Fatalf("%d: %v", len(before), before)
	}
	p.becomes(b, "standby")
	check(t, a.Close())
	p.becomes(b, "active")
	wantTold(t, fs, leasehistory.Filter{Holder: holder}, before...)
	check(t, b.Close())
}

// TestWatchTellsWhy: a watcher is told why something went, and by whom, also from records
// that a restart has read.
func TestWatchTellsWhy(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	a, b := n.Client(t, env.Named("a")), n.Client(t, env.Named("b"))
	check(t, a.WriteFile(ctx, "/x", nil), a.WriteFile(ctx, "/y", nil), a.WriteFile(ctx, "/z", nil))
	must[*client.Writer](t)(a.Append(ctx, "/x"))
	must[client.RecoverResult](t)(b.Recover(ctx, "/x", true))
	check(t, b.Remove(ctx, "/x"), a.Rename(ctx, "/y", "/z", true), b.WriteFile(ctx, "/z", nil, client.WithOverwrite()))
	g := must[client.Granted](t)(a.Leases().Grant(ctx, time.Hour, 0))
	check(t, a.WriteFile(ctx, "/g", nil, client.WithLease(g.ID)), a.Leases().Revoke(ctx, g.ID))
	want := []string{"close /x forced by root/b", "delete /x deleted by root/b", "delete /z replaced by root/a", "delete /z replaced by root/", "delete /g lease revoked by root/a"}
	for range 2 {
		wantWatched(t, b, want...)
		n.Restart(t)
	}
}

// wantWatched wants a watcher to be told why these things happened, and by whom.
func wantWatched(t *testing.T, fs *client.FS, want ...string) {
	t.Helper()
	w := must[*client.Watcher](t)(fs.Watch(t.Context(), "/", client.WatchOptions{From: 1, Recursive: true}))
	defer w.Close()
	var got []string
	for len(got) < len(want) {
		for _, e := range must[[]client.Event](t)(w.Next()) {
			if e.Why != "" {
				line := fmt.Sprint(e.Type, " ", e.Path, " ", e.Why)
				if e.By != nil {
					line += fmt.Sprint(" by ", e.By.User, "/", e.By.Client)
				}
				got = append(got, line)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}
