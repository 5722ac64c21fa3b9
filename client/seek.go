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
	// client looks whether its namenode still lives. If it does it looks again
	// after twice as long, and so on, up to suspectMost; if it says nothing, after
	// suspectAgain, half as long again, and so on.
	suspectAfter = time.Second
	suspectMost  = 10 * time.Second
	suspectAgain = 200 * time.Millisecond
	suspectSoon  = 100 * time.Millisecond // from then on the others are asked too
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
	done         chan struct{}
	moved, lives bool
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
		well, ill := suspectAfter, suspectAgain
		for ctx.Err() == nil {
			moved, lives := f.anotherServes(ctx, ep)
			switch {
			case moved:
				cancel()
				return
			case lives:
				sleep(ctx, f.ctx, well)
				well, ill = min(2*well, suspectMost), suspectAgain
			default:
				sleep(ctx, f.ctx, ill)
				ill = min(ill*3/2, suspectMost)
			}
		}
	})
	return func() {
		if !t.Stop() {
			<-done
		}
	}
}

// anotherServes reports whether ep does not say that it is active, and another
// namenode does, which is asked from then on; else, whether ep says so.
func (f *FS) anotherServes(ctx context.Context, ep *endpoint) (moved, lives bool) {
	f.search.mu.Lock()
	s := f.search.under
	if s == nil {
		s = &found{done: make(chan struct{})}
		look := func() {
			s.moved, s.lives = f.look(ep)
			f.search.mu.Lock()
			f.search.under = nil
			f.search.mu.Unlock()
			close(s.done)
		}
		if !f.goRun(look) { // the FS is being closed
			f.search.mu.Unlock()
			return false, true
		}
		f.search.under = s
	}
	f.search.mu.Unlock()
	select {
	case <-s.done:
		return s.moved && f.eps.current.Load() != ep, s.lives
	case <-ctx.Done():
		return false, true
	}
}

// look asks ep and, if it does not answer at once, the others too. A namenode
// says that it is active only while it knows that it is.
func (f *FS) look(ep *endpoint) (moved, lives bool) {
	ctx, cancel := context.WithTimeout(f.ctx, suspectAfter)
	defer cancel()
	others := f.eps.others(ep)
	type answer struct {
		of     *endpoint
		active bool
	}
	answers := make(chan answer, 1+len(others))
	under := 0
	ask := func(e *endpoint) {
		under++
		go func() {
			s := askStatus(ctx, e, f.caller)
			answers <- answer{e, s.Err == nil && s.Role == "active"}
		}()
	}
	defer func() { // none of them outlives this
		cancel()
		for ; under > 0; under-- {
			<-answers
		}
	}()
	ask(ep)
	soon := time.NewTimer(suspectSoon)
	defer soon.Stop()
	var at *endpoint
	silent := true // ep is
	for at == nil && under+len(others) > 0 {
		all := others
		select {
		case a := <-answers:
			under--
			silent = silent && a.of != ep
			if a.active {
				at, all = a.of, nil
			}
		case <-soon.C:
		}
		for _, e := range all {
			ask(e)
		}
		others = nil
		if silent && under == 1 {
			break // all others have said that they are not
		}
	}
	if at == nil || at == ep {
		return false, at == ep
	}
	f.eps.current.CompareAndSwap(ep, at)
	f.kickSession(ep)
	return true, false
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
