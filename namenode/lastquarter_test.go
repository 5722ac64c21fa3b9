package namenode_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// shared is how much there is of a thing in these tests, manyOfOne more than that.
const shared, manyOfOne = 64, 200

// Of each thing that all callers share, one user cannot take so much that another
// is refused; and an administrator on the namenode's machine is served even if
// others have taken all that is left.
func TestOneUserLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		limit func(*namenode.Config)
		take  func(t *testing.T, r *env.Raw, i int) error // takes one more, and keeps it
	}{
		{"watches", nil, takeWatch},
		{"waiting calls", nil, nil}, // see takeWait
		{"granted leases", nil, takeLease},
		{"caching sessions", nil, takeCache},
		{"sessions of which results are kept", nil, takeSession},
		{"tail budget", func(c *namenode.Config) { c.TailBudget = shared << 10 }, takeTail},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := env.Start(t, func(c *namenode.Config) {
				c.MaxStreams, c.MaxWatches, c.MaxWaiting = 10*manyOfOne, shared, shared
				if tc.limit != nil {
					tc.limit(c)
				}
			})
			n.ShareLittle(shared)
			if tc.take == nil {
				tc.take = takeWait(n)
			}
			admin := n.Raw(t, "admin")
			held := admin.Create("/held")
			if err := admin.Flush(held, 0, "x"); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: admin.Call(), Caller: admin.Who, At: pb.At("/"), SetMode: true, Mode: 0o1777}); err != nil {
				t.Fatal(err)
			}
			greedy := n.RawFrom(t, "greedy", "127.0.0.2")
			took := takeAll(t, greedy, tc.take)
			if took == 0 || took >= shared {
				t.Fatalf("one user got %d of %d", took, shared)
			}
			modest := n.RawFrom(t, "modest", "127.0.0.3")
			if err := tc.take(t, modest, 0); err != nil {
				t.Fatalf("one user has %d, and another gets none: %v", took, err)
			}
			if tc.name == "caching sessions" {
				return // who may not cache is served all the same
			}
			for i := range shared { // until those who hold little have all of their part
				other := n.RawFrom(t, fmt.Sprintf("user%d", i), fmt.Sprintf("127.0.1.%d", i+1))
				if tc.take(t, other, 0) != nil {
					break
				}
			}
			if err := tc.take(t, admin, 0); err != nil {
				t.Fatalf("others have all, and the administrator gets none: %v", err)
			}
		})
	}
}

// TestGrantedLeasesCountAfterARestart: a restart gives a user who has many leases no
// room for as many more, and what was granted before gives room when it ends.
func TestGrantedLeasesCountAfterARestart(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	greedy := n.RawFrom(t, "greedy", "127.0.0.2")
	const before = 10
	ids := make([]uint64, before)
	for i := range ids {
		out, err := greedy.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: greedy.Call(), Caller: greedy.Who, TtlMs: time.Hour.Milliseconds()})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = out.GetId()
	}
	n.Restart(t)
	if got := n.Granted(); got != before {
		t.Errorf("after the restart %d granted leases count, want %d", got, before)
	}
	n.ShareLittle(shared)
	greedy = n.RawFrom(t, "greedy", "127.0.0.2")
	if took := takeAll(t, greedy, takeLease); took != shared*3/4-before {
		t.Errorf("one user who had %d got %d more of %d", before, took, shared)
	}
	if _, err := greedy.NN.RevokeLease(t.Context(), &pb.RevokeLeaseRequest{Call: greedy.Call(), Caller: greedy.Who, Id: ids[0]}); err != nil {
		t.Fatal(err)
	}
	if took := takeAll(t, greedy, takeLease); took != 1 {
		t.Errorf("one lease from before the restart has ended, and there is room for %d", took)
	}
	if err := takeLease(t, n.RawFrom(t, "modest", "127.0.0.3"), 0); err != nil {
		t.Errorf("another user gets none: %v", err)
	}
}

func takeAll(t *testing.T, r *env.Raw, take func(*testing.T, *env.Raw, int) error) (took int) {
	t.Helper()
	for i := range manyOfOne {
		switch err := take(t, r, i); {
		case err == nil:
			took++
		case !errors.Is(err, fserror.Retry):
			t.Fatal(err)
		}
	}
	return took
}

func takeWatch(t *testing.T, r *env.Raw, _ int) error {
	t.Helper()
	st, err := r.NN.Watch(t.Context(), &pb.WatchRequest{Caller: r.Who, Path: "/", Recursive: true})
	if err == nil {
		_, err = st.Recv()
	}
	return wire.FromStatus(err)
}

// takeWait makes a call that waits, and returns when it does or was refused.
func takeWait(n *env.Namenode) func(t *testing.T, r *env.Raw, _ int) error {
	return func(t *testing.T, r *env.Raw, _ int) error {
		t.Helper()
		waited := n.Parked()
		answered := make(chan error, 1)
		go func() {
			_, err := r.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: r.Who, At: pb.Follow("/held"), WaitBeyond: 1, WaitMs: time.Hour.Milliseconds()})
			answered <- err
		}()
		env.Eventually(t, "it waits, or is refused", func() bool { return n.Parked() > waited || len(answered) > 0 })
		select {
		case err := <-answered:
			return err
		default:
			return nil
		}
	}
}

func takeLease(t *testing.T, r *env.Raw, _ int) error {
	t.Helper()
	_, err := r.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, TtlMs: time.Hour.Milliseconds()})
	return err
}

