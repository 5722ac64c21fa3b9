package namenode

import (
	"context"
	"errors"
	"sync"
	"testing"

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
	if seen, err := s.calls.watches.visible(t.Context(), c, []*watch.Kept{events[0]}); err != nil || len(seen) != 1 {
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
	if seen, err := s.calls.watches.visible(gone, c, []*watch.Kept{events[0]}); !errors.Is(err, context.Canceled) {
		t.Errorf("before the change of the mode is durable, %d events are left: %v", len(seen), err)
	}
	open()
	if seen, err := s.calls.watches.visible(t.Context(), c, []*watch.Kept{events[0]}); err != nil || len(seen) != 0 {
		t.Error(seen, err)
	}
}
