package client

import "time"

// jeopardized waits until what is held can be another's in grace, or is lost already.
// It returns false if that is not wanted any more, or the client is closed. It looks often
// rather than sleep until the time, since a timer stands still while the machine is
// suspended.
func (f *engine) jeopardized(remaining func() time.Duration, grace time.Duration, lost, unwanted <-chan struct{}) bool {
	tick := time.NewTicker(min(max(grace/20, 5*time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-unwanted:
			return false
		case <-lost:
			return true
		case <-f.ctx.Done():
			return false
		case <-tick.C:
			if remaining() <= grace {
				return true
			}
		}
	}
}

// defaultGrace is how long before the end of a time to live jeopardy is told: a quarter
// of it, at most ten seconds.
func defaultGrace(ttl time.Duration) time.Duration { return min(ttl/4, 10*time.Second) }
