package namenode

import (
	"context"
	"errors"
	"testing"

	"github.com/leasefs/leasefs/namenode/share"
)

// TestHandOversWaitInTime: who ends a namenode that is handing over, which takes as
// long as ZooKeeper does, waits no longer than he wants to.
func TestHandOversWaitInTime(t *testing.T) {
	s := &Server{}
	s.shared.handing = share.NewTurn()
	unlock, err := s.shared.handing.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.handOver(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a hand-over beside another ends with %v", err)
	}
}
