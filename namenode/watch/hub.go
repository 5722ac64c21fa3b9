package watch

import "sync"

// Hub keeps the latest events and hands them to watchers. See the package
// comment for its rules. All methods are safe for concurrent use; the order of
// the calls of Add is the caller's responsibility.
type Hub struct {
	ring ring

	mu     sync.Mutex // taken before the ring's
	closed bool
	newest uint64 // all up to this txid is visible
	seen   uint64 // all events with a seq below this are visible

	root     node // of the watched paths
	paths    int  // how many watchers of paths there are
	inodes   map[uint64]*inodeSpot
	watchers map[*Watcher]struct{} // neither closed nor told that they are too late
	dropped  uint64                // those that were told
	waits    map[uint64]*wait
	scratch  []*chunk
	queue    []*Watcher // those to be woken, each once, in order
	reading  int        // those that were woken while they waited, and have not looked yet
}

// wait is what all have that wait for an inode's next event.
type wait struct {
	ch    chan struct{}
	users int
}

// New returns a Hub that knows no event up to and including the txid after:
// these count as visible, and as too old.
func New(cfg Config, after uint64) *Hub {
	if cfg.MaxEvents <= 0 {
		cfg.MaxEvents = DefaultMaxEvents
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	return &Hub{
		ring:     ring{maxEvents: uint64(cfg.MaxEvents), maxBytes: cfg.MaxBytes, dropped: after, last: after, shown: after}, //nolint:gosec // positive
		newest:   after,
		inodes:   map[uint64]*inodeSpot{},
		watchers: map[*Watcher]struct{}{},
		waits:    map[uint64]*wait{},
	}
}

// Add takes the events of the change txid, which nobody sees before Publish. It
// copies them and sets their TxID; their strings are kept as they are. Changes
// come in the order of txids, and before they are published; those without
// events may be left out; the events of one may come in several calls. It wakes
// nobody, waits for nobody, and allocates only for the ring to grow: one chunk
// every 256 events.
//
// A change that comes out of order is a fault of the caller. It counts as a gap:
// everything that is kept is dropped, and with the next Publish all watchers are
// told.
func (h *Hub) Add(events []Event, txid uint64) { h.ring.add(events, txid) }

// Publish makes all events up to the txid durable visible. It wakes the waiters
// that they are for, and puts the watchers into the queue for Wake. A durable that
// is not newer does nothing. due reports whether a watcher is in the queue.
func (h *Hub) Publish(durable uint64) (due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if durable <= h.newest || h.closed {
		return len(h.queue) > 0
	}
	look := len(h.watchers) > 0 || len(h.waits) > 0
	from, end, dropped, chunks := h.ring.show(durable, h.seen, look, h.scratch)
	if dropped > h.newest {
		h.gap(dropped)
	}
	for i, c := range chunks {
		start := from / chunkLen * chunkLen // of the chunk
		for ; from < min(end, start+chunkLen); from++ {
			h.wake(&c[from-start].Event, from)
		}
		chunks[i] = nil
	}
	h.scratch = chunks[:0]
	h.seen, h.newest = end, durable
	return len(h.queue) > 0
}

// Wake wakes the watchers that have been in the queue for longest: at most most of
// them, or one in share of all watchers if that is more. It returns how many it
// woke. Each reads all that is visible then.
func (h *Hub) Wake(most, share int) (woken int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most = max(most, len(h.watchers)/share)
	var n int
	for n = 0; n < len(h.queue) && woken < most; n++ {
		w := h.queue[n]
		w.due = false
		if !w.idle && w.err == nil { // it may have looked by itself
			w.poke()
			woken++
			if w.waits && !w.woken {
				w.woken = true
				h.reading++
			}
		}
	}
	clear(h.queue[:n])
	if h.queue = h.queue[n:]; len(h.queue) == 0 {
		h.queue = nil
	}
	return woken
}

// Reading returns how many watchers were woken while they waited in Next and have not
// looked yet: the processors are still to come to them.
func (h *Hub) Reading() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reading
}

