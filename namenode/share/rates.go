package share

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates lets holders begin no more calls a second than their quotas say: each has two seconds'
// worth at once, and then as many as come in. It is safe for concurrent use.
type Rates struct {
	quota Quota

	mu   sync.Mutex
	of   map[string]*bucket
	most int // how many there were after the last look for those that are full

	refuses uint64 // how many calls in all
}

// bucket is what one holder may begin.
type bucket struct {
	*rate.Limiter
	most             int64 // a second
	delayed, refused uint64
}

// NewRates returns Rates of holders who have what quota says.
func NewRates(quota Quota) *Rates { return &Rates{quota: quota, of: map[string]*bucket{}} }

// Next says how long who has to wait before his next call begins. If that is longer than
// patience, the call is not to be begun, and over is whose rate is used up.
func (r *Rates) Next(who Taker, now time.Time, patience time.Duration) (wait time.Duration, over string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var held []*rate.Reservation
	for _, name := range who.Names {
		b := r.bucket(name, now)
		if b == nil {
			continue
		}
		v := b.ReserveN(now, 1)
		held = append(held, v)
		d := v.DelayFrom(now)
		if d > 0 {
			b.delayed++
		}
		wait = max(wait, d)
		if d > patience {
			b.refused++
			b.delayed--
			over = name
		}
	}
	if over != "" {
		r.refuses++
		for _, v := range held {
			v.CancelAt(now)
		}
	}
	return wait, over
}

// Refusals is how many calls were not to be begun.
func (r *Rates) Refusals() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refuses
}

// bucket returns a holder's; nil if his calls have no limit.
func (r *Rates) bucket(name string, now time.Time) *bucket {
	most := r.quota(name)
	b := r.of[name]
	switch {
	case most == 0:
		return nil
	case b == nil:
		r.tidy(now)
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(most), burst(most)), most: most}
		r.of[name] = b
	case b.most != most: // the file says something else by now
		b.most = most
		b.SetLimitAt(now, rate.Limit(most))
		b.SetBurstAt(now, burst(most))
	}
	return b
}

func burst(most int64) int { return int(min(2*most, 1<<30)) }

// tidy forgets holders who have begun nothing for a while, now and then.
func (r *Rates) tidy(now time.Time) {
	if len(r.of) < 2*r.most+1000 {
		return
	}
	for name, b := range r.of {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(r.of, name)
		}
	}
	r.most = len(r.of)
}

// Greedy are those whose calls had to wait or were refused, of late, the most so first.
func (r *Rates) Greedy(now time.Time) (all []Holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, b := range r.of {
		if b.delayed+b.refused > 0 {
			all = append(all, b.holding(name, now))
		}
	}
	return first(all)
}

// holding is what the holder of a name has begun.
func (b *bucket) holding(name string, now time.Time) Holding {
	free := max(b.TokensAt(now), 0)
	return Holding{What: Calls, Who: holder(name), Held: int64((float64(b.Burst()) - free) / 2), Most: b.most, Refused: b.refused, Delayed: b.delayed}
}

// Held is what a user has begun, if his calls have a limit.
func (r *Rates) Held(user string, now time.Time) (all []Holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := userPrefix + user
	if b := r.bucket(name, now); b != nil {
		all = append(all, b.holding(name, now))
	}
	return all
}
