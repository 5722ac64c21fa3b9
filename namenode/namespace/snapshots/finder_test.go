package snapshots

import (
	"fmt"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TestFreeingIsCheap: what it takes to give up the blocks of files is not a look at each snapshot
// for each block or file: those that share what they have of it are one.
func TestFreeingIsCheap(t *testing.T) {
	const files, many, blocks = 1000, 1000, 50
	live := In{node.NewTable(), tables.NewXattrs(), acl.NewTable(), tables.NewLeases()}
	put := func(id, parent tables.InodeID, typ calls.Type, list []content.Block) {
		n := &node.Inode{ID: id, Parent: parent, Type: typ}
		n.SetName(fmt.Sprint(id))
		if list != nil {
			n.OwnExt().Blocks = list
		}
		if live.Inodes.PutInode(n); parent != 0 {
			live.Inodes.LinkInode(n)
		}
	}
	put(1, 0, calls.TypeDir, nil)
	put(2, 1, calls.TypeDir, nil)
	put(3, 1, calls.TypeDir, nil)
	lists := make(map[tables.InodeID][]content.Block)
	for i := range tables.InodeID(2 * files) {
		id := 1000 + i
		for b := range uint64(blocks) {
			lists[id] = append(lists[id], content.Block{Key: blockstore.Key{Term: 1, Seq: uint64(id)*blocks + b}, Stored: 1, Used: 1})
		}
		put(id, 2+i%2, calls.TypeFile, lists[id][:blocks-1])
	}
	table := NewTable()
	table.Allow(2, true)
	for i := range many {
		table.Make(2, fmt.Sprint(i), 0, 1<<20, live.Clone())
		n := live.Inodes.Inode(2)
		n.MTime++
		live.Inodes.PutInode(n)
	}
	freed := 0
	for i := range tables.InodeID(2 * files) {
		table.Hold(1000+i, lists[1000+i], func(content.Block) { freed++ })
	}
	if held, _ := table.Held(); held != files*(blocks-1) || freed != files*blocks+files {
		t.Errorf("%d are held, %d freed", held, freed)
	}
	if most := 100*many + 2*files*(blocks+10); table.find.steps > most {
		t.Errorf("%d steps for %d files in %d snapshots, not %d at most", table.find.steps, 2*files, many, most)
	}
	by := table.Get(many)
	table.Delete(by)
	for table.Dying() {
		table.Reclaim(1000, func(b content.Block) { t.Errorf("%v is freed", b) })
	}
	if most := 200*many + 2*files*(blocks+10); table.find.steps > most {
		t.Errorf("%d steps for what the newest held, not %d at most", table.find.steps, most)
	}
	if n := 0; true {
		table.EachHeld(0, func(h Held) bool { n++; return h.By == many-1 })
		if n != files*(blocks-1) {
			t.Errorf("%d are held by the next one", n)
		}
	}
}
