package env

import (
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode"
)

// LeapingClock is the machine's clock with leaps. The time of day, which others
// compare with their own, has none. It is safe for concurrent use.
type LeapingClock struct {
	clock.System
	ahead atomic.Int64
}

// Mono implements clock.Clock.
func (l *LeapingClock) Mono() time.Duration { return l.System.Mono() + time.Duration(l.ahead.Load()) }

// Boot implements clock.Clock.
func (l *LeapingClock) Boot() time.Duration { return l.System.Boot() + time.Duration(l.ahead.Load()) }

// Leap moves on by d.
func (l *LeapingClock) Leap(d time.Duration) { l.ahead.Add(int64(d)) }

// BeyondURLs leaps to when all URLs of blocks are over, and no lease is.
func (l *LeapingClock) BeyondURLs() { l.Leap(namenode.DefaultURLLife + 2*time.Minute) }
