package crashfs

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Mode is what a crash leaves of what was not synced.
type Mode uint8

const (
	// Strict leaves nothing.
	Strict Mode = iota
	// Torn leaves, by the seed, of each file's unsynced writes none, all, a prefix cut
	// at any byte, or all but some whole 512-byte sectors, which hold what was
	// on the disk there before (zeros beyond its end); of each directory's
	// unsynced names any.
	Torn
	// Kill leaves everything, for the machine went on and only the process died. What
	// is not synced stays so: a Crash after it can lose it.
	Kill
)

const sector = 512

// Crash ends f (all that is done with it from now on fails with ErrCrashed)
// and returns the file system as it is found afterwards, with no lock, failure
// or limit set and points counted from 0. Without a mode it is Strict. The same
// operations, seed and mode leave the same.
func (f *FS) Crash(mode ...Mode) *FS {
	m := Strict
	if len(mode) > 0 {
		m = mode[0]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
	return f.copyAs(m)
}

// copyAs returns f as it is after a crash of that mode.
func (f *FS) copyAs(m Mode) *FS {
	c := &crash{
		mode: m,
		//nolint:gosec // chance by a seed is what a test needs
		rng:   rand.New(rand.NewPCG(f.seed, f.age)),
		nodes: map[*node]*node{},
		kept:  map[uint64]bool{},
	}
	after := &FS{seed: f.seed, locks: map[string]bool{}, capacity: math.MaxInt64, opID: f.opID, age: f.age}
	after.root = c.node(f.root)
	for _, n := range c.nodes {
		if n.links > 0 {
			after.used += int64(len(n.live))
		}
	}
	return after
}

// Clone returns a copy of f as it is, dead or alive, with the same unsynced
// operations and the same seed, but no lock, failure or limit set and points
// counted from 0.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.copyAs(Kill)
}

// crash copies a tree as it is after the crash.
type crash struct {
	mode  Mode
	rng   *rand.Rand
	nodes map[*node]*node
	kept  map[uint64]bool // by id of a name operation
}

func (c *crash) node(n *node) *node {
	if done := c.nodes[n]; done != nil {
		return done
	}
	m := &node{dir: n.dir}
	c.nodes[n] = m
	if !n.dir {
		c.content(n, m)
		return m
	}
	m.entries, m.durable = map[string]*node{}, map[string]*node{}
	if c.mode == Kill {
		c.names(n.entries, m.entries)
		c.names(n.durable, m.durable)
		for _, op := range n.nameOps {
			if op.node != nil {
				op.node = c.node(op.node)
			}
			m.nameOps = append(m.nameOps, op)
		}
	} else {
		d := node{durable: map[string]*node{}}
		for name, e := range n.durable {
			d.durable[name] = e
		}
		if c.mode == Torn {
			for _, op := range n.nameOps {
				keep, known := c.kept[op.id]
				if !known {
					keep = c.rng.IntN(2) == 0
					c.kept[op.id] = keep
				}
				if keep {
					d.apply([]nameOp{op})
				}
			}
		}
		c.names(d.durable, m.durable)
		for name, e := range m.durable {
			m.entries[name] = e
		}
	}
	for _, e := range m.entries {
		if !e.dir {
			e.links++
		}
	}
	return m
}

// names copies a directory in the order of its names, so that the same seed
// gives the same.
func (c *crash) names(from, to map[string]*node) {
	for _, name := range sortedKeys(from) {
		to[name] = c.node(from[name])
	}
}

func (c *crash) content(n, m *node) {
	m.disk = append([]byte(nil), n.disk...)
	switch c.mode {
	case Kill:
		m.live = append([]byte(nil), n.live...)
		for _, op := range n.ops {
			if op.data != nil {
				op.data = append([]byte{}, op.data...)
			}
			m.ops = append(m.ops, op)
		}
		return
	case Torn:
		if len(n.ops) > 0 {
			m.disk = c.torn(m.disk, n.ops)
		}
	case Strict:
	}
	m.live = append([]byte(nil), m.disk...)
}

// torn returns what the disk holds of unsynced operations. It owns disk.
func (c *crash) torn(disk []byte, ops []dataOp) []byte {
	choice := c.rng.IntN(8)
	switch {
	case choice == 0: // nothing
		return disk
	case choice == 1: // everything
		for _, op := range ops {
			disk = op.applyTo(disk)
		}
		return disk
	case choice <= 4: // a prefix, cut in the middle of an operation
		last := c.rng.IntN(len(ops))
		for _, op := range ops[:last] {
			disk = op.applyTo(disk)
		}
		op := ops[last]
		if op.data != nil {
			if op.data = op.data[:c.rng.IntN(len(op.data)+1)]; len(op.data) == 0 {
				return disk
			}
		}
		return op.applyTo(disk)
	}
	// Everything, but sectors of what was written have not reached the disk.
	old := append([]byte(nil), disk...)
	touched := map[int64]bool{}
	for _, op := range ops {
		disk = op.applyTo(disk)
		for s := op.off / sector; len(op.data) > 0 && s <= (op.off+int64(len(op.data))-1)/sector; s++ {
			touched[s] = true
		}
	}
	odds := 1 + c.rng.IntN(3)
	for s := int64(0); s*sector < int64(len(disk)); s++ {
		if !touched[s] || c.rng.IntN(4) >= odds {
			continue
		}
		part := disk[s*sector : min((s+1)*sector, int64(len(disk)))]
		clear(part)
		if s*sector < int64(len(old)) {
			copy(part, old[s*sector:])
		}
	}
	return disk
}

func sortedKeys(m map[string]*node) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
