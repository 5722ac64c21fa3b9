package readlease

import (
	"sync"
	"sync/atomic"
	"time"
)

// owners knows whose the sessions are: who lets a lease end unanswered must not
// get another at once by coming back as a new session.
type owners struct {
	mu  sync.Mutex
	all map[string]*owner
}

// owner is one of them. It is kept while it has sessions, or a penalty.
type owner struct {
	sessions int           // by owners.mu
	until    time.Duration // no session that comes now gets a lease before; by owners.mu
	barred   atomic.Int64  // no session at all does
}

// join adds a session to an owner, and returns before when it gets no lease.
func (o *owners) join(name string) (of *owner, bar time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = make(map[string]*owner)
	}
	of = o.all[name]
	if of == nil {
		of = new(owner)
		o.all[name] = of
	}
	of.sessions++
	return of, of.until
}

// room is how many sessions there may be when an owner adds one: the last quarter
// is for those who have few.
func (t *Table) room(of string) int {
	t.owners.mu.Lock()
	defer t.owners.mu.Unlock()
	if o := t.owners.all[of]; o != nil && o.sessions >= max(t.cfg.MaxSessions/64, 1) {
		return t.cfg.MaxSessions * 3 / 4
	}
	return t.cfg.MaxSessions
}

func (o *owners) leave(of *owner) {
	if of == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	of.sessions--
}

// lost takes in that a session has lost its lease. Sessions that the owner has
// already may be other programs of its, which have always answered; if another one
// loses its lease before the penalty is over, they are all taken for one.
func (o *owners) lost(of *owner, now, penalty time.Duration) {
	if of == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now < of.until {
		of.barred.Store(int64(now + penalty))
	}
	of.until = now + penalty
}

// bars tells whether no session of the owner gets a lease.
func (of *owner) bars(now time.Duration) bool {
	return of != nil && int64(now) < of.barred.Load()
}

// sweep forgets owners that have no session and no penalty.
func (o *owners) sweep(now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, of := range o.all {
		if of.sessions == 0 && now >= of.until {
			delete(o.all, name)
		}
	}
}
