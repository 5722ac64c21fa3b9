package sim

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of one machine: the bubble's, with a time of day of its own.
type Clock struct {
	start time.Time
	skew  atomic.Int64
}

func newClock() *Clock { return &Clock{start: time.Now()} }

// Wall implements clock.Clock.
func (c *Clock) Wall() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

// Mono implements clock.Clock.
func (c *Clock) Mono() time.Duration { return time.Since(c.start) }

// Boot implements clock.Clock.
func (c *Clock) Boot() time.Duration { return time.Since(c.start) }

// SetSkew sets by how much the time of day is ahead.
func (c *Clock) SetSkew(d time.Duration) { c.skew.Store(int64(d)) }
