package snapshots

import (
	"math"
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// In an image each snapshot is what it has otherwise than the next newer one, the newest than
// the tree: of all inodes below Next, also of those outside of the directory, so that what is
// read is again what was written. What is attached to a dead lease is left out. Inodes from Next
// on are in what is read as in the newer one, and hidden: Snapshot.Hides.

// Hides reports whether an inode is not to be shown, nor anything below it.
func (s *Snapshot) Hides(id tables.InodeID) bool { return id >= s.Next || s.In.Leases.IsDead(id) }

// Code is the layout in an image, by a coder for inodes. live is the tree, of which one that
// reads makes clones; own is told of the blocks that only snapshots have, and returns false if
// one cannot be. The snapshots that are read fit the tree.
func (t *Table) Code(c *node.Coder, live *In, own func(blockstore.Key) bool, isDir func(tables.InodeID) bool) {
	if c.U64((*uint64)(&t.last)); t.last > MaxID || c.Limits.Next > 1<<Bits {
		c.Wrong("the last snapshot has the number %d, the next inode %d", uint64(t.last), c.Limits.Next)
	}
	t.allowed.Code(c.Coder, func(id *tables.InodeID) { c.U64((*uint64)(id)) }, func(_, id tables.InodeID) bool {
		t.allowed.ReplaceOrInsert(id)
		return t.Allowed() <= MaxAllowed && isDir(id)
	})
	t.held.byHolder.Code(c.Coder, func(h *Held) {
		c.U64((*uint64)(&h.By))
		c.U64((*uint64)(&h.Inode))
		h.Block.Code(c.Coder)
	}, func(_, h Held) bool {
		t.held.add(h)
		return h.By > 0 && h.By <= MaxID && h.Inode < c.Limits.Next && h.Key.Seq != 0 && own(h.Key)
	})
	of, base := live, *live
	live = &base
	live.Leases = tables.NewLeases() // it is written with what is dead
	if c.Writes() {
		c.Put(uint64(t.Len())) //nolint:gosec // a length
		t.Newest(func(s *Snapshot) bool {
			s.code(c, live, math.MaxUint64)
			live = &s.In
			return c.Next()
		})
		return
	}
	t.read(c, live)
	of.Inodes = live.Inodes // it shares what it has from now on
}

func (t *Table) read(c *node.Coder, live *In) {
	newer, next, held, count, of := live, c.Limits.Next, heldBy(t), c.Number(13), make(map[tables.InodeID]int)
	if count > Max {
		c.Wrong("there are %d snapshots", count)
	}
	for age := count; age > 0 && c.Next(); age-- {
		s := &Snapshot{age: age}
		files := s.code(c, newer, next)
		if !c.OK() {
			return
		}
		dir := s.In.Inodes.Inode(s.Dir)
		of[s.Dir]++
		switch {
		case s.ID == 0 || s.ID > MaxID || t.Get(s.ID) != nil || of[s.Dir] > MaxOfDir || !t.IsAllowed(s.Dir) || fspath.CheckName(s.Name) != nil || t.Named(s.Dir, s.Name) != nil:
			c.Wrong("snapshot %d, %q of directory %d, cannot be", uint64(s.ID), s.Name, s.Dir)
		case dir == nil || dir.Type != calls.TypeDir || !s.Has(s.Dir):
			c.Wrong("snapshot %d is of inode %d, which is no directory in it", uint64(s.ID), s.Dir)
		default:
			s.checkFiles(c, files, &live.Inodes, held)
		}
		t.put(s)
		newer, next = &s.In, s.Next
	}
	strays(t, func(h Held) {
		c.Wrong("block %d.%d is held by snapshot %d, which does not have it", h.Key.Term, h.Key.Seq, uint64(h.By))
	})
}

// strays calls fn for the blocks that are held by a snapshot that does not have them.
func strays(t *Table, fn func(Held)) {
	var of Held
	var has map[blockstore.Key]bool
	t.held.byHolder.Ascend(func(h Held) bool {
		s := t.Get(h.By)
		if s == nil {
			return true
		}
		if has == nil || of.By != h.By || of.Inode != h.Inode {
			of, has = h, make(map[blockstore.Key]bool)
			if n := s.In.Inodes.Inode(h.Inode); n != nil && s.Has(h.Inode) {
				for _, b := range n.Blocks() {
					has[b.Key] = true
				}
			}
		}
		if !has[h.Key] {
			fn(h)
		}
		return true
	})
}

// heldBy says of which files the blocks are that only snapshots have.
func heldBy(t *Table) map[blockstore.Key]tables.InodeID {
	held := make(map[blockstore.Key]tables.InodeID, t.held.byHolder.Len())
	t.held.byHolder.Ascend(func(h Held) bool {
		held[h.Key] = h.Inode
		return true
	})
	return held
}

// checkFiles checks files that were read: their blocks are what the same file in the tree begins
// with, then such as are held.
func (s *Snapshot) checkFiles(c *node.Coder, ids []tables.InodeID, live *node.Table, held map[blockstore.Key]tables.InodeID) {
	for _, id := range ids {
		if !s.Has(id) {
			continue
		}
		_, is := live.Get(id)
		list := s.In.Inodes.Inode(id).Blocks()
		for _, b := range list[begin(list, blocksOf(is)):] {
			if held[b.Key] != id {
				c.Wrong("block %d.%d of inode %d in snapshot %d is in no file of that number", b.Key.Term, b.Key.Seq, id, uint64(s.ID))
				return
			}
		}
	}
}

// code codes a snapshot; newer is the next newer one, or the tree, and next its Next. It returns
// the files with blocks that it has read, other than those of the newer one.
func (s *Snapshot) code(c *node.Coder, newer *In, next tables.InodeID) (files []tables.InodeID) {
	c.U64((*uint64)(&s.ID))
	c.U64((*uint64)(&s.Dir))
	c.Text(&s.Name)
	c.I64(&s.Time)
	c.U64((*uint64)(&s.Next))
	if c.Writes() {
		// What the newer one lacks, or has dead, has no attributes in what is read of that.
		each := func(fn func(id tables.InodeID, only bool) bool) {
			s.touched(newer, func(id tables.InodeID, was, is *node.Inode) bool { return was == nil || fn(id, is == nil) })
		}
		s.In.Xattrs.CodeChange(c.Coder, &newer.Xattrs, s.Next, each)
		s.In.ACLs.CodeChange(c.Coder, &newer.ACLs, s.Next, each)
		s.write(c, newer)
		return nil
	}
	if s.Next > next {
		c.Wrong("snapshot %d has inodes up to %d, a newer one up to %d", uint64(s.ID), s.Next, next)
	}
	s.In = newer.Clone()
	s.In.Leases = tables.NewLeases()
	touched := s.In.Xattrs.CodeChange(c.Coder, &newer.Xattrs, s.Next, nil)
	touched = append(touched, s.In.ACLs.CodeChange(c.Coder, &newer.ACLs, s.Next, nil)...)
	files = s.read(c, &newer.Inodes)
	for _, id := range touched { // so that Differ looks at them
		if n := s.In.Inodes.Inode(id); n != nil {
			s.In.Inodes.PutInode(n)
		}
	}
	return files
}

// changes calls fn for the inodes below Next that a snapshot has, or a newer one or the tree, but
// not both the same, until it returns false.
func (s *Snapshot) changes(newer *In, fn func(id tables.InodeID, was, is *node.Inode) bool) {
	s.touched(newer, func(id tables.InodeID, was, is *node.Inode) bool {
		return was != nil && is != nil && node.Same(was, is) || fn(id, was, is)
	})
}

// touched is changes, also for inodes that are the same, but of which attributes may differ.
func (s *Snapshot) touched(newer *In, fn func(id tables.InodeID, was, is *node.Inode) bool) {
	var dead []tables.InodeID
	for _, l := range []*tables.Leases{&s.In.Leases, &newer.Leases} {
		l.EachDead(func(id tables.InodeID) { dead = append(dead, id) })
	}
	slices.Sort(dead)
	more := true
	one := func(id tables.InodeID, was, is *node.Inode) bool {
		if was != nil && s.In.Leases.IsDead(id) {
			was = nil
		}
		if is != nil && newer.Leases.IsDead(id) {
			is = nil
		}
		if more = id < s.Next; !more {
			return false
		}
		if was == nil && is == nil {
			return true
		}
		more = fn(id, was, is)
		return more
	}
	before := func(id tables.InodeID) {
		for ; len(dead) > 0 && dead[0] <= id && more; dead = dead[1:] {
			if d := dead[0]; d < id && (len(dead) == 1 || dead[1] != d) {
				one(d, s.In.Inodes.Inode(d), newer.Inodes.Inode(d))
			}
		}
	}
	node.Differ(&s.In.Inodes, &newer.Inodes, 0, math.MaxInt, func(id tables.InodeID, was, is *node.Inode) bool {
		before(id)
		return more && one(id, was, is)
	})
	if more {
		before(math.MaxUint64)
	}
}

// What is written with an inode besides what node.Coder writes.
const (
	putEnd  = 0
	putPut  = 1
	putACL  = 2 // it has ACLs
	putMost = putPut | putACL
)

func (s *Snapshot) write(c *node.Coder, newer *In) {
	before := tables.InodeID(0)
	s.changes(newer, func(id tables.InodeID, _, is *node.Inode) bool {
		if is != nil {
			c.Put(uint64(id - before))
			before = id
		}
		return c.Next()
	})
	c.Put(0)
	s.changes(newer, func(_ tables.InodeID, was, _ *node.Inode) bool {
		if was == nil {
			return true
		}
		n, how := was.Edit(), uint8(putPut)
		if n.Mode&node.ACLBit != 0 {
			how |= putACL
		}
		if n.Open() != nil {
			n.OwnExt().Open = nil
			n.DropEmptyExt()
		}
		c.U8(&how)
		c.Put(uint64(n.Parent))
		c.Inode(n)
		if n.Type == calls.TypeDir {
			c.Put(uint64(n.Entries())) //nolint:gosec // a count
		}
		return c.Next()
	})
	c.Append(putEnd)
}

// read makes of a clone of a newer one what was written, and returns the files with blocks in it.
func (s *Snapshot) read(c *node.Coder, newer *node.Table) (files []tables.InodeID) {
	in := &s.In.Inodes
	drop := func(n *node.Inode) bool {
		linked := n != nil && (n.Parent == 0 || in.Unlink(n.Parent, n.Name(), n.ID))
		if linked {
			in.Drop(n.ID)
		}
		return linked
	}
	var taken []tables.InodeID
	for id := tables.InodeID(0); c.Next(); {
		step := tables.InodeID(0)
		if c.U64((*uint64)(&step)); step == 0 {
			break
		}
		if id += step; id < step || id >= s.Next || !drop(in.Inode(id)) {
			c.Wrong("inode %d is not to be taken from snapshot %d", id, uint64(s.ID))
		}
		taken = append(taken, id)
	}
	var ids []tables.InodeID
	for last := tables.InodeID(0); c.Next(); {
		how, parent := uint8(putEnd), tables.InodeID(0)
		if c.U8(&how); how == putEnd {
			break
		}
		c.U64((*uint64)(&parent))
		n := &node.Inode{Parent: parent}
		if c.Inode(n); !c.OK() {
			return nil
		}
		named := fspath.CheckNameBytes(c.Name()) == nil
		if old, _ := in.Get(n.ID); how&^putMost != 0 || how&putPut == 0 || n.ID <= last || n.ID >= s.Next || old != nil ||
			parent >= s.Next || n.Open() != nil || named != (parent != 0) || !named && n.NameLen != 0 {
			c.Wrong("inode %d cannot be in snapshot %d", n.ID, uint64(s.ID))
			return nil
		}
		last = n.ID
		ids = append(ids, n.ID)
		if how&putACL != 0 {
			n.Mark(true)
		}
		if b := n.Blocks(); len(b) > 0 {
			files = append(files, n.ID)
			if _, x := newer.Get(n.ID); x != nil && len(b) <= len(x.Blocks) && slices.Equal(b, x.Blocks[:len(b)]) {
				n.Ext.Blocks = x.Blocks[:len(b):len(b)] // in the same memory
			}
		}
		if n.Type == calls.TypeDir {
			if entries := c.Number(63); entries > 0 {
				n.OwnExt().N = int64(entries) //nolint:gosec // 63 bits
			}
		}
		if parent != 0 {
			if other := in.Named(parent, n.Name()); other != 0 && (other < s.Next || !drop(in.Inode(other))) {
				c.Wrong("inodes %d and %d have the same name in snapshot %d", other, n.ID, uint64(s.ID))
				return nil
			}
		}
		if in.PutInode(n); parent != 0 {
			in.LinkInode(n)
		}
	}
	for _, id := range taken {
		if n, _ := in.Get(id); n == nil {
			s.In.Xattrs.Drop(id)
			s.In.ACLs.Forget(id)
		}
	}
	if id, is := in.Hanging(ids, uint8(calls.TypeDir), true); is {
		c.Wrong("inode %d is inside itself, or in what is no directory, in snapshot %d", id, uint64(s.ID))
	}
	return files
}
