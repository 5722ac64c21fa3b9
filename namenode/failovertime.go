package namenode

import (
	"time"
)

// A lease outlives a failover if its holder hears of the next namenode before it has to
// give up. A failover takes up to one and a half session time-outs: ZooKeeper notices
// within one, and counts in ticks, of which a time-out has two at least; the take-over
// itself takes a fraction of a second. docs/LEASES.md has the sums.

// leastTTL is the shortest time to live of a lease.
func (s *Server) leastTTL() time.Duration {
	switch {
	case s.cfg.MinLeaseTTL != 0:
		return s.cfg.MinLeaseTTL
	case s.cfg.HA != nil:
		return leastTTL(s.cfg.HA)
	}
	return DefaultMinLeaseTTL
}

// leastTTL is the shortest time to live of a lease that outlives a failover.
func leastTTL(h *HA) time.Duration { return 3 * h.SessionTimeout }

// renewWithin is after how long at most a session with that soft limit renews. Of
// several namenodes that is so early that two session time-outs are left until it gives
// up what it holds as a lock, at seven tenths of the limit.
func (s *Server) renewWithin(soft time.Duration) time.Duration {
	if s.cfg.HA == nil {
		return soft
	}
	return max(soft*7/10-2*s.cfg.HA.SessionTimeout, soft/10)
}

// warnOfShortLeases says which limits are too short to outlive a failover.
func (s *Server) warnOfShortLeases() {
	least := leastTTL(s.cfg.HA)
	if set := s.cfg.MinLeaseTTL; set != 0 && set < least {
		s.log.Warn("granted leases and locks that live as short as --min-lease-ttl allows may be lost to a failover", "min-lease-ttl", set, "outlives", least, "session-timeout", s.cfg.HA.SessionTimeout)
	}
	if s.cfg.SoftLimit < least {
		s.log.Warn("a lock that lives as long as --soft-limit may be lost to a failover", "soft-limit", s.cfg.SoftLimit, "outlives", least, "session-timeout", s.cfg.HA.SessionTimeout)
	}
}
