package readlease

import "time"

// A change waits for who acknowledges late as for who does not. But a machine that is short of
// processor or network stalls a client for seconds, which is none of its doing. So an
// acknowledgement is slow if it takes more than one part in slowPart of a term, 2.5 s by
// default, and only the slowMost-th stall within a penalty's time, a minute, counts as a lost
// lease: then no change waits so for the session for as long again.
const (
	slowPart = 4
	slowMost = 3
)

// slowness is how often a session has acknowledged late, of late.
type slowness struct {
	n    int
	from time.Duration // of the first of them
	last time.Duration
}

// again takes in that what was pushed at some time was acknowledged now, and reports whether
// that is once too often. All that one stall has held up counts once.
func (s *slowness) again(pushed, now time.Duration, cfg *Config) bool {
	if now-pushed <= cfg.Term/slowPart || pushed < s.last {
		return false
	}
	if s.n == 0 || now-s.from > cfg.Penalty {
		s.n, s.from = 0, now
	}
	s.n, s.last = s.n+1, now
	if s.n < slowMost {
		return false
	}
	s.n = 0
	return true
}
