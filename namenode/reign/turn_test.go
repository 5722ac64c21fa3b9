package reign

import (
	"context"
	"errors"
	"testing"
)

// TestHandOversWaitInTime: who ends a namenode that is handing over, which takes as
// long as ZooKeeper does, waits no longer than he wants to.
func TestHandOversWaitInTime(t *testing.T) {
	s := New(Config{})
	unlock, err := s.handing.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.HandOver(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a hand-over beside another ends with %v", err)
	}
}
