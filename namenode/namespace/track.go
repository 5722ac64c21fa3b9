package namespace

import "github.com/leasefs/leasefs/namenode/namespace/calls"

// Track turns on or off the tracking of changes that are not durable. The
// active namenode has it on; it costs nothing while off.
func (t *Tree) Track(on bool) {
	switch {
	case t.frozen:
	case !on:
		t.tracker = calls.Tracker{}
	default:
		t.tracker.On()
	}
}

// SetDurable forgets changes up to the record txid, which is durable. It takes
// amortised constant time for each change.
func (t *Tree) SetDurable(txid uint64) { t.tracker.SetDurable(txid) }

// look notes that a call has looked at something.
func (t *Tree) look(c *Call, what Change) { t.tracker.Look(c, what) }

// safeModeChange: safe mode begins or ends. No inode has the number 0.
var safeModeChange = Change{Kind: ChangeAttr}
