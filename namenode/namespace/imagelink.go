package namespace

import (
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// unlinked is what was read of the inodes and is still to be linked.
type unlinked struct {
	total uint64 // inodes
	dirs  []dirCount
	keys  []blockstore.Key
	open  []InodeID
}

// dirCount is how many entries were read for a directory.
type dirCount struct {
	id InodeID
	n  int64
}

// link makes the tables of what was read, and checks that every entry is in a
// directory and that every directory hangs from one without a parent.
func (im *imageCoder) link() {
	t, r := im.t, &im.read
	for _, d := range r.dirs {
		n := t.get(d.id)
		if n == nil || n.typ != TypeDir {
			im.wrong("inode %d has entries but is no directory", d.id)
			return
		}
		// The tree is not in use yet: this is where its inodes are made.
		if n.ext == nil {
			n.ext = new(ext)
		}
		n.ext.n = d.n
	}
	if im.checkHangs(); !im.OK() {
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
	r.dirs, r.keys = nil, nil
}

// linkLeases takes dead entries from the counts of their directories, and checks that
// the open files can be reached.
func (im *imageCoder) linkLeases() {
	t := im.t
	t.leases.EachDead(func(id InodeID) {
		dir := t.get(t.get(id).parent) // not in use yet, as in link
		dir.ext.n--
		dir.dropEmptyExt()
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

// checkHangs fails if going up from a directory leads nowhere or in a circle.
func (im *imageCoder) checkHangs() {
	const onWay, good = 1, 2
	state := make(map[InodeID]uint8, len(im.read.dirs))
	var way []InodeID
	for _, d := range im.read.dirs {
		way = way[:0]
		for id := d.id; id != 0 && state[id] != good; {
			n := im.t.get(id)
			if n == nil || n.typ != TypeDir || state[id] == onWay {
				im.wrong("directory %d hangs from nothing", d.id)
				return
			}
			state[id] = onWay
			way = append(way, id)
			id = n.parent
		}
		for _, id := range way {
			state[id] = good
		}
	}
}
