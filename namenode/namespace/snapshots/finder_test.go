package snapshots

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
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
		table.Hold(1000+i, 0, lists[1000+i], func(content.Block) { freed++ })
	}
	if held, _ := table.Held(); held != files*(blocks-1) || freed != files*blocks+files {
		t.Errorf("%d are held, %d freed", held, freed)
	}
	if most := 100*many + 2*files*(blocks+10); table.find.steps > most {
		t.Errorf("%d steps for %d files in %d snapshots, not %d at most", table.find.steps, 2*files, many, most)
	}
	by, gone := table.Get(many), node.NewTable()
	table.Delete(by)
	for table.Dying() {
		table.Reclaim(1000, &gone, func(b content.Block) { t.Errorf("%v is freed", b) })
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

// TestLongFilesAreCheap: whether a snapshot has a block of a long file, whose end changed between
// snapshots, takes no look at all blocks that each has of it, though all lists have memory of their
// own, as after an image was read.
func TestLongFilesAreCheap(t *testing.T) {
	const long, many = 3000, 200
	const dir, file = 2, 3
	live := In{node.NewTable(), tables.NewXattrs(), acl.NewTable(), tables.NewLeases()}
	for id := range tables.InodeID(3) {
		n := &node.Inode{ID: id + 1, Parent: id, Type: calls.TypeDir}
		if id+1 == file {
			n.Type = calls.TypeFile
		}
		n.SetName(fmt.Sprint(id))
		if live.Inodes.PutInode(n); id > 0 {
			live.Inodes.LinkInode(n)
		}
	}
	table, seq, list := NewTable(), uint64(0), []content.Block(nil)
	table.Allow(dir, true)
	put := func() {
		n := live.Inodes.Inode(file)
		n.OwnExt().Blocks = slices.Clone(list)
		live.Inodes.PutInode(n)
	}
	block := func() content.Block {
		seq++
		return content.Block{Key: blockstore.Key{Term: 1, Seq: seq}, Stored: 1, Used: 1}
	}
	var freed []blockstore.Key
	free := func(b content.Block) { freed = append(freed, b.Key) }
	lose := func(n int) { // the last n
		lost := list[len(list)-n:]
		list = list[:len(list)-n]
		table.Hold(file, len(list), slices.Clone(lost), free)
	}
	for range long {
		list = append(list, block())
	}
	in := make(map[blockstore.Key][]ID) // which snapshots have a block
	for i := range many {
		put()
		s := table.Make(dir, fmt.Sprint(i), 0, 100, live.Clone())
		for _, b := range list {
			in[b.Key] = append(in[b.Key], s.ID)
		}
		if i%50 == 10 {
			lose(20)
		}
		lose(1) // it is sealed with more
		list = append(list, block(), block())
	}
	has := func(b blockstore.Key) ID {
		for _, id := range slices.Backward(in[b]) {
			if table.Get(id) != nil {
				return id
			}
		}
		return 0
	}
	right := func(when string) {
		t.Helper()
		table.EachHeld(0, func(h Held) bool {
			if table.Get(h.By) != nil && has(h.Key) != h.By {
				t.Errorf("%s: %v is held by %d, not %d", when, h.Key, h.By, has(h.Key))
			}
			return true
		})
		for _, key := range freed {
			if by := has(key); by != 0 {
				t.Errorf("%s: %v is freed, though %d has it", when, key, by)
			}
		}
	}
	steps := func(when string, most int, do func()) {
		t.Helper()
		table.finder().steps = 0
		if do(); table.find.steps > most {
			t.Errorf("%s takes %d steps, not %d at most", when, table.find.steps, most)
		}
	}
	if right("at first"); len(freed) != 0 {
		t.Errorf("%v is freed", freed)
	}
	put()
	ours, _ := table.Held()
	// The first look at a page of each snapshot is counted, too.
	steps("to give up blocks of which none has two", 8*many, func() { lose(20) })
	if right("after some went"); len(freed) != 2 {
		t.Errorf("%v is freed", freed)
	}
	put()
	for _, gone := range []ID{many, many - 1, 11, 12, many / 2} {
		table.Delete(table.Get(gone))
		steps(fmt.Sprint("to reclaim what only ", gone, " had"), 30*many+2*ours, func() {
			for table.Dying() {
				table.Reclaim(1000, &live.Inodes, free)
			}
		})
		right(fmt.Sprint("after ", gone))
	}
	lose(len(list))
	live.Inodes.UnlinkInode(live.Inodes.Inode(file))
	live.Inodes.Drop(file)
	for s, is := table.byAge.Max(); is; s, is = table.byAge.Max() {
		table.Delete(s)
	}
	for table.Dying() {
		table.Reclaim(1000, &live.Inodes, free)
	}
	if blocks, _ := table.Held(); blocks != 0 || len(freed) != int(seq) {
		t.Errorf("%d are held, %d of %d freed", blocks, len(freed), seq)
	}
}

// TestPresenceOfDirectories compares what the finder says with the way up in each snapshot, of directories that were
// moved between snapshots, so that some are above and below each other by turns.
func TestPresenceOfDirectories(t *testing.T) {
	const dirs, many = 20, 40
	rnd := rand.New(rand.NewPCG(1, 2))
	id := func(i int) tables.InodeID { return tables.InodeID(1 + 1000*i) } //nolint:gosec // small; no two in one page
	live := In{node.NewTable(), tables.NewXattrs(), acl.NewTable(), tables.NewLeases()}
	parents := make([]int, dirs)
	put := func(i int) {
		n := &node.Inode{ID: id(i), Type: calls.TypeDir}
		if n.SetName(fmt.Sprint(i)); i > 0 {
			n.Parent = id(parents[i])
		}
		if live.Inodes.PutInode(n); i > 0 {
			live.Inodes.LinkInode(n)
		}
	}
	for i := range dirs {
		put(i)
	}
	table := NewTable()
	for i := range many {
		for range 3 {
			moved, to := 1+rnd.IntN(dirs-1), rnd.IntN(dirs)
			up := to
			for up != 0 && up != moved {
				up = parents[up]
			}
			if up != moved {
				live.Inodes.UnlinkInode(live.Inodes.Inode(id(moved)))
				parents[moved] = to
				put(moved)
			}
		}
		table.Make(id(1+rnd.IntN(dirs-1)), fmt.Sprint(i), 0, 1<<20, live.Clone())
	}
	f, has := newFinder(&table), 0
	for i := range 5000 {
		if i%10 == 0 {
			f = newFinder(&table) // which knows nothing
		}
		dir, first := rnd.IntN(dirs), rnd.IntN(many)
		end := first + 1 + rnd.IntN(many-first)
		in := f.in(id(dir), first, end)
		for j := first; j < end; j++ {
			want := absent
			if f.snaps[j].Has(id(dir)) {
				want = present
				has++
			}
			if in[j] != want {
				t.Fatalf("directory %d in snapshot %d of %d to %d: %d, not %d", dir, j, first, end, in[j], want)
			}
		}
	}
	if has < 1000 {
		t.Errorf("only %d are there", has)
	}
}

// TestDeepTreesAreFreed: to give up the blocks of a file takes no more stack the deeper it is.
func TestDeepTreesAreFreed(t *testing.T) {
	const file = 100_000
	defer debug.SetMaxStack(debug.SetMaxStack(4 << 20))
	live := In{node.NewTable(), tables.NewXattrs(), acl.NewTable(), tables.NewLeases()}
	list := []content.Block{{Key: blockstore.Key{Term: 1, Seq: 1}, Stored: 1, Used: 1}}
	for id := range tables.InodeID(file) {
		n := &node.Inode{ID: id + 1, Parent: id, Type: calls.TypeDir}
		if n.SetName("n"); id+1 == file {
			n.Type, n.OwnExt().Blocks = calls.TypeFile, list
		}
		if live.Inodes.PutInode(n); id > 0 {
			live.Inodes.LinkInode(n)
		}
	}
	table := NewTable()
	for i := range 3 {
		table.Make(2, fmt.Sprint(i), 0, file+1, live.Clone())
		n := live.Inodes.Inode(tables.InodeID(file / 2))
		n.MTime++
		live.Inodes.PutInode(n)
	}
	if !table.Hold(file, 0, list, func(content.Block) {}) || table.HeldBy(3) != 1 {
		t.Errorf("the newest of the snapshots that have the file does not hold its block")
	}
	if blocks, _ := table.Held(); blocks != 1 {
		t.Errorf("%d blocks are held", blocks)
	}
}
