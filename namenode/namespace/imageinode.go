package namespace

import (
	"bytes"
	"math"

	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/content"
)

// The first byte of an inode in an image: its type and what follows.
const (
	flagType      = 0x03
	flagSameOwner = 0x04 // mode, user and group are those of the inode before
	flagBlocks    = 0x08
	flagTail      = 0x10
	flagOpen      = 0x20
	flagCut       = 0x40
	flagsAll      = 0x7f
)

// flags is the first byte of an inode that is written after another one.
func (n *inode) flags(before *inode) uint8 {
	f := uint8(n.typ)
	if n.mode == before.mode && n.user == before.user && n.group == before.group {
		f |= flagSameOwner
	}
	if len(n.blocks()) > 0 {
		f |= flagBlocks
	}
	if n.typ != TypeDir && n.ext != nil && len(n.ext.tail) > 0 {
		f |= flagTail
	}
	if n.open() != nil {
		f |= flagOpen
	}
	if n.cut() != 0 {
		f |= flagCut
	}
	return f
}

// inode codes an inode. One that is read knows only its parent before.
func (im *imageCoder) inode(n *inode) {
	var flags uint8
	p, id := &im.prev, int64(n.id) //nolint:gosec // as bits
	if im.Writes() {
		n.mode = n.perm()
		flags = n.flags(p)
	}
	im.U8(&flags)
	im.Delta(&id, int64(p.id)) //nolint:gosec // as bits
	im.Delta(&n.mtime, p.mtime)
	switch {
	case flags&flagSameOwner == 0:
		im.U16(&n.mode)
		im.U16(&n.user)
		im.U16(&n.group)
	case !im.Writes():
		n.mode, n.user, n.group = p.mode, p.user, p.group
	}
	if im.Writes() {
		im.name = n.appendName(append(im.name[:0], n.nameLen))
		im.Append(im.name...)
	} else {
		n.id, n.typ = InodeID(id), Type(flags&flagType) //nolint:gosec // as bits
		im.U8(&n.nameLen)
		name := im.Take(uint64(n.nameLen))
		im.name = append(im.name[:0], name...)
		if copy(n.name[:], name); len(name) > inlineName {
			whole := string(name)
			n.ext = &ext{name: &whole}
		}
		im.checkInode(n, flags)
	}
	im.prev = *n
	if flags&(flagBlocks|flagTail|flagOpen|flagCut) != 0 && im.OK() {
		im.content(n, flags)
	}
}

func (im *imageCoder) checkInode(n *inode, flags uint8) {
	t := im.t
	switch {
	case n.typ < TypeFile || n.typ > TypeSymlink || flags&^flagsAll != 0 ||
		(n.typ != TypeFile && flags&(flagBlocks|flagOpen|flagCut) != 0) || (n.typ == TypeDir) && flags&flagTail != 0 ||
		(n.typ == TypeSymlink && flags&flagTail == 0):
		im.wrong("inode %d has flags %#x, which do not go together", n.id, flags)
	case n.id == 0 || n.id >= t.nextInode:
		im.wrong("inode number %d is not below the next, %d", n.id, t.nextInode)
	case int(n.user) >= t.UserNames.Len() || int(n.group) >= t.GroupNames.Len() || n.mode&^modeBits != 0:
		im.wrong("inode %d has owner %d, group %d, mode %o", n.id, n.user, n.group, n.mode)
	}
}

// content codes blocks, tail and open state of a file, or a link's target.
func (im *imageCoder) content(n *inode, flags uint8) {
	if n.ext == nil {
		n.ext = new(ext)
	}
	x := n.ext
	if flags&flagBlocks != 0 {
		codec.List(im.Coder, &x.blocks, 5, im.block)
	}
	if flags&flagTail != 0 {
		tail := x.tail
		im.Bytes(&tail)
		if !im.Writes() {
			x.tail = content.CopyTail(tail)
		}
	}
	if flags&flagOpen != 0 {
		im.openState(x)
	}
	if flags&flagCut != 0 {
		im.U64(&x.cut)
	}
	if !im.Writes() && im.OK() {
		im.checkContent(n, flags)
	}
}

