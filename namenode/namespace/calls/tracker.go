package calls

import "maps"

// tracked is one change and the record that made it.
type tracked struct {
	Change
	txid uint64
}

// Tracker knows the changes that are not durable yet. The zero value is off, and costs
// nothing. Look may be called by many at a time, all else by one alone.
type Tracker struct {
	pending map[Change]uint64 // the newest record of each; nil: off
	queue   []tracked         // in the order of records, from head on
	head    int
	still   bool // it tracks nothing further
	newest  uint64
	// minAsOf is the txid that every look at a clone counts as having seen.
	minAsOf uint64
}

// On turns the tracking on.
func (tr *Tracker) On() {
	if tr.pending == nil {
		tr.pending = make(map[Change]uint64)
	}
}

// Clone is for a snapshot of what changed: each look at it counts as having seen all
// that is not durable now.
func (tr *Tracker) Clone() Tracker { return Tracker{minAsOf: tr.newest} }

// Still is for a copy of the tree that is used only until the next change of the tree
// itself: looks see the same as in the tree, and changes to the copy are not tracked.
func (tr *Tracker) Still() Tracker {
	return Tracker{pending: tr.pending, still: true, minAsOf: tr.minAsOf}
}

// Pending returns the changes that are not durable yet, with the newest record of each.
func (tr *Tracker) Pending() map[Change]uint64 { return maps.Clone(tr.pending) }

// SetDurable forgets changes up to the record txid, which is durable. It takes
// amortised constant time for each change.
func (tr *Tracker) SetDurable(txid uint64) {
	for tr.head < len(tr.queue) && tr.queue[tr.head].txid <= txid {
		c := &tr.queue[tr.head]
		if tr.pending[c.Change] == c.txid {
			delete(tr.pending, c.Change)
		}
		*c = tracked{}
		tr.head++
	}
	switch {
	case tr.head == len(tr.queue):
		tr.queue, tr.head = tr.queue[:0], 0
		tr.newest = 0
	case tr.head > len(tr.queue)/2:
		n := copy(tr.queue, tr.queue[tr.head:])
		clear(tr.queue[n:])
		tr.queue, tr.head = tr.queue[:n], 0
	}
}

// Touch notes a change made by the record txid.
func (tr *Tracker) Touch(txid uint64, c Change) {
	if tr.pending == nil || tr.still || tr.pending[c] == txid {
		return
	}
	tr.pending[c] = txid
	tr.queue = append(tr.queue, tracked{Change: c, txid: txid})
	tr.newest = txid
}

// Look notes that a call has looked at something.
func (tr *Tracker) Look(c *Call, what Change) {
	if c == nil {
		return
	}
	if c.Collect {
		c.Looks = append(c.Looks, what)
	}
	c.asOf = max(c.asOf, tr.minAsOf)
	if len(tr.pending) > 0 {
		c.asOf = max(c.asOf, tr.pending[what])
	}
}
