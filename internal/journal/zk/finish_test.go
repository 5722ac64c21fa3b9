package zk

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
)

// TestFinishAfterFailure: a batch that is found to be there after the journal has
// failed is not confirmed any more, and does no harm.
func TestFinishAfterFailure(t *testing.T) {
	j := &Journal{clock: clock.System{}, log: slog.New(slog.DiscardHandler), failed: make(chan struct{}), work: make(chan struct{}, 1), begun: true, worth: 1}
	j.cfg.MaxBacklog = DefaultMaxBacklog
	j.open = j.newGroup(false)
	if err := j.Append(journal.Record{TxID: 1, Time: 1, Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	g := j.takeGroup(1)
	if g == nil {
		t.Fatal("there is nothing to write")
	}
	j.fail(journal.ErrFenced)
	j.finish(1, 100, true)
	if j.Durable() != 0 || !errors.Is(j.Err(), journal.ErrFenced) {
		t.Errorf("durable up to %d, %v", j.Durable(), j.Err())
	}
	if err := j.WaitDurable(t.Context(), 1); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("%v", err)
	}
}
