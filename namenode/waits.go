package namenode

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/namenode/namespace"
)

// waitTable knows who waits for a file to be freed by its holder, in the order
// of asking. It holds entries only for files that someone waits for.
type waitTable struct {
	mu     sync.Mutex
	queues map[namespace.InodeID][]*waiter
	last   uint64
	places map[place]kept
	prune  int // how many places there may be before old ones are looked for
}

// placeKept is for how long the place of a waiter whose call ended is kept: a
// client that waits long asks again and again.
const placeKept = 5 * time.Second

// place is whose place in which queue.
type place struct {
	inode   namespace.InodeID
	session namespace.SessionID
}

// kept is a place that is kept.
type kept struct {
	n    uint64
	left time.Duration // when, by the clock's Mono
}

// waiter is one who wants to open a file for write.
type waiter struct {
	place
	n     uint64        // queues are in the order of these
	turn  chan struct{} // has an element when this waiter should try
	tried bool
}

func newWaitTable() *waitTable {
	return &waitTable{queues: map[namespace.InodeID][]*waiter{}, places: map[place]kept{}}
}

// join puts a waiter at the end of the file's queue, or where it was before.
func (t *waitTable) join(at place, now time.Duration) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	w := &waiter{place: at, n: t.last, turn: make(chan struct{}, 1)}
	if k, ok := t.places[at]; ok {
		delete(t.places, at)
		if now-k.left <= placeKept {
			w.n = k.n
		}
	}
	q := t.queues[at.inode]
	i, _ := slices.BinarySearchFunc(q, w.n, func(o *waiter, n uint64) int { return cmp.Compare(o.n, n) })
	t.queues[at.inode] = slices.Insert(q, i, w)
	return w
}

// keep keeps the place of a waiter who leaves without the file.
func (t *waitTable) keep(w *waiter, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k, ok := t.places[w.place]; ok && k.n < w.n && now-k.left <= placeKept {
		return // of another of its threads
	}
	t.places[w.place] = kept{w.n, now}
	if len(t.places) > t.prune {
		maps.DeleteFunc(t.places, func(_ place, k kept) bool { return now-k.left > placeKept })
		t.prune = max(64, 2*len(t.places))
	}
}

// first reports whether w heads its queue: only the first looks at the clock.
func (t *waitTable) first(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[w.inode]
	return len(q) > 0 && q[0] == w
}

// leave takes a waiter out, with the file or without; the next one gets a turn
// to look again.
func (t *waitTable) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[w.inode]
	if i := slices.Index(q, w); i >= 0 {
		q = slices.Delete(q, i, i+1)
	}
	if len(q) == 0 {
		delete(t.queues, w.inode)
		return
	}
	t.queues[w.inode] = q
	q[0].wake()
}

// freed gives the first in the queue its turn.
func (t *waitTable) freed(inode namespace.InodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.queues[inode]; len(q) > 0 {
		q[0].wake()
	}
}

func (w *waiter) wake() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// waiting is how many wait for a file.
func (t *waitTable) waiting(inode namespace.InodeID) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queues[inode])
}
