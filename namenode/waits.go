package namenode

import (
	"slices"
	"sync"

	"github.com/leasefs/leasefs/namenode/namespace"
)

// waitTable knows who waits for a file to be freed by its holder, in the order
// of asking. It holds entries only for files that someone waits for.
type waitTable struct {
	mu     sync.Mutex
	queues map[namespace.InodeID][]*waiter
}

// waiter is one who wants to open a file for write.
type waiter struct {
	inode namespace.InodeID
	turn  chan struct{} // has an element when this waiter should try
	tried bool
}

func newWaitTable() *waitTable {
	return &waitTable{queues: map[namespace.InodeID][]*waiter{}}
}

// join puts a waiter at the end of the file's queue.
func (t *waitTable) join(inode namespace.InodeID) *waiter {
	w := &waiter{inode: inode, turn: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[inode] = append(t.queues[inode], w)
	return w
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
