package namenode

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCheckpointsWaitInTime: who asks for an image while one is being written, which
// takes as long as the store does, gets an answer within the time that he has; and
// to see whether one is due nobody waits.
func TestCheckpointsWaitInTime(t *testing.T) {
	s := &Server{}
	s.lastImage.turn = newTurn()
	unlock, err := s.lastImage.turn.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	s.lastImage.written(time.Second, 7)
	if at, txid := s.lastImage.last(); at != time.Second || txid != 7 {
		t.Errorf("the last image is of %v and record %d", at, txid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.checkpoint(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a checkpoint beside another ends with %v", err)
	}
}

// TestHandOversWaitInTime: who ends a namenode that is handing over, which takes as
// long as ZooKeeper does, waits no longer than he wants to.
func TestHandOversWaitInTime(t *testing.T) {
	s := &Server{}
	s.shared.handing = newTurn()
	unlock, err := s.shared.handing.lock(t.Context())
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
