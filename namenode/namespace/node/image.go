package node

import (
	"fmt"
	"math"

	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
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

// Limits are what an inode of an image must be within.
type Limits struct {
	Next          tables.InodeID // all numbers are below it
	Users, Groups int            // how many names there are
	TxID          uint64         // of the last record
}

// Coder writes inodes to an image, or reads them, both by the same layout. What it reads it
// checks against the limits; a failure is that of the codec.Coder.
type Coder struct {
	*codec.Coder
	Limits Limits
	// Share makes of a holder that was read one that files share.
	Share func(tables.Holder) *tables.Holder
	prev  Inode  // the previous one; numbers are relative to it
	name  []byte // of the last one; in writing preceded by its length
}

// Name is the name of the inode that was read last, good until the next but one is read.
func (c *Coder) Name() []byte { return c.name }

// Swap has the next name take the place of buf, and returns the last one.
func (c *Coder) Swap(buf []byte) (name []byte) {
	name, c.name = c.name, buf
	return name
}

// Wrong is Fail with details.
func (c *Coder) Wrong(format string, args ...any) { c.Fail(fmt.Sprintf(format, args...)) }

// flags is the first byte of an inode that is written after another one.
func (n *Inode) flags(before *Inode) uint8 {
	f := uint8(n.Type)
	if n.Mode == before.Mode && n.User == before.User && n.Group == before.Group {
		f |= flagSameOwner
	}
	if len(n.Blocks()) > 0 {
		f |= flagBlocks
	}
	if n.Type != calls.TypeDir && n.Ext != nil && len(n.Ext.Tail) > 0 {
		f |= flagTail
	}
	if n.Open() != nil {
		f |= flagOpen
	}
	if n.Cut() != 0 {
		f |= flagCut
	}
	return f
}

// Inode codes an inode. One that is read knows only its parent before.
func (c *Coder) Inode(n *Inode) {
	var flags uint8
	p, id := &c.prev, int64(n.ID) //nolint:gosec // as bits
	if c.Writes() {
		n.Mode = n.Perm()
		flags = n.flags(p)
	}
	c.U8(&flags)
	c.Delta(&id, int64(p.ID)) //nolint:gosec // as bits
	c.Delta(&n.MTime, p.MTime)
	switch {
	case flags&flagSameOwner == 0:
		c.U16(&n.Mode)
		c.U16(&n.User)
		c.U16(&n.Group)
	case !c.Writes():
		n.Mode, n.User, n.Group = p.Mode, p.User, p.Group
	}
	if c.Writes() {
		c.name = n.AppendName(append(c.name[:0], n.NameLen))
		c.Append(c.name...)
	} else {
		n.ID, n.Type = tables.InodeID(id), calls.Type(flags&flagType) //nolint:gosec // as bits
		c.U8(&n.NameLen)
		name := c.Take(uint64(n.NameLen))
		c.name = append(c.name[:0], name...)
		if copy(n.name[:], name); len(name) > Inline {
			whole := string(name)
			n.Ext = &Ext{name: &whole}
		}
		c.check(n, flags)
	}
	c.prev = *n
	if flags&(flagBlocks|flagTail|flagOpen|flagCut) != 0 && c.OK() {
		c.content(n, flags)
	}
}

func (c *Coder) check(n *Inode, flags uint8) {
	l := &c.Limits
	switch {
	case n.Type < calls.TypeFile || n.Type > calls.TypeSymlink || flags&^flagsAll != 0 ||
		(n.Type != calls.TypeFile && flags&(flagBlocks|flagOpen|flagCut) != 0) || (n.Type == calls.TypeDir) && flags&flagTail != 0 ||
		(n.Type == calls.TypeSymlink && flags&flagTail == 0):
		c.Wrong("inode %d has flags %#x, which do not go together", n.ID, flags)
	case n.ID == 0 || n.ID >= l.Next:
		c.Wrong("inode number %d is not below the next, %d", n.ID, l.Next)
	case int(n.User) >= l.Users || int(n.Group) >= l.Groups || n.Mode&^ModeBits != 0:
		c.Wrong("inode %d has owner %d, group %d, mode %o", n.ID, n.User, n.Group, n.Mode)
	}
}

// content codes blocks, tail and open state of a file, or a link's target.
func (c *Coder) content(n *Inode, flags uint8) {
	if n.Ext == nil {
		n.Ext = new(Ext)
	}
	x := n.Ext
	if flags&flagBlocks != 0 {
		codec.List(c.Coder, &x.Blocks, 5, func(b *content.Block) { b.Code(c.Coder) })
	}
	if flags&flagTail != 0 {
		tail := x.Tail
		c.Bytes(&tail)
		if !c.Writes() {
			x.Tail = content.CopyTail(tail)
		}
	}
	if flags&flagOpen != 0 {
		c.openState(x)
	}
	if flags&flagCut != 0 {
		c.U64(&x.Cut)
	}
	if !c.Writes() && c.OK() {
		c.checkContent(n, flags)
	}
}

// openState codes the open state of a file.
func (c *Coder) openState(x *Ext) {
	var h tables.Holder
	var o *Open
	var g *Grant
	if c.Writes() {
		o, g, h = x.Open, x.Open.Grant, *x.Open.Grant.Holder
	} else {
		o, g = new(Open), new(Grant)
	}
	c.U64(&g.Epoch)
	c.Raw((*[16]byte)(&g.Token))
	c.I64(&g.Since)
	h.CodeOpen(c.Coder)
	c.I64(&o.Last.Offset)
	c.U32(&o.Last.Len)
	c.Sum32(&o.Last.CRC)
	if !c.Writes() {
		g.Holder = c.Share(h)
		o.Grant = g
		x.Open = o
	}
}

// checkContent checks the content of an inode that was read, and adds up its blocks.
func (c *Coder) checkContent(n *Inode, flags uint8) {
	x := n.Ext
	x.Blocks = content.ExactBlocks(x.Blocks)
	for _, b := range x.Blocks {
		if b.Key.Seq == 0 || b.Used == 0 || b.Used > b.Stored || x.N > math.MaxInt64-int64(b.Used) {
			c.Wrong("inode %d has a block with %d bytes used of %d", n.ID, b.Used, b.Stored)
			return
		}
		x.N += int64(b.Used)
	}
	length := x.N + int64(len(x.Tail))
	switch o := x.Open; {
	case flags&flagBlocks != 0 && len(x.Blocks) == 0 || flags&flagTail != 0 && len(x.Tail) == 0:
		c.Wrong("inode %d has an empty block list or tail", n.ID)
	case length < 0:
		c.Wrong("file %d is too long", n.ID)
	case flags&flagCut != 0 && (x.Cut == 0 || x.Cut > c.Limits.TxID):
		c.Wrong("file %d was shortened by a record to come", n.ID)
	case o != nil && (o.Grant.Epoch == 0 || o.Grant.Epoch > c.Limits.TxID || !o.Last.Within(length)):
		c.Wrong("file %d has an epoch or a last append that cannot be", n.ID)
	}
}
