package clock

import (
	"sync"
	"time"
)

// Reading is what both of a holder's clocks said at one moment. The grantor of a
// lease may be a machine that neither was suspended nor set its clock, so between
// two readings as much time has gone by as the clock says that ran further.
type Reading struct {
	Boot time.Duration
	Wall int64 // Unix nanoseconds; no monotonic part
}

// Read reads both clocks.
func Read(c Clock) Reading { return Reading{Boot: c.Boot(), Wall: c.Wall().UnixNano()} }

// Since is the longer of what the two clocks ran.
func (r Reading) Since(earlier Reading) time.Duration {
	return max(r.Boot-earlier.Boot, time.Duration(r.Wall-earlier.Wall))
}

// Sure is how much of a granted time its holder relies on: 5 % less than granted, but at
// most a second less, so that the holder lets go before the grantor does.
func Sure(granted time.Duration) time.Duration { return granted - min(granted/20, time.Second) }

// Stamp is when a lease was certainly good last: the moment at which a request was
// sent that the grantor answered. It is safe for concurrent use.
type Stamp struct {
	mu sync.Mutex
	at Reading
}

// Renew moves the stamp forward, never back.
func (s *Stamp) Renew(at Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Boot > s.at.Boot || s.at == (Reading{}) {
		s.at = at
	}
}

// Age is how long ago that was.
func (s *Stamp) Age(now Reading) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Since(s.at)
}