// wake wakes all that wait for the event.
func (h *Hub) wake(e *Event, seq uint64) {
	if h.paths > 0 {
		h.root.wake(e.Path, moves(e), seq, e.TxID)
		if e.Type == Rename {
			h.root.wake(e.NewPath, true, seq, e.TxID)
		}
	}
	if len(h.inodes) > 0 {
		if s := h.inodes[e.Inode]; s != nil {
			s.wake(seq, e.TxID)
		}
	}
	if len(h.waits) > 0 {
		if w := h.waits[e.Inode]; w != nil {
			delete(h.waits, e.Inode)
			close(w.ch)
		}
	}
}

// gap tells all that have read everything that events were dropped before they
// became visible. Those that have something to read find out by themselves.
func (h *Hub) gap(dropped uint64) {
	for w := range h.watchers {
		if w.idle && w.progress() < dropped {
			w.fall(dropped)
			w.poke()
		}
	}
	h.wakeWaits()
}

func (h *Hub) wakeWaits() {
	for inode, w := range h.waits {
		delete(h.waits, inode)
		close(w.ch)
	}
}

// Newest returns the txid up to which all is visible.
func (h *Hub) Newest() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest
}

// Oldest returns the smallest txid that a watch can begin with and have no gap.
// It is beyond Newest+1 if events were dropped before they became visible.
func (h *Hub) Oldest() uint64 { return h.ring.droppedTo() + 1 }

// Watch begins a watch of all events with a TxID of at least from that match the
// filter. A from in the future begins there. With 0 it begins with what becomes
// visible from now on (should the next events be dropped already: after these).
// start is where it begins: from, or the txid that 0 came to. Close the watcher
// when done.
//
// The error is a *TooOldError if from is less than Oldest, ErrClosed, or, for a
// filter that is not valid, an fserror of kind InvalidArgument, InvalidPath or
// NameTooLong.
func (h *Hub) Watch(from uint64, filter Filter) (w *Watcher, start uint64, err error) {
	if err := filter.check(); err != nil {
		return nil, 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, 0, ErrClosed
	}
	h.ring.mu.Lock()
	dropped := h.ring.dropped
	if from == 0 {
		from = max(h.newest, dropped) + 1
	}
	pos := h.ring.search(0, h.seen, from)
	h.ring.mu.Unlock()
	if from <= dropped {
		return nil, 0, &TooOldError{From: from, Oldest: dropped + 1}
	}

	w = &Watcher{hub: h, filter: filter, base: from - 1, pos: pos, upTo: from - 1, notice: make(chan struct{}, 1)}
	h.watchers[w] = struct{}{}
	if filter.Path != "" {
		h.paths++
		w.node = h.root.enter(filter.Path)
		w.at = &w.node.flat
		if filter.Recursive {
			w.at = &w.node.deep
		}
	} else {
		s := h.inodes[filter.Inode]
		if s == nil {
			s = new(inodeSpot)
			h.inodes[filter.Inode] = s
		}
		s.users++
		w.at = &s.spot
	}
	if pos >= h.seen {
		w.rest()
	}
	return w, from, nil
}

// Wait returns a channel that is closed when the inode's next event becomes
// visible, or when events were dropped unseen, or at Close: a reason to look
// again, no more. Call done when the channel is not needed any more; again does
// nothing. After Close the channel is never closed.
func (h *Hub) Wait(inode uint64) (event <-chan struct{}, done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.waits[inode]
	if w == nil {
		w = &wait{ch: make(chan struct{})}
		if !h.closed {
			h.waits[inode] = w
		}
	}
	w.users++
	left := false
	return w.ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if left {
			return
		}
		left = true
		if w.users--; w.users == 0 && h.waits[inode] == w {
			delete(h.waits, inode)
		}
	}
}

// Close ends all watches with ErrClosed, unread events or not, and wakes all
// that Wait. Add and Publish may still be called.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for w := range h.watchers {
		w.unsubscribe(ErrClosed)
		w.poke()
	}
	h.wakeWaits()
}

// Stats returns the figures of this moment.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring.mu.Lock()
	defer h.ring.mu.Unlock()
	return Stats{
		Events:   int(h.ring.end - h.ring.first), //nolint:gosec // at most MaxEvents
		Bytes:    h.ring.bytes,
		Oldest:   h.ring.dropped + 1,
		Newest:   h.newest,
		Watchers: len(h.watchers),
		Dropped:  h.dropped,
	}
}
