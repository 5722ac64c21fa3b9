package reign

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// stuckFormat is that of a namespace whose ZooKeeper gives no new session.
type stuckFormat struct{ asked chan levels.State }

func (f stuckFormat) level() uint64 { return 0 }

func (f stuckFormat) mark(ctx context.Context, at levels.State) error {
	f.asked <- at
	<-ctx.Done()
	return ctx.Err()
}

// endless is a journal that does not fail.
type endless struct{ journal.Journal }

func (endless) Failed() <-chan struct{} { return nil }

// A namenode answers while it waits to have the format of the namespace say its feature level,
// which ends with it.
func TestAnswersBeforeTheFormatIsMarked(t *testing.T) {
	failed := errors.New("no loop ends by itself")
	group := loops.New(slog.New(slog.DiscardHandler), func(err error) { t.Errorf("%v: %v", failed, err) })
	begun := false
	r := New(Config{Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Loops: group, Begun: func() { begun = true }})
	f := stuckFormat{make(chan levels.State)}
	r.format, r.journal = f, endless{}
	r.rooms.Engine = engine.New(engine.Config{Clock: clock.System{}, Reign: r})
	r.rooms.Engine.Open(namespace.New(), r.journal)
	r.answer()
	if at := <-f.asked; at.Level == 0 {
		t.Errorf("the format was to say %+v", at)
	}
	if !r.ready.Load() || !begun {
		t.Error("it does not answer before the format is marked")
	}
	group.Stop(errors.New("it is over"))
	group.Wait()
}
