package watch

import (
	"sort"
	"sync"
)

const chunkLen = 256

// chunk is a piece of the ring. An event in it is written once.
type chunk [chunkLen]Kept

// ring holds the latest events. Each event has a number, its seq: they are
// counted from 0 and never used again.
type ring struct {
	maxEvents uint64
	maxBytes  int64

	mu     sync.Mutex
	chunks []*chunk // the first one has the event first
	// The events first ≤ seq < end are kept.
	first, end uint64
	bytes      int64
	dropped    uint64 // no event up to this txid is kept
	last       uint64 // the largest txid that was added
	shown      uint64 // the largest txid that was published
}

func (r *ring) at(seq uint64) *Kept {
	return &r.chunks[seq/chunkLen-r.first/chunkLen][seq%chunkLen]
}

func (r *ring) add(events []Event, txid uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if txid < r.last || txid <= r.shown {
		r.forget(max(r.last, r.shown) + 1)
		return
	}
	r.last = txid
	for i := range events {
		if txid <= r.dropped {
			return
		}
		r.push(&events[i], txid)
		for r.end-r.first > r.maxEvents || r.bytes > r.maxBytes {
			r.drop()
		}
	}
}

func (r *ring) push(e *Event, txid uint64) {
	if r.end/chunkLen-r.first/chunkLen == uint64(len(r.chunks)) {
		r.chunks = append(r.chunks, new(chunk))
	}
	to := r.at(r.end)
	to.Event = *e
	to.TxID = txid
	r.end++
	r.bytes += to.size()
}

// drop forgets the oldest txid. There must be one.
func (r *ring) drop() {
	r.dropped = r.at(r.first).TxID
	for r.first < r.end {
		e := r.at(r.first)
		if e.TxID != r.dropped {
			return
		}
		r.bytes -= e.size()
		r.first++
		if r.first%chunkLen == 0 {
			r.chunks[0] = nil
			r.chunks = r.chunks[1:]
		}
	}
}

// forget drops everything up to a txid, which may be one that is still to come, so
// that watchers that have read everything learn of the gap, too.
func (r *ring) forget(txid uint64) {
	r.chunks, r.bytes = nil, 0
	r.first = r.end
	r.dropped = max(r.dropped, txid)
}

// search returns the first of the events from ≤ seq < end with a txid of at
// least txid, or end.
func (r *ring) search(from, end, txid uint64) uint64 {
	from = max(from, r.first)
	if from >= end {
		return end
	}
	n := sort.Search(int(end-from), func(i int) bool { //nolint:gosec // small, both
		return r.at(from+uint64(i)).TxID >= txid
	})
	return from + uint64(n) //nolint:gosec // not negative
}

// show notes that all up to txid is visible now; seen is what was visible
// before. It returns what is new: from ≤ seq < end, and, if the caller wants to
// look at them, the chunks with these, in the place of into.
func (r *ring) show(txid, seen uint64, look bool, into []*chunk) (from, end, dropped uint64, chunks []*chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = txid
	from = max(seen, r.first)
	end = r.end
	if r.last > txid {
		end = r.search(from, end, txid+1)
	}
	chunks = into[:0]
	if look && from < end {
		base := r.first / chunkLen
		chunks = append(chunks, r.chunks[from/chunkLen-base:(end-1)/chunkLen-base+1]...)
	}
	return from, end, r.dropped, chunks
}

// chunk returns the chunk that has seq, which may be a visible one only; nil if
// seq is not kept any more.
func (r *ring) chunk(seq uint64) *chunk {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq < r.first {
		return nil
	}
	return r.chunks[seq/chunkLen-r.first/chunkLen]
}

func (r *ring) droppedTo() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}
