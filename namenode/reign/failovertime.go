package reign

import (
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// A lease outlives a failover if its holder hears of the next namenode before it has to
// give up. A failover takes up to one and a half session time-outs: ZooKeeper notices
// within one, and counts in ticks, of which a time-out has two at least; the take-over
// itself takes a fraction of a second. docs/LEASES.md has the sums.

// leastTTL is the shortest time to live of a lease that outlives a failover.
func (s *several) leastTTL() time.Duration { return 3 * s.cfg.HA.SessionTimeout }

// renewWithin is so early that two session time-outs are left until a session gives up
// what it holds as a lock, at seven tenths of its soft limit.
func (s *several) renewWithin(soft time.Duration) time.Duration {
	return max(soft*7/10-2*s.cfg.HA.SessionTimeout, soft/10)
}

func (s *several) sessionTTL(ttl time.Duration) time.Duration {
	return max(ttl, min(s.LeastTTL(), s.cfg.HardLimit))
}

// warnOfShortLeases says which limits are too short to outlive a failover.
func (s *several) warnOfShortLeases() {
	least := s.leastTTL()
	if set := s.cfg.MinLeaseTTL; set != 0 && set < least {
		s.log.Warn("granted leases and locks that live as short as is allowed may be lost to a failover", "reason", fserror.ReasonMinLeaseTTL, "min-lease-ttl", set, "outlives", least, "session-timeout", s.cfg.HA.SessionTimeout)
	}
	if s.cfg.SoftLimit < least {
		s.log.Warn("a lock that lives as long as the soft limit may be lost to a failover", "reason", fserror.ReasonSoftLimit, "soft-limit", s.cfg.SoftLimit, "outlives", least, "session-timeout", s.cfg.HA.SessionTimeout)
	}
}
