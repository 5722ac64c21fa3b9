package leasemanager

import "time"

// timing is what the limits of leases are, and from when on they count.
type timing struct {
	cfg      Config
	safeMode bool
	// No stamp counts as earlier than the floor: the last end of safe mode.
	// activated is the last activation.
	floor, activated time.Duration
}

// origin is what the times in here are ahead of the clock's, so that a lease can
// have a stamp from before the clock's beginning.
const origin = 365 * 24 * time.Hour

func (tm *timing) now() time.Duration { return tm.cfg.Clock.Mono() + origin }

// Limits returns the soft and the hard limit, and the longest time between two
// renewals: half the soft limit (or the hard one, should that be smaller). A
// session with a TTL has its own soft limit.
func (tm *timing) Limits() (soft, hard, renewEvery time.Duration) {
	return tm.cfg.Soft, tm.cfg.Hard, tm.period(tm.cfg.Soft)
}

// limits of a lease. The hard limit is the same for all that are not granted:
// their order relies on it.
func (tm *timing) limits(l *lease) (soft, hard time.Duration) {
	if l.kind == KindGranted {
		ttl := time.Duration(l.limit.Load())
		return ttl, ttl
	}
	return time.Duration(l.s.main.limit.Load()), tm.cfg.Hard
}

// softOf is the soft limit of the holder's session.
func (tm *timing) softOf(h Holder) time.Duration {
	if h.TTL <= 0 {
		return tm.cfg.Soft
	}
	return min(h.TTL, tm.cfg.Hard)
}

// period is the longest time between two renewals under a soft limit.
func (tm *timing) period(soft time.Duration) time.Duration { return min(soft, tm.cfg.Hard) / 2 }

// stamp is the moment from which the lease's limits count.
func (tm *timing) stamp(l *lease) time.Duration {
	return max(stampOf(l.word.Load()), tm.floor)
}

// deadline is the last moment at which the granted lease is not past its TTL.
func (tm *timing) deadline(l *lease) time.Duration {
	return tm.stamp(l) + time.Duration(l.limit.Load())
}

func (tm *timing) remaining(l *lease, now time.Duration) time.Duration {
	ttl := time.Duration(l.limit.Load())
	switch {
	case l.has(flagEnding):
		return 0
	case tm.safeMode:
		return ttl
	}
	return min(max(tm.deadline(l)-now, 0), ttl)
}

// grace is how long a lease lives on at least after an activation, whatever its
// age: once in a row of activations the whole, and least in each.
type grace struct{ whole, least time.Duration }

// graceOf is that of a lease: its renewal period, or a third of its TTL, and a
// tenth of that, for who holds it to connect again; no more than for sessions.
func (tm *timing) graceOf(k Kind, soft, ttl time.Duration) grace {
	whole := tm.period(soft)
	if k == KindGranted {
		whole = ttl / 3
	}
	return grace{whole, max(min(whole, tm.period(tm.cfg.Soft))/10, 1)}
}

// left is how long a lease lives on after an activation that finds its age: up to
// the limit; the grace, if it is older; and of one that is past the limit, what is
// left of that grace, since its age keeps growing while the grace is used up.
func (g grace) left(age, limit time.Duration) time.Duration {
	if age <= limit {
		return max(limit-age, g.whole)
	}
	return max(g.whole-(age-limit), g.least)
}

func (tm *timing) grace(l *lease) grace {
	soft, limit := tm.limits(l)
	return tm.graceOf(l.kind, soft, limit)
}

// silent reports whether nothing was heard of the lease since the activation.
func (tm *timing) silent(l *lease) bool { return tm.stamp(l) <= tm.activated }

// inTime reports whether a pass that began then may continue.
func (tm *timing) inTime(begin time.Duration) bool { return tm.now()-begin <= tm.cfg.Slice }

// result is the answer to a session with the soft limit, with nothing to tell:
// to renew after the renewal period, less up to a fifth.
func (tm *timing) result(soft time.Duration) RenewResult {
	next := tm.period(soft)
	if tm.cfg.Jitter != nil {
		next -= time.Duration(tm.cfg.Jitter() * float64(next/5))
	}
	return RenewResult{Next: next, Soft: soft, Hard: tm.cfg.Hard}
}

// promise lowers the limits in the answer to a renewal of the lease while the
// journal has an age of it: to what a successor that finds that age would give.
// It asks for an early renewal, which finds them whole again. The lease's stamp
// is to be set before.
func (tm *timing) promise(l *lease, res *RenewResult) {
	owed := time.Duration(l.owes.Load())
	if owed == 0 {
		return
	}
	period := tm.period(res.Soft)
	res.Next = min(res.Next, period/10)
	res.Hard = tm.graceOf(KindSession, res.Soft, 0).left(owed, res.Hard)
	res.Soft = max(res.Soft-owed, period)
}

// hurry is for an answer that leaves more to be told.
func (tm *timing) hurry(res *RenewResult) {
	res.Next = min(tm.period(res.Soft)/10, time.Second)
}
