package kerberos

import (
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// keepReplays is for how long what was shown is known, by the boot clock: it is refused
	// for its age after.
	keepReplays = 2*MaxSkew + time.Minute
	// maxReplays is how many are known at most, and maxOfOne how many of one principal.
	maxReplays = 1 << 18
	maxOfOne   = maxReplays / 16
)

// replays remembers recent authenticators, to refuse reuse by whoever has seen one. The zero
// value has none. It is safe for concurrent use.
type replays struct {
	mu    sync.Mutex
	seen  map[[32]byte]struct{}
	of    map[Principal]int
	order []shown // the oldest first
	// forgotten is the latest time that clients' clocks had at what is not known any more. The
	// namenode's clock is past it by more than MaxSkew, unless it was set back.
	forgotten time.Time
}

type shown struct {
	sum [32]byte
	by  Principal
	// made is when it was made, by the client's clock, and at when it was shown, by the boot clock.
	made time.Time
	at   time.Duration
}

// add refuses what is known, or might be a forgotten one, and else knows it from now on.
func (r *replays) add(by Principal, sum [32]byte, made time.Time, now time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen, r.of = map[[32]byte]struct{}{}, map[Principal]int{}
	}
	gone := 0
	for gone < len(r.order) && now-r.order[gone].at > keepReplays {
		o := r.order[gone]
		delete(r.seen, o.sum)
		if o.made.After(r.forgotten) {
			r.forgotten = o.made
		}
		if r.of[o.by]--; r.of[o.by] == 0 {
			delete(r.of, o.by)
		}
		gone++
	}
	if r.order = r.order[gone:]; len(r.order) == 0 {
		r.order = nil
	}
	if _, again := r.seen[sum]; again {
		return refuse("the proof by Kerberos of %s was shown before: each is good once", by)
	}
	if !made.After(r.forgotten) {
		return refuse("the proof by Kerberos of %s was made at %s by the client's clock, and what was shown then is not known any more: this namenode's clock was set back", by, made.UTC().Format(time.RFC3339))
	}
	if len(r.order) >= maxReplays || r.of[by] >= maxOfOne {
		return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonProof, RetryAfter: 10 * time.Second, Message: "there were too many proofs by Kerberos within ten minutes, by one principal or in all; keep connections, or get a delegation token"}
	}
	r.seen[sum] = struct{}{}
	r.of[by]++
	r.order = append(r.order, shown{sum, by, made, now})
	return nil
}
