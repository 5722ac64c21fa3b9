package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// While no namenode is active, one is asked this often, for so long; then
	// backoffFor counts. Another takes over within seconds, as a rule.
	seekPause = 100 * time.Millisecond
	seekFor   = 10 * time.Second
	// suspectAfter is how long an attempt may be without an answer before the
	// client looks whether its namenode still lives; then twice as long, and so
	// on, up to suspectMost.
	suspectAfter = time.Second
	suspectMost  = 10 * time.Second
)

// seekBackoff is the pause before the n-th repetition of what waits, for so long
// already, for an active namenode.
func seekBackoff(n int, waited time.Duration) time.Duration {
	d := backoffFor(n)
	if waited < seekFor {
		d = min(d, seekPause/2+rand.N(seekPause/2)) //nolint:gosec // G404: jitter is no secret
	}
	return d
}

// search is one look at the namenodes for all calls that wait.
type search struct {
	mu    sync.Mutex
	under *found // the one under way
}

type found struct {
	done  chan struct{}
	moved bool
}

// suspect ends an attempt at a call, by cancel, if another namenode is active
// than the one that leaves it unanswered. A namenode that is stopped, or cut off
// from us, looks like a slow one for 20 s to its connections, and then its
// successor has served for long. The func that it returns waits until nothing of
// it is left; ctx must be over by then.
func (f *FS) suspect(ctx context.Context, cancel context.CancelFunc, ep *endpoint) (end func()) {
	if !f.eps.several() {
		return func() {}
	}
	done := make(chan struct{})
	t := time.AfterFunc(suspectAfter, func() {
		defer close(done)
		for pause := suspectAfter; ctx.Err() == nil; pause = min(2*pause, suspectMost) {
			if f.anotherServes(ctx, ep) {
				cancel()
				return
			}
			sleep(ctx, f.ctx, pause)
		}
	})
	return func() {
		if !t.Stop() {
			<-done
		}
	}
}

// anotherServes reports whether ep does not say that it is active, and another
// namenode does; that one is asked from then on.
func (f *FS) anotherServes(ctx context.Context, ep *endpoint) bool {
	f.search.mu.Lock()
	s := f.search.under
	if s == nil {
		s = &found{done: make(chan struct{})}
		look := func() {
			s.moved = f.look(ep)
			f.search.mu.Lock()
			f.search.under = nil
			f.search.mu.Unlock()
			close(s.done)
		}
		if !f.goRun(look) { // the FS is being closed
			f.search.mu.Unlock()
			return false
		}
		f.search.under = s
	}
	f.search.mu.Unlock()
	select {
	case <-s.done:
		return s.moved && f.eps.current.Load() != ep
	case <-ctx.Done():
		return false
	}
}

func (f *FS) look(ep *endpoint) (moved bool) {
	const active = "active"
	// Of two that say so at once one is wrong, and its answers are refused.
	if own := askStatus(f.ctx, ep, f.caller, suspectAfter); own.Err == nil && own.Role == active {
		return false
	}
	others := f.eps.others(ep)
	all, err := statusOfAll(f.ctx, others, f.caller, suspectAfter)
	if err != nil {
		return false
	}
	for i := range all {
		if all[i].Err == nil && all[i].Role == active {
			f.eps.current.CompareAndSwap(ep, others[i])
			f.kickSession(ep)
			return true
		}
	}
	return false
}

// several reports whether there is another namenode to ask.
func (s *endpoints) several() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 1
}

func (s *endpoints) others(ep *endpoint) []*endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*endpoint
	for _, e := range s.list {
		if e != ep {
			out = append(out, e)
		}
	}
	return out
}
