package namenode

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/watch"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestEventsAreLeftOutForWhatIsDurable: a watcher who may not see an event by now does without it only when the
// change of the rights is durable. A crash before that takes the change back, and then the event is
// missing.
func TestEventsAreLeftOutForWhatIsDurable(t *testing.T) {
	s, disk := startOnStuckDisk(t)
	who := callers()
	for _, path := range []string{"/d", "/d/new"} {
		mkdir := &pb.MkdirRequest{At: pb.At(path)}
		mkdir.Call, mkdir.Caller = who("root")
		if _, err := s.calls.Mkdir(t.Context(), mkdir); err != nil {
			t.Fatal(err)
		}
	}
	last := s.engine.Facts().Last
	if err := s.engine.WaitDurable(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	w, _, err := s.events.Watch(last, watch.Filter{Path: "/d"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	events, _, err := w.Next(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	c := &namespace.Call{User: "bob"}
	if seen, err := s.calls.watches.visible(t.Context(), c, &watch.Filter{}, []*watch.Kept{events[0]}); err != nil || len(seen) != 1 {
		t.Fatal(seen, err)
	}
	disk.gate.Lock()
	open := sync.OnceFunc(disk.gate.Unlock)
	defer open()
	if _, _, err := s.engine.Submit(t.Context(), engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		a, err := tx.Tree.Stat(nil, namespace.At("/d"))
		return &namespace.OpSetAttr{Inode: a.ID, SetMode: true, Mode: 0o700}, err
	}}); err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if seen, err := s.calls.watches.visible(gone, c, &watch.Filter{}, []*watch.Kept{events[0]}); !errors.Is(err, context.Canceled) {
		t.Errorf("before the change of the mode is durable, %d events are left: %v", len(seen), err)
	}
	open()
	if seen, err := s.calls.watches.visible(t.Context(), c, &watch.Filter{}, []*watch.Kept{events[0]}); err != nil || len(seen) != 0 {
		t.Error(seen, err)
	}
}

// TestListsOfLeasesTakeTurns: a list that may look at all leases takes its turn among a few; one that needs
// only a page does not.
func TestListsOfLeasesTakeTurns(t *testing.T) {
	s := startAt(t, new(clock.Fake))
	for range 2 {
		if err := s.calls.looks.Begin(t.Context(), "greedy"); err != nil {
			t.Fatal(err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, who := callers()("root")
	for name, c := range map[string]struct {
		r     *pb.ListLeasesRequest
		looks bool // at all
	}{
		"page":    {&pb.ListLeasesRequest{}, false},
		"lease":   {&pb.ListLeasesRequest{Lease: "1", Text: "x"}, false},
		"ordered": {&pb.ListLeasesRequest{Order: pb.LeaseOrder_LEASE_ORDER_IDLE}, true},
		"text":    {&pb.ListLeasesRequest{Text: "x"}, true},
		"expired": {&pb.ListLeasesRequest{Expired: true}, true},
	} {
		c.r.Caller = who
		if _, err := s.calls.ListLeases(gone, c.r); errors.Is(err, context.Canceled) != c.looks || err != nil && !c.looks {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.calls.looks.End("greedy")
	if _, err := s.calls.ListLeases(t.Context(), &pb.ListLeasesRequest{Caller: who, Text: "x"}); err != nil {
		t.Error(err)
	}
}
