package snapshots

import (
	"maps"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TestHeldBelow: what snapshots hold is told of the directories that are asked for alone, and for
// none nothing is looked at.
func TestHeldBelow(t *testing.T) {
	up := map[tables.InodeID]tables.InodeID{2: 1, 3: 2, 4: 2, 5: 3} // 1 has 2, which has 3, with 5, and 4
	table, looks := NewTable(), 0
	for i, dir := range []tables.InodeID{3, 4, 5, 5} {
		s := &Snapshot{ID: ID(i + 1), Dir: dir, Name: string(rune('a' + i)), age: uint64(i + 1)} //nolint:gosec // small
		table.put(s)
		table.held.add(Held{By: s.ID, Inode: 10, Block: content.Block{Key: blockstore.Key{Term: 1, Seq: uint64(s.ID)}, Stored: 10 << i}})
	}
	below := func(dirs ...tables.InodeID) map[tables.InodeID]int64 {
		looks = 0
		return table.HeldBelow(dirs, func(dir tables.InodeID) tables.InodeID {
			looks++
			return up[dir]
		})
	}
	if got, want := below(2, 3, 5, 7), (map[tables.InodeID]int64{2: 150, 3: 130, 5: 120, 7: 0}); !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if looks == 0 {
		t.Error("nothing is counted")
	}
	if got := below(); len(got) != 0 || looks != 0 {
		t.Errorf("%v, and %d looks, for no directories", got, looks)
	}
}

// TestHolder: who has noted a block with a number of a file finds the file after another snapshot
// holds the block.
func TestHolder(t *testing.T) {
	table, key := NewTable(), blockstore.Key{Term: 1, Seq: 1}
	if got := table.Holder(10, key); got != 10 {
		t.Errorf("%d, though no snapshot has it", got)
	}
	for _, by := range []ID{9, 4} {
		h := Held{By: by, Inode: 10, Block: content.Block{Key: key}}
		table.held.add(h)
		for _, noted := range []tables.InodeID{10, ID(9).Number(10), ID(4).Number(10)} {
			if got := table.Holder(noted, key); got != by.Number(10) {
				t.Errorf("of %d: %d, not %d", noted, got, by.Number(10))
			}
		}
		table.held.remove(h)
	}
}
