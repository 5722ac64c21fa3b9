package namespace

import (
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// space is what there is in the block store.
type space struct {
	blocks  tables.Set[blockstore.Key] // of all files, detached ones too, and of snapshots
	garbage tables.Garbage
}

// Garbage are the blocks that no file has any more, by what Reigned was then: to be read only.
func (t *space) Garbage() *tables.Garbage { return &t.garbage }

// IsGarbage reports whether a block is garbage: it may be gone from the store
// at any time, and no file can have it again.
func (t *space) IsGarbage(k blockstore.Key) bool { return t.garbage.Has(k) }

// HasBlock reports whether a file has the block, or a snapshot; also a file of a deleted subtree
// that is not reclaimed yet.
func (t *space) HasBlock(k blockstore.Key) bool { return t.blocks.Has(k) }

// BlocksFrom calls fn for the blocks that HasBlock knows, from a key on and in order, until it
// returns false.
func (t *space) BlocksFrom(k blockstore.Key, fn func(blockstore.Key) bool) { t.blocks.From(k, fn) }

// ownBlock counts a block as part of a file.
func (t applier) ownBlock(b Block) {
	t.blocks.ReplaceOrInsert(b.Key)
	t.counts.StoredBytes += int64(b.Stored)
}

// disownBlocks makes garbage of the blocks that a file had from place from on, except those that a
// snapshot has.
func (t applier) disownBlocks(file InodeID, from int, blocks []Block) {
	for _, b := range blocks {
		t.counts.StoredBytes -= int64(b.Stored)
	}
	if t.snaps.Hold(file, from, blocks, t.forget) {
		t.touch(snapshotChange(0))
	}
}

// forget makes a block garbage that no file has, nor a snapshot.
func (t applier) forget(b Block) {
	t.blocks.Delete(b.Key)
	t.garbage.Add(tables.StoredBlock{Key: b.Key, Stored: b.Stored}, t.now.reigned)
}

// free takes an inode out of the table and gives its blocks up. Its entry, if
// it has one, is the caller's affair, and it is no directory with entries. A
// file that was open is returned as closed for reason.
func (t applier) free(n *inode, reason string) []ClosedFile {
	var closed []ClosedFile
	if n.Open() != nil {
		t.open.Delete(n.ID)
		t.AgeTable.Forget(AgeKey{Inode: n.ID})
		closed = []ClosedFile{closedFile(n, reason)}
	}
	t.unattach(n)
	t.countXattrs(n, -t.xattrs.Drop(n.ID))
	if n.Mode&node.ACLBit != 0 {
		t.acls.Drop(n.ID, t.countACL)
	}
	t.disownBlocks(n.ID, 0, n.Blocks())
	t.snaps.Allow(n.ID, false)
	t.drop(n)
	t.counts.Add(n.Type, -1)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	return closed
}

// hangOff hangs an inode off the tree: its own entry is taken away, it has no parent, and
// all below it is unreachable from then on. The caller keeps it as detached, or in the trash.
func (t applier) hangOff(n *inode) {
	t.quotas.Moved(&t.slots.Table, n.ID, n.Parent, 0)
	t.slots.UnlinkInode(n)
	t.unattach(n)
	n = n.Edit()
	n.Parent = 0
	n.SetName("")
	t.put(n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
}
