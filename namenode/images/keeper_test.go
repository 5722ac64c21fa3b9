package images

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// TestCheckpointsWaitInTime: who asks for an image while one is being written, which
// takes as long as the store does, gets an answer within the time that he has; and
// to see whether one is due nobody waits.
func TestCheckpointsWaitInTime(t *testing.T) {
	var clk clock.Fake
	k := New(Config{Clock: &clk})
	release, err := k.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	clk.Advance(time.Second)
	k.written(7)
	if at, txid := k.last(); at != clk.Mono() || txid != 7 {
		t.Errorf("the last image is of %v and record %d", at, txid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Checkpoint(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a checkpoint beside another ends with %v", err)
	}
}
