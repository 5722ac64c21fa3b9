// Package clocks compares a namenode's time of day with that of other machines. Wrong
// clocks decide nothing: they give files wrong times, and a block store refuses requests
// when they are minutes off. So nothing waits for what is known of them, and an operator
// is told.
package clocks

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

const (
	// Every is how often clocks should be compared.
	Every = 15 * time.Second
	// agree is up to where they agree: more is told in the log.
	agree = 2 * time.Second
)

// Other is another machine's clock.
type Other struct {
	Name    string
	Machine string // whose it is, for people
	// Compare says how far this machine's clock is ahead; known is false if it cannot.
	Compare func(ctx context.Context) (skew clock.Skew, known bool)

	skew atomic.Pointer[clock.Skew] // as last seen; nil: not known
	off  bool                       // the log was told that they differ
}

// Clocks are compared whenever Due says so.
type Clocks struct {
	Due    chan struct{}
	log    *slog.Logger
	others []*Other
}

// New returns Clocks that are due at once.
func New(log *slog.Logger, others ...*Other) *Clocks {
	c := &Clocks{Due: make(chan struct{}, 1), log: log, others: others}
	c.Due <- struct{}{}
	return c
}

// All calls fn with what is known of each clock.
func (c *Clocks) All(fn func(name string, skew clock.Skew)) {
	for _, o := range c.others {
		if skew := o.skew.Load(); skew != nil {
			fn(o.Name, *skew)
		}
	}
}

// Compare compares this machine's clock with the others.
func (c *Clocks) Compare(ctx context.Context) error {
	for _, o := range c.others {
		skew, known := o.Compare(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.note(o, skew, known)
	}
	return nil
}

// note remembers a comparison, and tells the log when the clocks begin to
// differ and when they agree again.
func (c *Clocks) note(o *Other, skew clock.Skew, known bool) {
	if !known {
		o.skew.Store(nil)
		return
	}
	o.skew.Store(&skew)
	about := []any{"than", o.Machine, "ahead", skew.Ahead.Round(time.Millisecond), "within", skew.Bound.Round(time.Millisecond)}
	switch {
	case !o.off && skew.Beyond(agree):
		o.off = true
		c.log.Warn("this machine's time of day differs from another's: set the time of both (NTP); meanwhile files can get wrong times", about...)
	case o.off && skew.Within(agree):
		o.off = false
		c.log.Info("this machine's time of day agrees with the other's again", about...)
	}
}
