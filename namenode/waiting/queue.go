// Package waiting has those who want to write a file that another has wait in the
// order in which they came.
package waiting

import (
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
)

// Config is what a Table works with. All is required.
type Config struct {
	Clock clock.Clock
	// Stopping is closed when the namenode stops; Active then says why.
	Stopping <-chan struct{}
	Active   func() error
}

// Table knows who waits for a file to be freed by its holder, in the order of
// asking. It holds entries only for files that someone waits for.
type Table struct {
	cfg    Config
	mu     sync.Mutex
	queues map[namespace.InodeID][]*waiter
	away   *share.Limit  // of waiters that are away, over all queues
	swept  time.Duration // when those whose time is over were looked for last, by the clock's Mono
}

// placeKept is for how long a place is kept for a waiter whose call has ended: a
// client that waits long asks again and again. So long the ones behind it wait
// too if it does not come back.
const placeKept = 5 * time.Second

// At most so many places are kept, for one user or address and in all; the last quarter is for those
// who have few. Nobody has to come back for his, so they count for no call. Who finds no room
// for his place goes to the end of the queue.
const (
	maxAwayOfOne = 1 << 10
	maxAway      = 1 << 14
)

// place is whose place in which queue.
type place struct {
	inode   namespace.InodeID
	session namespace.SessionID
}

// waiter is one who wants to open a file for write.
type waiter struct {
	place
	by    namespace.Holder
	who   share.Taker   // set before its call ends
	since time.Duration // by the clock's Mono, over all calls for which its place was kept
	turn  chan struct{} // has an element when this waiter should look again

	// Guarded by Table.mu: its call has ended, and it said that it asks again,
	// for which its place is kept until then, by the clock's Mono.
	away  bool
	until time.Duration
}

// New returns a Table in which nobody waits.
func New(cfg Config) *Table {
	return &Table{cfg: cfg, queues: map[namespace.InodeID][]*waiter{}, away: share.Of(maxAway, "", func(string) int64 { return maxAwayOfOne })}
}

// join puts a waiter at the end of the file's queue, or where it was before.
func (t *Table) join(inode namespace.InodeID, by namespace.Holder, now time.Duration) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &waiter{place: place{inode, by.Session}, by: by, since: now, turn: make(chan struct{}, 1)}
	q := t.drop(inode, now)
	if i := slices.IndexFunc(q, func(o *waiter) bool { return o.away && o.place == w.place }); i >= 0 {
		t.away.Give(1, q[i].who)
		w.since = q[i].since
		q[i] = w
		return w
	}
	t.insert(w)
	return w
}

// insert puts a waiter behind those in its queue who have waited for as long.
func (t *Table) insert(w *waiter) {
	q := t.queues[w.inode]
	i := slices.IndexFunc(q, func(o *waiter) bool { return o.since > w.since })
	if i < 0 {
		i = len(q)
	}
	t.queues[w.inode] = slices.Insert(q, i, w)
}

// move puts a waiter into the queue of another inode, with the time for which it has waited.
func (t *Table) move(w *waiter, inode namespace.InodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takeOut(w)
	w.inode = inode
	t.insert(w)
}

// keep keeps the place of a waiter whose call ends, and who asks again, if there is room for it.
func (t *Table) keep(w *waiter, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now-t.swept > placeKept {
		t.swept = now
		for inode := range t.queues {
			t.drop(inode, now)
		}
	}
	if !t.away.Take(1, w.who) {
		t.takeOut(w)
		return
	}
	w.away, w.until = true, now+placeKept
	t.nudge(w.inode) // they go by the clock now
}

// leave takes a waiter out, with the file or without; the next one looks again.
func (t *Table) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takeOut(w)
}

func (t *Table) takeOut(w *waiter) {
	q := t.queues[w.inode]
	if i := slices.Index(q, w); i >= 0 {
		t.set(w.inode, slices.Delete(q, i, i+1))
	}
	t.nudge(w.inode)
}

// drop takes those out of a queue who did not come back in time.
func (t *Table) drop(inode namespace.InodeID, now time.Duration) []*waiter {
	q := t.queues[inode]
	n := len(q)
	q = slices.DeleteFunc(q, func(o *waiter) bool {
		over := o.away && now > o.until
		if over {
			t.away.Give(1, o.who)
		}
		return over
	})
	if len(q) < n {
		t.set(inode, q)
	}
	return q
}

func (t *Table) set(inode namespace.InodeID, q []*waiter) {
	if len(q) == 0 {
		delete(t.queues, inode)
		return
	}
	t.queues[inode] = q
}

// look tells whether it is w's turn. If it is not, because a place before is kept
// for one who is away, then it may be so in a while; 0: w is told.
func (t *Table) look(w *waiter, now time.Duration) (mine bool, in time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.drop(w.inode, now) {
		switch {
		case o == w:
			return in == 0, in
		case !o.away:
			return false, 0
		}
		in = max(in, o.until-now+1)
	}
	return false, 0
}

// Applied has the first in the queue of each file that a record has freed look again.
func (t *Table) Applied(r namespace.Result) {
	if len(r.Closed) == 0 { // as of most records: the namespace is locked
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range r.Closed {
		if r.Opened == nil || r.Opened.Inode != f.Inode {
			t.nudge(f.Inode)
		}
	}
}

// nudge wakes the first of a queue who is there.
func (t *Table) nudge(inode namespace.InodeID) {
	for _, w := range t.queues[inode] {
		if w.away {
			continue
		}
		select {
		case w.turn <- struct{}{}:
		default:
		}
		return
	}
}

// Any reports whether anybody waits for anything.
func (t *Table) Any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queues) > 0
}

// Waiting is how many wait for a file.
func (t *Table) Waiting(inode namespace.InodeID, now time.Duration) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.drop(inode, now))
}