// takeCache begins a session that caches; one that is told that it may not is
// refused.
func takeCache(t *testing.T, r *env.Raw, i int) error {
	t.Helper()
	who := &pb.Caller{User: r.Who.GetUser(), Client: r.Who.GetClient(), Session: fmt.Appendf(nil, "%-16.16s", fmt.Sprint(i, r.Who.GetUser())), Host: "h", Pid: 1}
	st, err := r.NN.Session(t.Context())
	if err == nil {
		err = st.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: who, Cache: true, Stream: 1}}})
	}
	if err != nil {
		return wire.FromStatus(err)
	}
	m, err := st.Recv()
	if err == nil && m.GetWelcome().GetCacheTermMs() == 0 {
		return &fserror.Error{Kind: fserror.Retry, Message: "it may not cache"}
	}
	return wire.FromStatus(err)
}

// takeSession makes something in a session of its own.
func takeSession(t *testing.T, r *env.Raw, i int) error {
	t.Helper()
	call := &pb.CallId{Session: fmt.Appendf(nil, "%-16.16s", fmt.Sprint(i, r.Who.GetUser())), Seq: 1}
	_, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: call, Caller: r.Who, At: pb.At(fmt.Sprintf("/%s-%d", r.Who.GetUser(), i))})
	return err
}

func takeTail(t *testing.T, r *env.Raw, i int) error {
	t.Helper()
	return r.Flush(r.Create(fmt.Sprintf("/%s-%d", r.Who.GetUser(), i)), 0, strings.Repeat("x", 1<<10))
}

// Names of owners are kept for good, and one machine can make up as many as it
// likes.
func TestOneAddressLeavesRoomForOwnerNames(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	admin := n.Raw(t, "admin")
	if _, err := admin.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: admin.Call(), Caller: admin.Who, At: pb.At("/"), SetMode: true, Mode: 0o1777}); err != nil {
		t.Fatal(err)
	}
	greedy := n.RawFrom(t, "greedy", "127.0.0.2")
	var refused atomic.Int64
	for from := 0; from <= tables.MaxOwners; from += 1000 {
		var g errgroup.Group
		acked := greedy.Call().GetSeq() // so that not too many results are kept
		for i := from; i < from+1000; i++ {
			who := &pb.Caller{User: fmt.Sprintf("user%d", i), Client: "c", Session: greedy.Who.GetSession(), Host: "h", Pid: 1}
			req := &pb.CreateRequest{Call: greedy.Call(), Caller: who, At: pb.At(fmt.Sprintf("/%d", i)), Close: true}
			req.Call.Acked = acked
			g.Go(func() error {
				_, err := greedy.NN.Create(t.Context(), req)
				if err != nil {
					refused.Add(1)
				}
				return nil
			})
		}
		_ = g.Wait() // refusals are counted
	}
	if refused.Load() == 0 {
		t.Error("it was refused nothing")
	}
	modest := n.RawFrom(t, "modest", "127.0.0.3")
	if _, err := modest.NN.Create(t.Context(), &pb.CreateRequest{Call: modest.Call(), Caller: modest.Who, At: pb.At("/modest")}); err != nil {
		t.Fatalf("one address has made up many names, and another user cannot make a file: %v", err)
	}
}

// A walk of the whole tree need not wait until another user's many are done.
func TestWalksTakeTurns(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "r")
	manyNames(t, r)
	greedy, modest := n.RawFrom(t, "greedy", "127.0.0.2"), n.RawFrom(t, "modest", "127.0.0.3")
	const walks = 2000
	var done atomic.Int64
	for range walks {
		st, err := greedy.NN.Find(t.Context(), &pb.FindRequest{Caller: greedy.Who, At: pb.Follow("/"), OpenOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = st.Recv() // the end, that of the test for some
			done.Add(1)
		}()
	}
	if _, err := greedy.NN.Stat(t.Context(), &pb.StatRequest{Caller: greedy.Who, At: pb.At("/")}); err != nil {
		t.Fatal(err) // once it is answered, the walks have begun
	}
	before := done.Load()
	if _, err := modest.NN.Summary(t.Context(), &pb.SummaryRequest{Caller: modest.Who, At: pb.Follow("/")}); err != nil {
		t.Fatal(err)
	}
	if first, all := done.Load()-before, walks-before; first > all/2 {
		t.Errorf("of another user's %d walks that were on the way, %d went before", all, first)
	}
}

// Who shows a writer reads as the superuser, and takes what all share as who it is.
func TestAWriterTakesNoReserve(t *testing.T) {
	t.Parallel()
	n := env.Start(t, func(c *namenode.Config) { c.MaxWaiting = shared })
	root, bob := n.Raw(t, "root"), n.RawFrom(t, "bob", "127.0.0.2")
	if _, err := root.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/pub"), HasMode: true, Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	w := bob.Create("/pub/f")
	refused := make(chan error, shared)
	for i := range shared {
		go func() {
			_, err := bob.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: bob.Who, At: pb.Inode(w.GetInode()), Writer: w, WaitMs: time.Hour.Milliseconds()})
			refused <- err
		}()
		env.Eventually(t, "it waits, or is refused", func() bool { return n.Parked()+int64(len(refused)) > int64(i) })
	}
	if got := n.Parked(); got != shared*3/4 {
		t.Errorf("a user who is no superuser has %d of %d places", got, shared)
	}
	for range len(refused) {
		if err := <-refused; !errors.Is(err, fserror.Retry) {
			t.Errorf("a wait for his own file: %v", err)
		}
	}
}
