package sim

import (
	"sync"
	"time"
)

// Clock is the clock of one machine: the bubble's, with a time of day of its own. It
// can stand still with the machine.
type Clock struct {
	start time.Time

	mu      sync.Mutex
	skew    time.Duration
	stopped time.Time     // since when it stands still; zero: it does not
	asleep  bool          // that is a suspend
	slept   time.Duration // of all suspends
	stops   int           // how often it stood still
	going   chan struct{} // closed when it resumes
}

func newClock() *Clock { return &Clock{start: time.Now()} }

// now is the time of the bubble, as far as the machine has seen it.
func (c *Clock) now() (now time.Time, skew, slept time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped, c.skew, c.slept
	}
	return time.Now(), c.skew, c.slept
}

// Wall implements clock.Clock.
func (c *Clock) Wall() time.Time {
	now, skew, _ := c.now()
	return now.Add(skew)
}

// Mono implements clock.Clock.
func (c *Clock) Mono() time.Duration {
	now, _, slept := c.now()
	return now.Sub(c.start) - slept
}

// Boot implements clock.Clock.
func (c *Clock) Boot() time.Duration {
	now, _, _ := c.now()
	return now.Sub(c.start)
}

// SetSkew sets by how much the time of day is ahead.
func (c *Clock) SetSkew(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = d
}

// stop has the clock stand still; false if it does already. Of a suspend Mono will
// never know.
func (c *Clock) stop(suspend bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return false
	}
	c.stopped, c.asleep, c.going = time.Now(), suspend, make(chan struct{})
	c.stops++
	return true
}

// resume ends stop: the clock shows the present time at once.
func (c *Clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		return
	}
	if c.asleep {
		c.slept += time.Since(c.stopped)
	}
	c.stopped = time.Time{}
	close(c.going)
}

// await waits while the clock stands still.
func (c *Clock) await() {
	c.mu.Lock()
	going := c.going
	c.mu.Unlock()
	if going != nil {
		<-going
	}
}

// stands reports whether it stands still, and how often it has.
func (c *Clock) stands() (still bool, stops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopped.IsZero(), c.stops
}
