package watch

import (
	"context"
	"time"
)

// What one batch may be. One txid alone may be more.
const (
	MaxBatch      = 1000      // events
	MaxBatchBytes = 128 << 10 // as Config.MaxBytes counts them

	// allBatches is what one batch of each watcher may be together, as far as each
	// has leastBatch: those who take nothing of it keep it in memory.
	allBatches = 256 << 20
	leastBatch = 8 << 10

	// firstRoom is for how many events a batch has room at first.
	firstRoom = 32
)

// Watcher is one watch. Next is called by one goroutine at a time; UpTo and
// Close by any, at any time.
type Watcher struct {
	hub    *Hub
	filter Filter
	base   uint64        // the watch is of events after this txid
	notice chan struct{} // has an element when there may be something new for Next

	// The rest is guarded by the hub's lock.

	node *node // of a watch by path
	at   *spot // where it stands in the index when it is idle
	slot int   // at that spot
	idle bool  // it has read all that is visible; pos and upTo mean nothing then
	due  bool  // it is in the hub's queue
	// waits: Next waits for notice; woken: it was given that while it did, and has not looked yet.
	waits, woken bool
	pos          uint64
	upTo         uint64
	err          error // it is over
}

// poke makes Next look.
func (w *Watcher) poke() {
	select {
	case w.notice <- struct{}{}:
	default:
	}
}

// rest notes that the watcher has read all that is visible.
func (w *Watcher) rest() {
	w.idle = true
	w.at.add(w)
}

// progress is UpTo under the hub's lock.
func (w *Watcher) progress() uint64 {
	if w.idle {
		return max(w.base, w.hub.newest)
	}
	return w.upTo
}

// unsubscribe takes the watcher out of the hub. The first cause stays.
func (w *Watcher) unsubscribe(cause error) {
	if w.err != nil {
		return
	}
	h := w.hub
	w.err = cause
	if w.idle {
		w.upTo = w.progress()
		w.idle = false
		w.at.remove(w)
	}
	if w.node != nil {
		h.paths--
		w.node.leave()
	} else if s := h.inodes[w.filter.Inode]; s.users == 1 {
		delete(h.inodes, w.filter.Inode)
	} else {
		s.users--
	}
	delete(h.watchers, w)
}

// fall ends the watcher because events that it needs were dropped.
func (w *Watcher) fall(dropped uint64) {
	if w.err != nil {
		return
	}
	w.unsubscribe(&TooOldError{From: w.progress() + 1, Oldest: dropped + 1})
	w.hub.dropped++
}

// UpTo returns the txid up to which every matching event was returned by Next. A
// watch of the same filter from UpTo+1 on continues where this one is. It grows
// by itself while there is nothing to return, and never shrinks.
func (w *Watcher) UpTo() uint64 {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.progress()
}

// Close ends the watch; a Next that waits returns ErrClosed. A second call does
// nothing.
func (w *Watcher) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.unsubscribe(ErrClosed)
	w.poke()
}

// Next returns the next events in order, and the txid up to which every
// matching event was returned with this batch or before. If there are none it
// waits for some, until ctx ends; what became visible before that comes first, so
// that with a context that has ended it asks without waiting. The events of one txid
// are never split. A batch has at most MaxBatch events and MaxBatchBytes, or is
// of a single txid. The slice is the caller's.
//
// The error is that of ctx (the watcher can still be used), ErrClosed, or a
// *TooOldError: events after upTo were dropped. The latter two are for good.
// There are no events with an error.
func (w *Watcher) Next(ctx context.Context) (events []*Kept, upTo uint64, err error) {
	return w.NextUntil(ctx, nil)
}

// NextUntil is Next which returns no events, and no error, when over has an element while it
// waits.
func (w *Watcher) NextUntil(ctx context.Context, over <-chan time.Time) (events []*Kept, upTo uint64, err error) {
	h := w.hub
	for quiet := false; ; {
		// Before looking: what was published before ctx ended is returned.
		ended := ctx.Err()
		h.mu.Lock()
		if dropped := h.ring.droppedTo(); dropped > w.progress() {
			w.fall(dropped)
		}
		if w.woken {
			w.woken = false
			h.reading--
		}
		idle, pos, seen, newest := w.idle, w.pos, h.seen, h.newest
		upTo, err = w.progress(), w.err
		room := min(MaxBatchBytes, max(leastBatch, int64(allBatches/max(1, len(h.watchers)))))
		w.waits = err == nil && idle && ended == nil && !quiet
		h.mu.Unlock()
		switch {
		case err != nil:
			return nil, upTo, err
		case !idle:
			// Until it is idle again, only Next changes where the watcher is.
			batch, pos, done := w.scan(pos, seen, upTo, max(w.base, newest), room)
			if upTo, ok := w.advance(pos, done); ok && len(batch) > 0 {
				return batch, upTo, nil
			}
			continue
		case ended != nil:
			return nil, upTo, ended
		case quiet:
			return nil, upTo, nil
		}
		select {
		case <-w.notice:
		case <-ctx.Done():
		case <-over:
			quiet = true
		}
	}
}

// advance notes how far the watcher has read, and returns its progress; false if
// it was ended meanwhile.
func (w *Watcher) advance(pos, upTo uint64) (progress uint64, ok bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.err != nil {
		return 0, false
	}
	w.pos, w.upTo = pos, upTo
	if pos == w.hub.seen {
		w.rest()
	}
	return w.progress(), true
}

// scan collects a batch from the events pos ≤ seq < end, all up to the txid upTo
// having been read before. It returns where to continue, and the txid up to which
// all is read now; done means that it came to the end. If events on the way were
// dropped it returns nothing, and where it began. room is how many bytes it may be.
func (w *Watcher) scan(pos, end, upTo, done uint64, room int64) (batch []*Kept, next, nextUpTo uint64) {
	var (
		begin   = pos
		bytes   int64  // of the batch
		tx      uint64 // the one at pos
		txSeq   uint64 // where it begins
		txStart int    // where it begins in the batch
	)
	for pos < end {
		c := w.hub.ring.chunk(pos)
		if c == nil {
			return nil, begin, upTo
		}
		for stop := min(end, (pos/chunkLen+1)*chunkLen); pos < stop; pos++ {
			e := &c[pos%chunkLen]
			if e.TxID != tx {
				if len(batch) >= MaxBatch || bytes >= room {
					return batch, pos, e.TxID - 1
				}
				tx, txSeq, txStart = e.TxID, pos, len(batch)
			}
			if !w.filter.match(&e.Event) {
				continue
			}
			if batch == nil {
				batch = make([]*Kept, 0, min(end-pos, firstRoom))
			}
			batch = append(batch, e)
			bytes += e.size()
			if txStart > 0 && (len(batch) > MaxBatch || bytes > room) {
				clear(batch[txStart:])
				return batch[:txStart], txSeq, tx - 1
			}
		}
	}
	return batch, pos, done
}
