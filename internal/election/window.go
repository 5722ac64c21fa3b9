package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// Window is the time in which the active namenode may answer. It is closed at
// first. The write that begins a term opens it, while the predecessor may still
// answer: a namenode that takes over serves nothing before AwaitEnd, whatever
// Confirmed says. Its methods are safe for concurrent use.
//
// Time since a write was sent is counted by two clocks, the one that keeps running
// while the machine is suspended and the time of day; the one that ran further
// counts: a machine that wakes must not think that its lease has time left. A jump
// forward of the time of day closes the window until the next write, and no more.
type Window struct {
	clock  clock.Clock
	length time.Duration // lease − margin
	lease  time.Duration

	until atomic.Pointer[deadline]
	ended atomic.Bool
	wake  chan struct{} // one token: the window was extended
}

// deadline is never changed once it is published.
type deadline struct {
	boot time.Duration // by clock.Boot
	wall int64         // by clock.Wall, Unix nanoseconds
	sent time.Duration // by clock.Mono: when the write was
}

// NewWindow makes a window of lease − margin behind the sending of each write.
// The margin is what two machines' clocks may differ by in the time of one lease,
// and the same is to be given to AwaitEnd. It must be positive and below half of
// the lease.
func NewWindow(clk clock.Clock, lease, margin time.Duration) (*Window, error) {
	if margin <= 0 || lease <= 2*margin {
		return nil, errors.New("election: the lease must be longer than twice its margin, and that positive")
	}
	return &Window{clock: clk, length: lease - margin, lease: lease, wake: make(chan struct{}, 1)}, nil
}

// Write is called before a write that checks the term is sent. What it returns
// is called if that write succeeded, at any time later, and extends the window.
func (w *Window) Write() (confirm func()) {
	d := &deadline{w.clock.Boot() + w.length, w.clock.Wall().Add(w.length).UnixNano(), w.clock.Mono()}
	return func() { w.extend(d) }
}

func (w *Window) extend(d *deadline) {
	for {
		old := w.until.Load()
		if old != nil && old.boot > d.boot {
			return // a write sent later was confirmed before
		}
		if w.until.CompareAndSwap(old, d) {
			break
		}
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Confirmed reports whether the namenode may answer now. It is to be asked after
// the answer was made and before it is given, for each read and each write. It
// takes a fraction of a microsecond and no lock.
func (w *Window) Confirmed() bool { return w.Remaining() > 0 }

// Remaining is how long the window stays open without another write; negative
// or 0: it is closed.
func (w *Window) Remaining() time.Duration {
	d := w.until.Load()
	if d == nil || w.ended.Load() {
		return 0
	}
	return min(d.boot-w.clock.Boot(), time.Duration(d.wall-w.clock.Wall().UnixNano()))
}

// End closes the window for good. After it returns, no Confirmed says yes; an
// answer for which one said yes before may still be on its way, and is as old as
// that.
func (w *Window) End() { w.ended.Store(true) }

// Keep calls beat, which is one write that checks the term (internal/journal/zk's Beat),
// whenever a third of the lease has passed since the last write was sent, until
// ctx ends, the window is ended, or beat says that the reign is over: an error
// for which over is true. Other errors are tried again, as often as the lease
// allows.
func (w *Window) Keep(ctx context.Context, beat func(context.Context) error, over func(error) bool) error {
	third := w.lease / 3
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.wake: // something was written meanwhile
		case <-t.C:
			if w.ended.Load() {
				return nil
			}
			if w.sinceSent() >= third {
				bctx, cancel := context.WithTimeout(ctx, w.lease)
				err := beat(bctx)
				cancel()
				if err != nil && over(err) {
					return err
				}
			}
		}
		// A failed one is tried again after a tenth.
		t.Reset(max(third-w.sinceSent(), w.lease/30))
	}
}

// sinceSent is how long ago the last confirmed write was sent; a lease, if there
// was none.
func (w *Window) sinceSent() time.Duration {
	d := w.until.Load()
	if d == nil {
		return w.lease
	}
	return w.clock.Boot() - (d.boot - w.length)
}

// SinceWrite is how long ago the last write was sent that was confirmed, without
// the time in which the machine was suspended; wrote is false if none was.
func (w *Window) SinceWrite() (since time.Duration, wrote bool) {
	d := w.until.Load()
	if d == nil {
		return 0, false
	}
	return w.clock.Mono() - d.sent, true
}

// AwaitEnd waits until a predecessor whose last write was first seen at seen (by
// clk.Mono) answers nothing any more: until seen + lease + margin. Lease is the
// predecessor's. Its write was sent before it was seen, and its window is shorter
// by its margin, so the two clocks may differ by both margins in that time.
func AwaitEnd(ctx context.Context, clk clock.Clock, seen, lease, margin time.Duration) error {
	if lease <= 0 {
		return ctx.Err() // it answered nothing without a write
	}
	for {
		left := seen + lease + margin - clk.Mono()
		if left <= 0 {
			return ctx.Err()
		}
		if err := clock.Pause(ctx, left); err != nil {
			return err
		}
	}
}
