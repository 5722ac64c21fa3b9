package namespace

import (
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// unlinked is what was read of the inodes and is still to be linked.
type unlinked struct {
	total uint64    // inodes
	dirs  []InodeID // with entries
	in    []int64   // how many each has
	keys  []blockstore.Key
	open  []InodeID
}

// link makes the tables of what was read, and checks that every entry is in a
// directory and that every directory hangs from one without a parent.
func (im *imageCoder) link() {
	t, r := im.t, &im.read
	for i, id := range r.dirs {
		n := t.get(id)
		if n == nil || n.Type != TypeDir {
			im.wrong("inode %d has entries but is no directory", id)
			return
		}
		n.OwnExt().N = r.in[i]
		t.put(n)
	}
	if id, hangs := t.slots.Hanging(r.dirs, uint8(TypeDir)); hangs {
		im.wrong("directory %d hangs from nothing", id)
		return
	}
	if dir, is := t.quotas.Link(&t.slots.Table, t.IsDir); is {
		im.wrong("inode %d has a quota but is no directory", dir)
		return
	}
	if !slices.IsSortedFunc(r.keys, tables.CompareKeys) {
		slices.SortFunc(r.keys, tables.CompareKeys)
	}
	for i, k := range r.keys {
		if i > 0 && r.keys[i-1] == k {
			im.wrong("block %d.%d is in two places", k.Term, k.Seq)
		}
		t.blocks.ReplaceOrInsert(k)
	}
	r.dirs, r.in, r.keys = nil, nil, nil
}

// linkLeases takes dead entries from the counts of their directories, and checks that
// the open files can be reached.
func (im *imageCoder) linkLeases() {
	t := im.t
	t.Grants.EachDead(func(id InodeID) {
		dir := t.get(t.get(id).Parent)
		dir.OwnExt().N--
		dir.DropEmptyExt()
		t.put(dir)
	})
	slices.Sort(im.read.open)
	for _, id := range im.read.open {
		if !t.reachable(t.get(id), nil) {
			im.wrong("file %d is open but deleted", id)
		}
		t.open.ReplaceOrInsert(id)
	}
	im.read = unlinked{}
}
