package snapshots

import (
	"math"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Check finds where the parts disagree with each other or with the tree's inodes. dir reports
// whether a number is a directory's, reached whether it is one of the tree; file which of the tree has
// a block, 0 for none, and kept whether the tree knows the block at all. It looks at all that each
// snapshot has otherwise than the tree.
func (t *Table) Check(problem tables.Problem, live *node.Table, dir, reached func(tables.InodeID) bool, file func(blockstore.Key) tables.InodeID, kept func(blockstore.Key) bool) {
	if n := t.byID.Len(); n != t.byName.Len() || n != t.byAge.Len() {
		problem("there are %d snapshots by number, %d by name, %d by age", n, t.byName.Len(), t.byAge.Len())
	}
	t.allowed.Ascend(func(id tables.InodeID) bool {
		if !dir(id) {
			problem("inode %d is allowed to have snapshots, but is no directory", id)
		}
		return true
	})
	held, sums := heldBy(t), make(map[ID]sum)
	stray := func(h Held) {
		problem("block %d.%d of inode %d is held by snapshot %d, and should not", h.Key.Term, h.Key.Seq, h.Inode, uint64(h.By))
	}
	strays(t, stray)
	t.held.byHolder.Ascend(func(h Held) bool {
		if file(h.Key) != 0 || !kept(h.Key) || h.By == 0 || h.By > MaxID {
			stray(h)
		}
		for _, by := range [2]ID{0, h.By} {
			sums[by] = sum{by, sums[by].blocks + 1, sums[by].bytes + int64(h.Stored)}
		}
		return true
	})
	if len(held) != t.held.byHolder.Len() || len(held) != t.held.byFile.Len() || len(sums) != t.held.sums.Len() {
		problem("only snapshots have %d blocks, by %d of them, but %d and %d are counted", len(held), len(sums), t.held.byHolder.Len(), t.held.sums.Len())
	}
	for by, s := range sums {
		if counted := t.held.sum(s.by); counted != s {
			problem("%d blocks that snapshot %d holds take %d bytes, but %d and %d are counted", s.blocks, uint64(by), s.bytes, counted.blocks, counted.bytes)
		}
	}
	lists, seen := make(map[tables.InodeID][]content.Block), make(map[blockstore.Key]bool)
	t.Newest(func(s *Snapshot) bool {
		if t.Named(s.Dir, s.Name) != s || !t.IsAllowed(s.Dir) || !reached(s.Dir) || s.ID == 0 || s.ID > MaxID || fspath.CheckName(s.Name) != nil || !s.Has(s.Dir) {
			problem("snapshot %d, %q of directory %d, cannot be", uint64(s.ID), s.Name, s.Dir)
		}
		node.Differ(&s.In.Inodes, live, 0, math.MaxInt, func(id tables.InodeID, was, is *node.Inode) bool {
			if was == nil || was.Type != calls.TypeFile || !s.Has(id) {
				return id < s.Next
			}
			newer, known := lists[id]
			if !known && is != nil {
				newer = is.Blocks()
			}
			list := was.Blocks()
			for _, b := range list[begin(list, newer):] { // see finder
				if held[b.Key] != id || seen[b.Key] {
					problem("block %d.%d of inode %d in snapshot %d is in no file of that number, or at another place than in a newer one", b.Key.Term, b.Key.Seq, id, uint64(s.ID))
				}
				seen[b.Key] = true
			}
			lists[id] = list
			return true
		})
		return true
	})
}
