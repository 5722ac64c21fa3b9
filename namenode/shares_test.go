package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

func asUser(r *env.Raw, user string) *env.Raw {
	r.Who.User, r.Who.Session = user, pb.NewSession(user)
	return r
}

// TestSharesOfStreams: a user has no more sessions, keep-alives, watches and granted leases
// than he may, is told so, and gets back the places of calls that have ended; others are not
// held up, and the file counts when it changes.
func TestSharesOfStreams(t *testing.T) {
	t.Parallel()
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
	who, err := first.NN.WhoAmI(t.Context(), &pb.WhoAmIRequest{Caller: first.Who})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for _, h := range who.GetHeld() {
		own[h.GetWhat()] = fmt.Sprintf("%s %d of %d", h.GetWho(), h.GetHeld(), h.GetMost())
	}
	if want := map[string]string{"sessions": "user ann 2 of 2", "keepalives": "user ann 1 of 1", "watches": "user ann 1 of 1", "leases": "user ann 1 of 1"}; !maps.Equal(own, want) {
		t.Errorf("a user is told that he holds %v, want %v", own, want)
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

// TestSharesOfOpenFiles: a user has no more files open for write than he may, in all his sessions
// together, however they are opened; what is closed, ended or taken from him makes room.
func TestSharesOfOpenFiles(t *testing.T) {
	t.Parallel()
	n, replace := withShares(t, "user ann files=2\n")
	op := n.Raw(t, "op")
	if _, err := op.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: op.Call(), Caller: op.Who, At: pb.At("/"), SetMode: true, Mode: 0o1777}); err != nil {
		t.Fatal(err)
	}
	one, two, bob := asUser(n.Raw(t, "1"), "ann"), asUser(n.Raw(t, "2"), "ann"), asUser(n.Raw(t, "b"), "bob")
	create := func(r *env.Raw, path string) (*pb.WriterId, error) {
		w, err := r.NN.Create(t.Context(), &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path)})
		return w.GetWriter(), err
	}
	reopen := func(r *env.Raw, path string, create bool) error {
		_, err := r.NN.Append(t.Context(), &pb.AppendRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Create: create})
		return err
	}
	shut := func(r *env.Raw, w *pb.WriterId) {
		t.Helper()
		if _, err := r.NN.Close(t.Context(), &pb.CloseRequest{Call: r.Call(), Writer: w}); err != nil {
			t.Fatal(err)
		}
	}
	held := func() int64 {
		t.Helper()
		st, err := op.Admin.Status(t.Context(), &pb.StatusRequest{Caller: op.Who})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range st.GetGreedy() {
			if h.GetWhat() == "files" && h.GetWho() == "user ann" {
				return h.GetHeld()
			}
		}
		return 0
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fserror.Retry) || fserror.ReasonOf(err) != fserror.ReasonShares || !strings.Contains(err.Error(), "user ann has 2 files open for write, and may have 2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	a, err := create(one, "/a")
	if err == nil {
		_, err = create(two, "/b")
	}
	if err == nil {
		_, err = create(bob, "/bobs")
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := held(); got != 2 {
		t.Errorf("ann has %d files", got)
	}
	_, err = create(two, "/c")
	refused("create", err)
	refused("an append that makes the file", reopen(one, "/d", true))
	if _, err := one.NN.Create(t.Context(), &pb.CreateRequest{Call: one.Call(), Caller: one.Who, At: pb.At("/whole"), Close: true}); err != nil {
		t.Errorf("a file made whole is never open: %v", err)
	}
	refused("append", reopen(one, "/whole", false))
	if text := n.Metrics(t); !strings.Contains(text, `leasefs_share_held{what="files",who="user ann"} 2`) {
		t.Errorf("the metrics have %s", text)
	}
	shut(one, a)
	if err := reopen(one, "/whole", false); err != nil {
		t.Errorf("after a close: %v", err)
	}
	// A restart counts what is open, and a takeover gives back.
	n.Restart(t)
	if got := held(); got != 2 {
		t.Errorf("after a restart ann has %d files", got)
	}
	if _, err := op.NN.Recover(t.Context(), &pb.RecoverRequest{Call: op.Call(), Caller: op.Who, At: pb.At("/b"), Force: true}); err != nil {
		t.Fatal(err)
	}
	if err := reopen(one, "/a", false); err != nil {
		t.Errorf("after a recovery: %v", err)
	}
	refused("append", reopen(one, "/b", false))
	replace("user ann files=3\n")
	env.Eventually(t, "the new file counts", func() bool { return reopen(one, "/b", false) == nil })
	// A line of * is for all others, and for no superuser on this machine.
	replace("user * files=1\n")
	made := 0
	env.Eventually(t, "bob has as many as all may", func() bool {
		made++
		w, err := create(bob, fmt.Sprint("/more", made))
		if err == nil {
			shut(bob, w)
			return false
		}
		return errors.Is(err, fserror.Retry) && strings.Contains(err.Error(), "user bob has 1 files open for write, and may have 1")
	})
	for _, path := range []string{"/op1", "/op2"} {
		if _, err := create(op, path); err != nil {
			t.Errorf("an operator: %v", err)
		}
	}
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
	// What his share refuses him is no overload, which an operator would have to end.
	if m := n.Metrics(t); !strings.Contains(m, "\nleasefs_calls_shed_total 0\n") || strings.Contains(m, "\nleasefs_shares_refused_total 0\n") {
		t.Error("refusals of a share count as an overload, or not at all")
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := op.NN.ListLeases(soon, &pb.ListLeasesRequest{Caller: op.Who}); err != nil {
		t.Error(err)
	}
}

// TestOperatorsGetIn: while the calls of one user, and of the address that he shares with an
// operator on the namenode's machine, are used up, the operator sees how it is and who holds what.
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