// openState codes the open state of a file.
func (im *imageCoder) openState(x *ext) {
	var h Holder
	var o *openState
	var g *grant
	if im.Writes() {
		o, g, h = x.open, x.open.grant, *x.open.grant.holder
	} else {
		o, g = new(openState), new(grant)
	}
	im.U64(&g.epoch)
	im.Raw((*[16]byte)(&g.token))
	im.I64(&g.since)
	h.CodeOpen(im.Coder)
	im.I64(&o.last.Offset)
	im.U32(&o.last.Len)
	im.Sum32(&o.last.CRC)
	if !im.Writes() {
		g.holder = im.t.holders.Share(h)
		o.grant = g
		x.open = o
	}
}

func (im *imageCoder) checkContent(n *inode, flags uint8) {
	x, t := n.ext, im.t
	x.blocks = content.ExactBlocks(x.blocks)
	for _, b := range x.blocks {
		if b.Key.Seq == 0 || b.Used == 0 || b.Used > b.Stored || x.n > math.MaxInt64-int64(b.Used) {
			im.wrong("inode %d has a block with %d bytes used of %d", n.id, b.Used, b.Stored)
			return
		}
		x.n += int64(b.Used)
		im.read.keys = append(im.read.keys, b.Key)
		t.counts.StoredBytes += int64(b.Stored)
	}
	length := x.n + int64(len(x.tail))
	switch o := x.open; {
	case flags&flagBlocks != 0 && len(x.blocks) == 0 || flags&flagTail != 0 && len(x.tail) == 0:
		im.wrong("inode %d has an empty block list or tail", n.id)
	case length < 0:
		im.wrong("file %d is too long", n.id)
	case flags&flagCut != 0 && (x.cut == 0 || x.cut > t.txid):
		im.wrong("file %d was shortened by a record to come", n.id)
	case o != nil && (o.grant.epoch == 0 || o.grant.epoch > t.txid || !o.last.Within(length)):
		im.wrong("file %d has an epoch or a last append that cannot be", n.id)
	case o != nil:
		im.read.open = append(im.read.open, n.id)
	}
	t.countTail(n, 1)
}

// inodes codes the inodes without a parent, then directory by directory the
// entries of each.
func (im *imageCoder) inodes() {
	if im.Writes() {
		im.writeInodes()
		return
	}
	im.place = im.t.slots.Load(im.read.total, uint64(im.t.nextInode))
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
	im.Put(uint64(1 + t.detached.Len())) //nolint:gosec // a length
	im.inode(t.get(RootID))
	t.detached.Ascend(func(id InodeID) bool {
		im.inode(t.get(id))
		return im.Next()
	})
	dir, n := InodeID(0), new(inode)
	t.slots.Ascend(0, "", func(id InodeID) bool {
		if t.load(id, n); n.parent != dir {
			im.Put(uint64(n.parent - dir))
			im.Put(uint64(t.stored(t.get(n.parent)))) //nolint:gosec // a length
			dir = n.parent
		}
		im.inode(n)
		return im.Next()
	})
}

func (im *imageCoder) readInodes() {
	total, tops := im.read.total, im.Number(64)
	if tops == 0 || tops > total {
		im.wrong("%d inodes of %d are without a parent", tops, total)
	}
	last := InodeID(0)
	for i := uint64(0); i < tops && im.Next(); i++ {
		n := new(inode)
		im.inode(n)
		if n.id <= last || n.typ != TypeDir || n.nameLen != 0 || (i == 0 && n.id != RootID) {
			im.wrong("inode %d cannot be without a parent here", n.id)
		}
		if i > 0 {
			im.t.detached.ReplaceOrInsert(n.id)
		}
		im.add(n)
		last = n.id
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
		*n = inode{parent: dir}
		im.inode(n)
		if !im.OK() {
			return
		}
		if err := fspath.CheckNameBytes(im.name); err != nil {
			im.wrong("an entry of directory %d: %v", dir, err)
		}
		if bytes.Compare(last, im.name) >= 0 {
			im.wrong("the entries of directory %d are not in order", dir)
		}
		last, im.name = im.name, last
		im.add(n)
	}
}

// add adds an inode to the table.
func (im *imageCoder) add(n *inode) {
	if !im.OK() {
		return
	}
	s := n.slot()
	im.place.Add(n.id, &s, n.ext)
	im.t.counts.Add(n.typ, 1)
}
