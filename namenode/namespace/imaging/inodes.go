// Package imaging writes the inodes of a tree into an image, and makes tables of the inodes that it reads.
package imaging

import (
	"bytes"
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Inodes writes the inodes of a tree to an image, or reads them, by the same layout.
type Inodes struct {
	node.Coder
	Total uint64 // how many there are

	// The tables that are written, or filled.
	Slots          *node.Table
	Open, Detached *tables.Set[tables.InodeID]
	Trash          *tables.Trash
	Quotas         *quota.Table[node.Ext]
	Blocks         *tables.Set[blockstore.Key]
	Counts         *calls.Counts

	Stored    func(dir *node.Inode) int64 // how many entries a directory has in memory
	CountTail func(*node.Inode)           // counts the tail of one that was read

	// What was read and is still to be linked.
	place node.Loader
	dirs  []tables.InodeID // with entries
	in    []int64          // how many each has
	keys  []blockstore.Key
	open  []tables.InodeID
}

// Code codes the inodes without a parent, then directory by directory the
// entries of each.
func (im *Inodes) Code() {
	if im.Writes() {
		im.writeInodes()
		return
	}
	im.place = im.Slots.Loader(im.Total, uint64(im.Limits.Next))
	im.readInodes()
	if id, twice := im.place.Finish(); twice {
		im.Wrong("inode %d comes twice", id)
	}
	if im.OK() {
		im.link()
	}
}

func (im *Inodes) writeInodes() {
	tops := []tables.InodeID{calls.RootID}
	im.Detached.Ascend(func(id tables.InodeID) bool { tops = append(tops, id); return true })
	im.Trash.Due(func(e *tables.Trashed) bool { tops = append(tops, e.Inode); return true })
	slices.Sort(tops)
	im.Put(uint64(len(tops)))
	for _, id := range tops {
		if im.Inode(im.Slots.Inode(id)); !im.Next() {
			return
		}
	}
	dir, n := tables.InodeID(0), new(node.Inode)
	im.Slots.Ascend(0, "", func(id tables.InodeID) bool {
		if im.Slots.Read(id, n); n.Parent != dir {
			im.Put(uint64(n.Parent - dir))
			im.Put(uint64(im.Stored(im.Slots.Inode(n.Parent)))) //nolint:gosec // a length
			dir = n.Parent
		}
		im.Inode(n)
		return im.Next()
	})
}

func (im *Inodes) readInodes() {
	total, tops := im.Total, im.Number(64)
	if tops == 0 || tops > total {
		im.Wrong("%d inodes of %d are without a parent", tops, total)
	}
	last, trashed := tables.InodeID(0), 0
	for i := uint64(0); i < tops && im.Next(); i++ {
		n := new(node.Inode)
		im.Inode(n)
		kept := im.Trash.Get(n.ID) != nil
		if n.ID <= last || n.Type != calls.TypeDir && !kept || n.Open() != nil || n.NameLen != 0 || (i == 0 && n.ID != calls.RootID) {
			im.Wrong("inode %d cannot be without a parent here", n.ID)
		}
		if kept {
			trashed++
		} else if i > 0 {
			im.Detached.ReplaceOrInsert(n.ID)
		}
		im.add(n)
		last = n.ID
	}
	if trashed != im.Trash.Len() {
		im.Wrong("the trash has %d entries, but %d of the inodes", im.Trash.Len(), trashed)
	}
	dir := tables.InodeID(0)
	for left := total - min(tops, total); left > 0 && im.Next(); {
		step, n := im.Number(64), im.Number(63)
		if step == 0 || uint64(dir)+step < step || n == 0 || n > left {
			im.Wrong("%d entries after directory %d", n, dir)
			return
		}
		dir += tables.InodeID(step)
		left -= n
		im.dirs, im.in = append(im.dirs, dir), append(im.in, int64(n)) //nolint:gosec // 63 bits
		im.entries(dir, n)
	}
}

// entries reads the entries of one directory.
func (im *Inodes) entries(dir tables.InodeID, count uint64) {
	n, last := new(node.Inode), make([]byte, 0, 256)
	for ; count > 0 && im.Next(); count-- {
		*n = node.Inode{Parent: dir}
		im.Inode(n)
		if !im.OK() {
			return
		}
		if err := fspath.CheckNameBytes(im.Name()); err != nil {
			im.Wrong("an entry of directory %d: %v", dir, err)
		}
		if bytes.Compare(last, im.Name()) >= 0 {
			im.Wrong("the entries of directory %d are not in order", dir)
		}
		last = im.Swap(last)
		im.add(n)
	}
}

// add adds an inode to the table, and counts what is in it.
func (im *Inodes) add(n *node.Inode) {
	if !im.OK() {
		return
	}
	im.place.AddInode(n)
	im.Counts.Add(n.Type, 1)
	if n.Ext == nil {
		return
	}
	for _, b := range n.Blocks() {
		im.keys = append(im.keys, b.Key)
		im.Counts.StoredBytes += int64(b.Stored)
	}
	if n.Open() != nil {
		im.open = append(im.open, n.ID)
	}
	im.CountTail(n)
}

// link makes the tables of what was read, and checks that every entry is in a
// directory and that every directory hangs from one without a parent.
func (im *Inodes) link() {
	for i, id := range im.dirs {
		n := im.Slots.Inode(id)
		if n == nil || n.Type != calls.TypeDir {
			im.Wrong("inode %d has entries but is no directory", id)
			return
		}
		n.OwnExt().N = im.in[i]
		im.Slots.PutInode(n)
	}
	if id, hangs := im.Slots.Hanging(im.dirs, uint8(calls.TypeDir), false); hangs {
		im.Wrong("directory %d hangs from nothing", id)
		return
	}
	if dir, is := im.Quotas.Link(&im.Slots.Table, im.Slots.IsDir); is {
		im.Wrong("inode %d has a quota but is no directory", dir)
		return
	}
	if !slices.IsSortedFunc(im.keys, tables.CompareKeys) {
		slices.SortFunc(im.keys, tables.CompareKeys)
	}
	for i, k := range im.keys {
		if i > 0 && im.keys[i-1] == k {
			im.Wrong("block %d.%d is in two places", k.Term, k.Seq)
		}
		im.Blocks.ReplaceOrInsert(k)
	}
	im.dirs, im.in, im.keys = nil, nil, nil
}

// LinkLeases takes dead entries from the counts of their directories, and checks that
// the open files can be reached.
func (im *Inodes) LinkLeases(grants *tables.Leases, reachable func(*node.Inode) bool) {
	grants.EachDead(func(id tables.InodeID) {
		dir := im.Slots.Inode(im.Slots.Inode(id).Parent)
		dir.OwnExt().N--
		dir.DropEmptyExt()
		im.Slots.PutInode(dir)
	})
	slices.Sort(im.open)
	for _, id := range im.open {
		if !reachable(im.Slots.Inode(id)) {
			im.Wrong("file %d is open but deleted", id)
		}
		im.Open.ReplaceOrInsert(id)
	}
	im.open = nil
}
