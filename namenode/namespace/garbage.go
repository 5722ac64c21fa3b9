package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// garbageItem is a block that no file has any more, what it takes in the store,
// and what Tree.Reigned was with the record that took it from the last file.
type garbageItem struct {
	time   int64
	key    blockstore.Key
	stored uint32
}

func lessGarbage(a, b garbageItem) bool {
	return cmp.Or(cmp.Compare(a.time, b.time), compareKeys(a.key, b.key)) < 0
}

func lessGarbageKey(a, b garbageItem) bool { return a.key.Less(b.key) }

// Garbage returns blocks that were garbage when Reigned was before, or earlier,
// the oldest first: up to limit, and no more than it takes to free enough bytes.
func (t *Tree) Garbage(before int64, limit int, enough int64) []blockstore.Key {
	var keys []blockstore.Key
	t.garbage.Ascend(func(g garbageItem) bool {
		if g.time > before || len(keys) >= limit || enough <= 0 {
			return false
		}
		keys = append(keys, g.key)
		enough -= int64(g.stored)
		return true
	})
	return keys
}

// IsGarbage reports whether a block is garbage: it may be gone from the store
// at any time, and no file can have it again.
func (t *Tree) IsGarbage(k blockstore.Key) bool { return t.garbageKeys.Has(garbageItem{key: k}) }

// HasBlock reports whether a file has the block; also one of a deleted subtree
// that is not reclaimed yet.
func (t *Tree) HasBlock(k blockstore.Key) bool { return t.blocks.Has(k) }

// addGarbage makes a block that no file has garbage as of time.
func (t *Tree) addGarbage(b StoredBlock, time int64) {
	g := garbageItem{time: time, key: b.Key, stored: b.Stored}
	if _, had := t.garbageKeys.Get(g); had {
		return
	}
	t.garbageKeys.ReplaceOrInsert(g)
	t.garbage.ReplaceOrInsert(g)
	t.counts.GarbageBytes += int64(g.stored)
}

// removeGarbage forgets a garbage block.
func (t *Tree) removeGarbage(k blockstore.Key) {
	if g, had := t.garbageKeys.Delete(garbageItem{key: k}); had {
		t.garbage.Delete(g)
		t.counts.GarbageBytes -= int64(g.stored)
	}
}

// ownBlock counts a block as part of a file.
func (t *Tree) ownBlock(b Block) {
	t.blocks.ReplaceOrInsert(b.Key)
	t.counts.StoredBytes += int64(b.Stored)
}

// disownBlocks makes blocks that were part of a file garbage as of time.
func (t *Tree) disownBlocks(blocks []Block, time int64) {
	for _, b := range blocks {
		t.blocks.Delete(b.Key)
		t.counts.StoredBytes -= int64(b.Stored)
		t.addGarbage(StoredBlock{b.Key, b.Stored}, time)
	}
}

// free takes an inode out of the table and gives its blocks up. Its entry, if
// it has one, is the caller's affair, and it is no directory with entries. A
// file that was open is returned as closed for reason.
func (t *Tree) free(n *inode, e stamp, reason string) []ClosedFile {
	var closed []ClosedFile
	if n.open() != nil {
		t.open.Delete(n.id)
		t.forgetAge(AgeKey{Inode: n.id})
		closed = []ClosedFile{closedFile(n, reason)}
	}
	t.unattach(n.id, e)
	t.dropXattrs(n.id)
	t.disownBlocks(n.blocks(), e.reigned)
	t.drop(n)
	t.countType(n.typ, -1)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
	return closed
}

// detach hangs a directory that has entries off the tree: its own entry is
// taken away, it has no parent, and all below it is unreachable from then on.
func (t *Tree) detach(n *inode, e stamp) {
	t.dentries.Delete(n)
	n = n.edit()
	n.parent = 0
	n.setName("")
	t.put(n)
	t.detached.ReplaceOrInsert(n.id)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
}
