package s3

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Outcome is how a request to the store ended.
type Outcome string

// The outcomes. They are labels of a metric: few, and fixed.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeRefused Outcome = "refused" // 3xx and 4xx: nothing there, there already, not allowed
	OutcomeTrouble Outcome = "trouble" // 5xx and 429
	OutcomeNone    Outcome = "none"    // no answer
)

var outcomes = [...]Outcome{OutcomeOK, OutcomeRefused, OutcomeTrouble, OutcomeNone}

// Stats counts what this process asked of the store since it was opened. What
// clients do by signed URLs is not in it.
type Stats struct {
	Requests map[Outcome]uint64      // every try is one
	Retries  uint64                  // tries after the first of a call
	Errors   map[fserror.Kind]uint64 // calls that failed; NotFound and Exists may be as they should
	// Skew is how far the store's clock was ahead of this machine's when it last
	// answered.
	Skew time.Duration
}

// counters are the numbers behind Stats.
type counters struct {
	requests [len(outcomes)]atomic.Uint64
	retries  atomic.Uint64

	mu     sync.Mutex
	errors map[fserror.Kind]uint64
}

// request counts a try; status 0 is no answer.
func (c *counters) request(r *http.Request, status int) {
	// The library numbers the tries of a call.
	if try := r.Header.Get("Amz-Sdk-Request"); try != "" && !strings.HasPrefix(try, "attempt=1;") {
		c.retries.Add(1)
	}
	at := 0
	switch {
	case status == 0:
		at = 3
	case status/100 == 5 || status == http.StatusTooManyRequests:
		at = 2
	case status/100 != 2:
		at = 1
	}
	c.requests[at].Add(1)
}

func (c *counters) failed(kind fserror.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = map[fserror.Kind]uint64{}
	}
	c.errors[kind]++
}

// Skew is how far this machine's clock was ahead of the store's when that last
// answered; known is false before.
func (d *diagnosis) Skew() (skew clock.Skew, known bool) {
	if seen := d.line.skew.Load(); seen != nil {
		return *seen, true
	}
	return clock.Skew{}, false
}

// Stats returns the counters. Requests has every outcome, also at 0.
func (s *Store) Stats() Stats {
	c := &s.line.counts
	st := Stats{
		Requests: make(map[Outcome]uint64, len(outcomes)), Retries: c.retries.Load(),
		Errors: map[fserror.Kind]uint64{},
	}
	if skew, known := s.Skew(); known {
		st.Skew = -skew.Ahead
	}
	for i, o := range outcomes {
		st.Requests[o] = c.requests[i].Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, n := range c.errors {
		st.Errors[kind] = n
	}
	return st
}
