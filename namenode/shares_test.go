package namenode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// withShares starts a namenode with a file of shares, and returns what replaces the file.
func withShares(t *testing.T, text string) (n *env.Namenode, replace func(text string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shares")
	replace = func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(text)
	return env.Start(t, func(c *namenode.Config) {
		var err error
		if c.Shares, err = namenode.OpenShares(clock.System{}, file); err != nil {
			t.Fatal(err)
		}
	}), replace
}

func asUser(r *env.Raw, user string) *env.Raw { r.Who.User = user; return r }

// TestSharesOfStreams: a user has no more sessions, keep-alives, watches and granted leases
// than he may, is told so, and gets back the places of calls that have ended; others are not
// held up, and the file counts when it changes.
func TestSharesOfStreams(t *testing.T) {
	n, replace := withShares(t, "user ann sessions=2 keepalives=1 watches=1 leases=1\n")
	first := asUser(n.Raw(t, "1"), "ann")
	end := first.Connect()
	_ = asUser(n.Raw(t, "2"), "ann").Connect()
	session := func(user string) error {
		r := asUser(n.Raw(t, "more"), user)
		s, err := r.NN.Session(t.Context())
		if err == nil {
			err = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: r.Who}}})
		}
		if err == nil {
			_, err = s.Recv()
		}
		return wire.FromStatus(err)
	}
	tooMany := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fserror.Retry) || fserror.ReasonOf(err) != fserror.ReasonShares || !strings.Contains(err.Error(), "user ann has ") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	tooMany("sessions", session("ann"))
	if err := session("bob"); err != nil {
		t.Errorf("another one: %v", err)
	}
	end()
	env.Eventually(t, "the place is free again", func() bool { return session("ann") == nil })

	keep := func() error {
		s, err := first.NN.KeepAlive(t.Context())
		if err == nil {
			err = s.Send(&pb.KeepAliveRequest{Caller: first.Who})
		}
		if err == nil {
			_, err = s.Recv()
		}
		return wire.FromStatus(err)
	}
	watch := func() error {
		s, err := first.NN.Watch(t.Context(), &pb.WatchRequest{Caller: first.Who, Path: "/"})
		if err == nil {
			_, err = s.Recv()
		}
		return wire.FromStatus(err)
	}
	grant := func() error {
		_, err := first.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: first.Call(), Caller: first.Who, TtlMs: 60_000})
		return err
	}
	for what, take := range map[string]func() error{"keepalives": keep, "watches": watch, "leases": grant} {
		if err := take(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		tooMany(what, take())
	}
	st, err := n.Raw(t, "op").Admin.Status(t.Context(), &pb.StatusRequest{Caller: first.Who})
	if err != nil || len(st.GetGreedy()) != 0 {
		t.Errorf("a user is told who is greedy: %v, %v", st.GetGreedy(), err)
	}
	op := n.Raw(t, "op")
	st, err = op.Admin.Status(t.Context(), &pb.StatusRequest{Caller: op.Who})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, h := range st.GetGreedy() {
		told[h.GetWho()+" "+h.GetWhat()] = h.GetRefused() > 0
	}
	for _, what := range []string{"sessions", "keepalives", "watches", "leases"} {
		if refused, is := told["user ann "+what]; !is || !refused && what != "leases" {
			t.Errorf("%s: %v", what, st.GetGreedy())
		}
	}
	if text := n.Metrics(t); !strings.Contains(text, `leasefs_share_held{what="watches",who="user ann"} 1`) {
		t.Errorf("the metrics have %s", text)
	}
	replace("user ann nonsense\n")
	replace("user ann watches=2\n")
	env.Eventually(t, "the new file counts", func() bool { return watch() == nil })
}

// TestAGreedyUserIsSlowed: who makes more calls than he may gets them done at his rate, waits
// for no longer than his deadline, and holds up neither others nor an operator.
func TestAGreedyUserIsSlowed(t *testing.T) {
	n, _ := withShares(t, "user ann calls=50\n")
	r := asUser(n.Raw(t, "a"), "ann")
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var done, refused atomic.Int64
	var wg sync.WaitGroup
	for range 400 { // 8 seconds' worth at a time, of which 5 may wait
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := r.NN.Stat(ctx, &pb.StatRequest{Caller: r.Who, At: pb.Follow("/")})
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, fserror.Retry):
					refused.Add(1)
					if fserror.ReasonOf(err) != fserror.ReasonShares || !strings.Contains(err.Error(), "ann makes more calls") {
						t.Errorf("%v", err)
					}
					select {
					case <-ctx.Done():
					case <-time.After(100 * time.Millisecond):
					}
				case ctx.Err() == nil:
					t.Errorf("%v", err)
				}
			}
		})
	}
	env.Eventually(t, "calls are refused and done", func() bool { return refused.Load() > 10 && done.Load() > 150 })
	bob, op := asUser(n.Raw(t, "b"), "bob"), n.Raw(t, "op")
	for range 50 {
		if _, err := bob.NN.Stat(t.Context(), &pb.StatRequest{Caller: bob.Who, At: pb.Follow("/")}); err != nil {
			t.Error(err)
		}
		if _, err := op.Admin.Status(t.Context(), &pb.StatusRequest{Caller: op.Who}); err != nil {
			t.Error(err)
		}
	}
	made, took := done.Load(), time.Since(began)
	cancel()
	wg.Wait()
	if most := 100 + 50*took.Seconds() + 1; float64(made) > most {
		t.Errorf("%d calls in %s, more than %.0f", made, took, most)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := op.NN.ListLeases(short, &pb.ListLeasesRequest{Caller: op.Who}); err != nil {
		t.Error(err)
	}
}

// TestOperatorsGetIn: while one takes all places of calls there are, an operator on the
// namenode's machine sees how it is and recovers a file.
func TestOperatorsGetIn(t *testing.T) {
	n, _ := withShares(t, "user * calls=1\naddress * calls=1\n")
	greedy, op := asUser(n.Raw(t, "g"), "ann"), n.Raw(t, "op")
	op.Make("/d")
	for range 20 { // ann's and the address's calls are used up for a while
		go func() {
			_, _ = greedy.NN.Stat(t.Context(), &pb.StatRequest{Caller: greedy.Who, At: pb.Follow("/")})
		}()
	}
	for i := range 20 {
		if _, err := op.Admin.Status(t.Context(), &pb.StatusRequest{Caller: op.Who}); err != nil {
			t.Fatalf("status %d: %v", i, err)
		}
		if _, err := op.NN.ListLeases(t.Context(), &pb.ListLeasesRequest{Caller: op.Who}); err != nil {
			t.Fatalf("leases %d: %v", i, err)
		}
	}
}
