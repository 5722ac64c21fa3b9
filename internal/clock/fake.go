package clock

import (
	"sync"
	"time"
)

// Fake is a clock that moves only when told. Its zero value starts at the Unix
// epoch. It is safe for concurrent use.
type Fake struct {
	mu   sync.Mutex
	mono time.Duration
	skew time.Duration // what the wall is ahead of mono
}

// Wall returns the fake time of day.
func (f *Fake) Wall() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Unix(0, 0).Add(f.mono + f.skew)
}

// Mono returns the time advanced so far.
func (f *Fake) Mono() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mono
}

// Boot is the same as Mono.
func (f *Fake) Boot() time.Duration { return f.Mono() }

// Advance moves all clocks on by d, which must not be negative.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mono += max(d, 0)
}

// ShiftWall moves the time of day alone, either way.
func (f *Fake) ShiftWall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skew += d
}
