package client

import "time"

// jeopardized waits until what is held may be another's within grace, or is lost.
// It returns false if nobody wants to know any more, or the client is closed. It looks
// often instead of sleeping until that time, since timers stop while the machine is
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

// defaultGrace is how long before the end of a time to live jeopardy is reported: a
// quarter of it, at most ten seconds.
func defaultGrace(ttl time.Duration) time.Duration { return min(ttl/4, 10*time.Second) }
