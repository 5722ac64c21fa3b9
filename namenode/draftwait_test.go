package namenode

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/drafts"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// A call that waits for a draft which is not made waits for as long as it said, or
// until its context ends, the draft counts no more, or the namenode ends; and no
// longer.
func TestWaitingForADraftEnds(t *testing.T) {
	clk := new(clock.Fake)
	s := startAt(t, clk)
	h := namespace.Holder{User: "root", Client: "drafter", Session: namespace.SessionID{9}}
	streams := uint64(0)
	draftAt := func(name string) {
		t.Helper()
		streams++
		cached, err := s.calls.beginCaching(t.Context(), h, streams, func(readlease.Revocation) {})
		if err != nil {
			t.Fatal(err)
		}
		cached.Renew()
		lent, number, _ := s.drafts.Delegate(t.Context(), h.Session, namespace.RootID, true)
		if !lent || number == 0 {
			t.Fatal("it may make no files of its own")
		}
		s.drafts.Tell(h, []drafts.Draft{{Dir: namespace.RootID, Name: name, Inode: number}})
		cached.Leave() // so that nobody waits for its acknowledgement
	}
	var seq uint64
	session := make([]byte, 16)
	session[0] = 1
	// long is longer than a broken wait should hold the test up, and than any other.
	const long = 2 * time.Minute
	open := func(ctx context.Context, name string, wait time.Duration) error {
		seq++
		r := &pb.AppendRequest{
			Call: &pb.CallId{Session: session, Seq: seq}, At: pb.Follow("/" + name), Create: true, WaitMs: wait.Milliseconds(),
			Caller: &pb.Caller{User: "root", Client: "c", Session: session, Host: "h", Pid: 1},
		}
		ctx, cancel := context.WithTimeout(ctx, long)
		defer cancel()
		_, err := s.calls.Append(ctx, r)
		return err
	}
	// waiting begins one, and returns when it waits.
	waiting := func(ctx context.Context, name string) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- open(ctx, name, 2*long) }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for s.front.Parked.Used() == 0 {
			select {
			case <-tick.C:
			case err := <-ended:
				t.Fatal("it did not wait:", err)
			}
		}
		return ended
	}

	draftAt("f")
	for _, wait := range []time.Duration{0, 3 * draftLook} {
		began := time.Now()
		err := open(t.Context(), "f", wait)
		took := time.Since(began)
		if !drafts.Refused(err) {
			t.Fatalf("waited for %s: %v", wait, err)
		}
		if took < wait {
			t.Errorf("given up after %s of %s", took, wait)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := waiting(ctx, "f")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ended = waiting(t.Context(), "f")
	clk.Advance(time.Hour)
	if err := <-ended; err != nil {
		t.Errorf("the draft counts no more: %v", err)
	}
	draftAt("g")
	ended = waiting(t.Context(), "g")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || errors.Is(err, fserror.Held) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the namenode has ended: %v", err)
	}
	if n := s.front.Parked.Used(); n != 0 {
		t.Errorf("%d calls wait still", n)
	}
}

// TestAcknowledgementsOfManyDrafts: of drafts that an acknowledgement names, no more are looked at than a session can
// have. Each takes a look at the tree, and a message has room for hundreds of thousands.
func TestAcknowledgementsOfManyDrafts(t *testing.T) {
	s := startAt(t, new(clock.Fake))
	h := namespace.Holder{User: "root", Client: "drafter", Session: namespace.SessionID{9}}
	cached, err := s.calls.beginCaching(t.Context(), h, 1, func(readlease.Revocation) {})
	if err != nil {
		t.Fatal(err)
	}
	cached.Renew()
	lent, number, n := s.drafts.Delegate(t.Context(), h.Session, namespace.RootID, true)
	if !lent || number == 0 {
		t.Fatal("it may make no files of its own")
	}
	held := func(name string) (held bool) {
		if err := s.engine.Read(func(tx *engine.Tx) error {
			held = drafts.Refused(s.drafts.Refuse(tx, namespace.SessionID{1}, &namespace.OpCreate{Parent: namespace.RootID, Name: name, Closed: true}))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return held
	}
	list := make([]drafts.Draft, 8*n-1) // of numbers that are not the session's
	list = append(list, drafts.Draft{Dir: namespace.RootID, Name: "last", Inode: number}, drafts.Draft{Dir: namespace.RootID, Name: "beyond", Inode: number + 1})
	s.drafts.Tell(h, list)
	if !held("last") || held("beyond") {
		t.Errorf("the last one that there can be is held: %v; one more: %v", held("last"), held("beyond"))
	}
}
