package namespace

import (
	"bytes"
	"slices"

	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// inodes codes the inodes without a parent, then directory by directory the
// entries of each.
func (im *imageCoder) inodes() {
	t := im.t
	im.nodes = node.Coder{
		Coder:  im.Coder,
		Limits: node.Limits{Next: t.nextInode, Users: t.UserNames.Len(), Groups: t.GroupNames.Len(), TxID: t.txid},
		Share:  t.holders.Share,
	}
	if im.Writes() {
		im.writeInodes()
		return
	}
	im.place = t.slots.Loader(im.read.total, uint64(t.nextInode))
	im.readInodes()
	if id, twice := im.place.Finish(); twice {
		im.wrong("inode %d comes twice", id)
	}
	if im.OK() {
		im.link()
	}
}

func (im *imageCoder) writeInodes() {
	t := im.t
	tops := []InodeID{RootID}
	t.detached.Ascend(func(id InodeID) bool { tops = append(tops, id); return true })
	t.trash.Due(func(e *tables.Trashed) bool { tops = append(tops, e.Inode); return true })
	slices.Sort(tops)
	im.Put(uint64(len(tops)))
	for _, id := range tops {
		if im.nodes.Inode(t.get(id)); !im.Next() {
			return
		}
	}
	dir, n := InodeID(0), new(inode)
	t.slots.Ascend(0, "", func(id InodeID) bool {
		if t.slots.Read(id, n); n.Parent != dir {
			im.Put(uint64(n.Parent - dir))
			im.Put(uint64(t.stored(t.get(n.Parent)))) //nolint:gosec // a length
			dir = n.Parent
		}
		im.nodes.Inode(n)
		return im.Next()
	})
}

func (im *imageCoder) readInodes() {
	total, tops := im.read.total, im.Number(64)
	if tops == 0 || tops > total {
		im.wrong("%d inodes of %d are without a parent", tops, total)
	}
	last, trashed := InodeID(0), 0
	for i := uint64(0); i < tops && im.Next(); i++ {
		n := new(inode)
		im.nodes.Inode(n)
		kept := im.t.trash.Get(n.ID) != nil
		if n.ID <= last || n.Type != TypeDir && !kept || n.Open() != nil || n.NameLen != 0 || (i == 0 && n.ID != RootID) {
			im.wrong("inode %d cannot be without a parent here", n.ID)
		}
		if kept {
			trashed++
		} else if i > 0 {
			im.t.detached.ReplaceOrInsert(n.ID)
		}
		im.add(n)
		last = n.ID
	}
	if trashed != im.t.trash.Len() {
		im.wrong("the trash has %d entries, but %d of the inodes", im.t.trash.Len(), trashed)
	}
	dir := InodeID(0)
	for left := total - min(tops, total); left > 0 && im.Next(); {
		step, n := im.Number(64), im.Number(63)
		if step == 0 || uint64(dir)+step < step || n == 0 || n > left {
			im.wrong("%d entries after directory %d", n, dir)
			return
		}
		dir += InodeID(step)
		left -= n
		im.read.dirs, im.read.in = append(im.read.dirs, dir), append(im.read.in, int64(n)) //nolint:gosec // 63 bits
		im.entries(dir, n)
	}
}

// entries reads the entries of one directory.
func (im *imageCoder) entries(dir InodeID, count uint64) {
	n, last := new(inode), make([]byte, 0, 256)
	for ; count > 0 && im.Next(); count-- {
		*n = inode{Parent: dir}
		im.nodes.Inode(n)
		if !im.OK() {
			return
		}
		if err := fspath.CheckNameBytes(im.nodes.Name()); err != nil {
			im.wrong("an entry of directory %d: %v", dir, err)
		}
		if bytes.Compare(last, im.nodes.Name()) >= 0 {
			im.wrong("the entries of directory %d are not in order", dir)
		}
		last = im.nodes.Swap(last)
		im.add(n)
	}
}

// add adds an inode to the table, and counts what is in it.
func (im *imageCoder) add(n *inode) {
	if !im.OK() {
		return
	}
	t, r := im.t, &im.read
	im.place.AddInode(n)
	t.counts.Add(n.Type, 1)
	if n.Ext == nil {
		return
	}
	for _, b := range n.Blocks() {
		r.keys = append(r.keys, b.Key)
		t.counts.StoredBytes += int64(b.Stored)
	}
	if n.Open() != nil {
		r.open = append(r.open, n.ID)
	}
	t.countTail(n, 1)
}
