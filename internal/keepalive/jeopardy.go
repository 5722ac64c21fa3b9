package keepalive

import (
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Jeopardized waits until what is held may be another's within grace, or is lost, or the
// client is closed, which keeps nothing alive any more. It returns false if nobody wants to
// know. It looks often instead of sleeping until that time, since timers stop while the
// machine is suspended.
func Jeopardized(remaining func() time.Duration, grace time.Duration, lost, closed, unwanted <-chan struct{}) bool {
	tick := time.NewTicker(min(max(grace/20, 5*time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-unwanted:
			return false
		case <-lost:
			return true
		case <-closed:
			return true
		case <-tick.C:
			if remaining() <= grace {
				return true
			}
		}
	}
}

// Grace is how long before the end of a time to live jeopardy is reported: what is asked for,
// or if that is 0, a quarter of it, at most ten seconds. More than most is an error: so little
// is left now and then in perfect health, just before a renewal.
func Grace(asked, ttl, most time.Duration) (time.Duration, error) {
	switch {
	case asked <= 0:
		return min(ttl/4, 10*time.Second), nil
	case asked > most:
		return 0, fserror.New(fserror.InvalidArgument, "", "", "a grace of %s is too long for a time to live of %s, of which now and then no more is left just before a renewal: at most %s is allowed; or ask for a longer time to live", asked, ttl, most)
	}
	return asked, nil
}
