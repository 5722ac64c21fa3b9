package namecall

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = 20 * time.Millisecond
	// MaxBackoff is the longest pause before a repetition, unless a namenode asks
	// for a longer one.
	MaxBackoff = time.Second
	// While no namenode is active, one is asked this often, for so long; then
	// Backoff counts. Another takes over within seconds, as a rule.
	seekPause = 100 * time.Millisecond
	seekFor   = 10 * time.Second
)

// Backoff is the pause before the n-th repetition, counted from 0: doubling,
// bounded, and somewhere in its upper half so that callers do not march in step.
func Backoff(n int) time.Duration {
	d := MaxBackoff
	if n < 6 {
		d = firstBackoff << n
	}
	d = min(d, MaxBackoff)
	return d/2 + rand.N(d/2+1) //nolint:gosec // G404: jitter is no secret
}

// Seek is the pause before the n-th repetition of a call that waits for an active namenode.
func (w *Waits) Seek(n int) time.Duration {
	d := Backoff(n)
	if time.Since(w.began) < seekFor {
		d = min(d, seekPause/2+rand.N(seekPause/2)) //nolint:gosec // G404: jitter is no secret
	}
	return d
}

// Sleep waits; false means that the context or the Namenodes ended first.
func (s *Namenodes) Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil && s.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}
