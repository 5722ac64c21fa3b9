package reign

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/ensemble"
)

// sleeper is a clock of a machine that was suspended for a while.
type sleeper struct {
	clock.Fake
	slept time.Duration
}

func (s *sleeper) Boot() time.Duration { return s.Fake.Boot() + s.slept }

// A reign whose records are written has no beats; the first one that fails after
// that, when the window has just closed, does not end it.
// Nor does one after a time in which the machine slept.
func TestStallingCountsFromTheLastWrite(t *testing.T) {
	clk := new(sleeper)
	s := &several{Role: &Role{cfg: Config{Clock: clk, HA: &ensemble.HA{SessionTimeout: 2 * time.Second}}}}
	lease, margin := s.cfg.HA.Lease()
	window, err := election.NewWindow(clk, lease, margin)
	if err != nil {
		t.Fatal(err)
	}
	s.window = window
	lost := errors.New("no answer")
	var answer error
	beat := s.stalling(func(context.Context) error { return answer })
	for range 10 * s.cfg.HA.StallAfter() / lease {
		window.Write()()
		clk.Advance(lease / 2)
	}
	clk.Advance(lease) // the window has closed
	clk.slept = time.Hour
	answer = lost
	for since := lease + lease/2; since <= s.cfg.HA.StallAfter(); since += lease / 2 {
		if err := beat(t.Context()); !errors.Is(err, lost) || errors.Is(err, journal.ErrFailed) {
			t.Fatalf("%s after the last write: %v", since, err)
		}
		clk.Advance(lease / 2)
	}
	if err := beat(t.Context()); !errors.Is(err, journal.ErrFailed) || !errors.Is(err, lost) {
		t.Fatalf("after all that time: %v", err)
	}
	answer = nil
	if err := beat(t.Context()); err != nil {
		t.Fatal(err)
	}
}
