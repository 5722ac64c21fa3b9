package namecall

import (
	"context"
	"sync"
	"time"
)

const (
	// suspectAfter is how long an attempt may be without an answer before the
	// client looks whether its namenode still lives. If it does it looks again
	// after twice as long, and so on, up to suspectMost; if it says nothing, after
	// suspectAgain, half as long again, and so on.
	suspectAfter = time.Second
	suspectMost  = 10 * time.Second
	suspectAgain = 200 * time.Millisecond
	suspectSoon  = 100 * time.Millisecond // from then on the others are asked too
)

// search is one look at the namenodes for all calls that wait.
type search struct {
	mu    sync.Mutex
	under *found // the one under way
}

type found struct {
	done         chan struct{}
	moved, lives bool
}

// wait waits for the look that is under way. No other begins once the namenodes'
// context has ended.
func (s *search) wait() {
	s.mu.Lock()
	under := s.under
	s.mu.Unlock()
	if under != nil {
		<-under.done
	}
}

// Suspect ends an attempt at a call, by cancel, if another namenode is active
// than the one that leaves it unanswered. A namenode that is stopped, or cut off
// from us, looks like a slow one for 20 s to its connections, and then its
// successor has served for long. The func that it returns waits until nothing of
// it is left; ctx must be over by then.
func (s *Namenodes) Suspect(ctx context.Context, cancel context.CancelFunc, ep *Node) (end func()) {
	s.mu.Lock()
	alone := len(s.list) == 1
	s.mu.Unlock()
	if alone {
		return func() {}
	}
	done := make(chan struct{})
	t := time.AfterFunc(suspectAfter, func() {
		defer close(done)
		well, ill := suspectAfter, suspectAgain
		for ctx.Err() == nil && s.ctx.Err() == nil {
			moved, lives := s.anotherServes(ctx, ep)
			switch {
			case moved:
				cancel()
				return
			case lives:
				s.Sleep(ctx, well)
				well, ill = min(2*well, suspectMost), suspectAgain
			default:
				s.Sleep(ctx, ill)
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
func (s *Namenodes) anotherServes(ctx context.Context, ep *Node) (moved, lives bool) {
	s.search.mu.Lock()
	u := s.search.under
	if u == nil {
		if s.ctx.Err() != nil {
			s.search.mu.Unlock()
			return false, true
		}
		u = &found{done: make(chan struct{})}
		s.search.under = u
		go func() {
			u.moved, u.lives = s.look(ep)
			s.search.mu.Lock()
			s.search.under = nil
			s.search.mu.Unlock()
			close(u.done)
		}()
	}
	s.search.mu.Unlock()
	select {
	case <-u.done:
		return u.moved && s.Active() != ep, u.lives
	case <-ctx.Done():
		return false, true
	}
}

// look asks ep and, if it does not answer at once, the others too. A namenode
// says that it is active only while it knows that it is.
func (s *Namenodes) look(ep *Node) (moved, lives bool) {
	ctx, cancel := context.WithTimeout(s.ctx, suspectAfter)
	defer cancel()
	others := s.others(ep)
	type answer struct {
		of     *Node
		active bool
	}
	answers := make(chan answer, 1+len(others))
	under := 0
	ask := func(e *Node) {
		under++
		go func() {
			r, err := e.Status(ctx, s.cfg.Caller)
			answers <- answer{e, err == nil && r.GetRole() == "active"}
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
	var at *Node
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
	s.active.CompareAndSwap(ep, at)
	s.inactive(ep)
	return true, false
}

// inactive tells that a namenode is not active.
func (s *Namenodes) inactive(ep *Node) {
	if s.cfg.Inactive != nil {
		s.cfg.Inactive(ep)
	}
}
