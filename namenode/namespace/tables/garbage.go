package tables

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// StoredBlock is a block in the store that is part of no file.
type StoredBlock struct {
	Key    blockstore.Key
	Stored uint32 // bytes of the object
}

// Code is the layout of a block.
func (b *StoredBlock) Code(c *codec.Coder) {
	c.U64(&b.Key.Term)
	c.U64(&b.Key.Seq)
	c.U32(&b.Stored)
}

// CompareKeys orders keys as blockstore.Key.Less does.
func CompareKeys(a, b blockstore.Key) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Seq, b.Seq))
}

// Garbage are blocks that no file has any more.
type Garbage struct {
	byTime Set[garbage]
	byKey  Set[garbage]
	bytes  int64
}

// garbage is a block, and what the time of reigns was with the record that took it
// from the last file.
type garbage struct {
	time int64
	StoredBlock
}

// NewGarbage returns an empty table.
func NewGarbage() Garbage {
	return Garbage{
		byTime: NewSet(func(a, b garbage) bool { return cmp.Or(cmp.Compare(a.time, b.time), CompareKeys(a.Key, b.Key)) < 0 }),
		byKey:  NewSet(func(a, b garbage) bool { return a.Key.Less(b.Key) }),
	}
}

// Clone returns a snapshot.
func (t *Garbage) Clone() Garbage { return Garbage{t.byTime.Clone(), t.byKey.Clone(), t.bytes} }

// Len is how many blocks there are.
func (t *Garbage) Len() int { return t.byTime.Len() }

// Bytes is what they take in the store.
func (t *Garbage) Bytes() int64 { return t.bytes }

// Has reports whether a block is garbage.
func (t *Garbage) Has(k blockstore.Key) bool {
	return t.byKey.Has(garbage{StoredBlock: StoredBlock{Key: k}})
}

// Oldest returns blocks that were garbage at time before, or earlier, the oldest
// first: up to limit, and no more than it takes to free enough bytes.
func (t *Garbage) Oldest(before int64, limit int, enough int64) []blockstore.Key {
	return t.OldestBut(func(blockstore.Key) bool { return false }, before, limit, enough)
}

// OldestBut is Oldest without the keys for which a function is true.
func (t *Garbage) OldestBut(but func(blockstore.Key) bool, before int64, limit int, enough int64) []blockstore.Key {
	var keys []blockstore.Key
	t.byTime.Ascend(func(g garbage) bool {
		if g.time > before || len(keys) >= limit || enough <= 0 {
			return false
		}
		if but(g.Key) {
			return true
		}
		keys = append(keys, g.Key)
		enough -= int64(g.Stored)
		return true
	})
	return keys
}

// Since is when the oldest block became garbage; false: there is none.
func (t *Garbage) Since() (time int64, there bool) {
	t.byTime.Ascend(func(g garbage) bool {
		time, there = g.time, true
		return false
	})
	return time, there
}

// Newest is when the newest block became garbage; false: there is none.
func (t *Garbage) Newest() (time int64, there bool) {
	g, there := t.byTime.Max()
	return g.time, there
}

// Add makes a block that no file has garbage as of time, unless it is.
func (t *Garbage) Add(b StoredBlock, time int64) {
	g := garbage{time, b}
	if t.byKey.Has(g) {
		return
	}
	t.byKey.ReplaceOrInsert(g)
	t.byTime.ReplaceOrInsert(g)
	t.bytes += int64(g.Stored)
}

// Remove forgets a block.
func (t *Garbage) Remove(k blockstore.Key) {
	if g, had := t.byKey.Delete(garbage{StoredBlock: StoredBlock{Key: k}}); had {
		t.byTime.Delete(g)
		t.bytes -= int64(g.Stored)
	}
}

// Code is the layout in an image. inUse says which blocks files have.
func (t *Garbage) Code(c *codec.Coder, inUse func(blockstore.Key) bool) {
	before := int64(0)
	t.byTime.Code(c, func(g *garbage) {
		c.Delta(&g.time, before)
		before = g.time
		g.StoredBlock.Code(c)
	}, func(_, g garbage) bool {
		fits := !t.Has(g.Key) && !inUse(g.Key)
		t.Add(g.StoredBlock, g.time)
		return fits
	})
}

// Check finds where the parts disagree.
func (t *Garbage) Check(problem Problem, inUse func(blockstore.Key) bool) {
	if t.byTime.Len() != t.byKey.Len() {
		problem("garbage is %d blocks by time, %d by key", t.byTime.Len(), t.byKey.Len())
	}
	bytes := int64(0)
	t.byTime.Ascend(func(g garbage) bool {
		bytes += int64(g.Stored)
		if k, ok := t.byKey.Get(g); !ok || k != g || inUse(g.Key) {
			problem("garbage block %d.%d is not indexed, or part of a file", g.Key.Term, g.Key.Seq)
		}
		return true
	})
	if bytes != t.bytes {
		problem("garbage takes %d bytes, but %d are counted", bytes, t.bytes)
	}
}
