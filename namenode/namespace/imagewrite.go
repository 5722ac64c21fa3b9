package namespace

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// The frame of an image; see docs/design/records-and-image.md.
const (
	imageMagic   = "LEASEFSI"
	imageVersion = 7
	imageHeader  = len(imageMagic) + 4 + 4 // magic, version, checksum
	chunkHeader  = 4 + 4                   // length, checksum
	chunkTarget  = 256 << 10               // bytes at which a chunk is written
	maxChunk     = 1 << 20                 // bytes that one may have
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

// chunkSum is the checksum of a chunk, its place among the chunks included.
func chunkSum(index uint64, payload []byte) uint32 {
	var i [8]byte
	binary.LittleEndian.PutUint64(i[:], index)
	return crc32.Update(crc32.Checksum(i[:], castagnoli), castagnoli, payload)
}

// imageWriter frames what a coder writes.
type imageWriter struct {
	coder
	w      io.Writer
	chunks uint64
	prev   inode // the one before, from which numbers are counted
	err    error
}

// flush writes what has come together, in chunks.
func (w *imageWriter) flush() {
	for buf := w.buf; len(buf) > 0 && w.err == nil; {
		n := min(len(buf), maxChunk)
		w.chunk(buf[:n])
		buf = buf[n:]
	}
	w.buf = w.buf[:0]
}

func (w *imageWriter) chunk(payload []byte) {
	var h [chunkHeader]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(payload))) //nolint:gosec // at most maxChunk
	binary.LittleEndian.PutUint32(h[4:], chunkSum(w.chunks, payload))
	w.chunks++
	if _, w.err = w.w.Write(h[:]); w.err == nil && len(payload) > 0 {
		_, w.err = w.w.Write(payload)
	}
}

// item ends one item of a list and reports whether to go on.
func (w *imageWriter) item() bool {
	if len(w.buf) >= chunkTarget {
		w.flush()
	}
	return w.err == nil
}

// count writes how many items come.
func (w *imageWriter) count(n int) { w.put(uint64(n)) } //nolint:gosec // a length

// WriteImage writes the whole state, in pieces of about 256 KiB. It takes as
// long as the tree is large, so it is meant for clones. Errors are those of w.
func (t *Tree) WriteImage(w io.Writer) error {
	iw := &imageWriter{w: w, coder: coder{encode: true, buf: make([]byte, 0, chunkTarget+64<<10)}}
	head := make([]byte, 0, imageHeader)
	head = append(head, imageMagic...)
	head = binary.LittleEndian.AppendUint32(head, imageVersion)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(head); err != nil {
		return err
	}
	t.writeMeta(iw)
	t.writeInodes(iw)
	t.writeGarbage(iw)
	t.writeSessions(iw)
	t.writeLeases(iw)
	t.writeXattrs(iw)
	t.writeNumbers(iw)
	t.writeTrailer(iw)
	iw.flush()
	if iw.err == nil {
		iw.chunk(nil)
	}
	return iw.err
}

func (t *Tree) writeMeta(w *imageWriter) {
	w.u64(&t.txid)
	w.i64(&t.time)
	w.i64(&t.reigned)
	w.u64(&t.term)
	w.raw(&t.namespace)
	w.owner(&t.superUser, &t.superGroup)
	w.bool(&t.safeMode)
	w.inode(&t.nextInode)
	w.count(len(t.images))
	for i := range t.images {
		t.images[i].fields(&w.coder)
	}
	reigns := t.Reigns()
	w.count(len(reigns))
	for i := range reigns {
		reigns[i].fields(&w.coder)
	}
	for _, in := range []*interner{&t.users, &t.groups} {
		w.count(len(in.names) - 1)
		for _, name := range in.names[1:] {
			w.string(&name)
			w.item()
		}
	}
	c := t.Counts()
	w.count(c.Inodes)
}

// writeInodes writes the inodes without a parent, then directory by directory
// the entries of each.
func (t *Tree) writeInodes(w *imageWriter) {
	w.count(1 + t.detached.Len())
	w.entryOf(t.get(RootID))
	t.detached.Ascend(func(id InodeID) bool {
		w.entryOf(t.get(id))
		return w.item()
	})
	dir := InodeID(0)
	t.dentries.Ascend(func(n *inode) bool {
		if n.parent != dir {
			w.put(uint64(n.parent - dir))
			w.count(int(t.get(n.parent).entries()))
			dir = n.parent
		}
		w.entryOf(n)
		return w.item()
	})
}

// entryOf writes one inode.
func (w *imageWriter) entryOf(n *inode) {
	p := &w.prev
	flags := uint8(n.typ)
	same := n.mode == p.mode && n.user == p.user && n.group == p.group
	if same {
		flags |= flagSameOwner
	}
	file := n.typ == TypeFile
	if file && len(n.blocks()) > 0 {
		flags |= flagBlocks
	}
	if n.typ != TypeDir && n.ext != nil && len(n.ext.tail) > 0 {
		flags |= flagTail
	}
	if file && n.open() != nil {
		flags |= flagOpen
	}
	if n.cut() != 0 {
		flags |= flagCut
	}
	w.buf = append(w.buf, flags)
	w.delta(int64(n.id), int64(p.id)) //nolint:gosec // as bits
	w.delta(n.mtime, p.mtime)
	if !same {
		w.u16(&n.mode)
		w.u16(&n.user)
		w.u16(&n.group)
	}
	w.buf = append(w.buf, n.nameLen)
	if n.nameLen <= inlineName {
		w.buf = append(w.buf, n.name[:n.nameLen]...)
	} else {
		w.buf = append(w.buf, *n.ext.name...)
	}
	*p = *n
	if flags&flagBlocks != 0 {
		w.count(len(n.ext.blocks))
		for i := range n.ext.blocks {
			w.block(&n.ext.blocks[i])
		}
	}
	if flags&flagTail != 0 {
		w.bytes(&n.ext.tail)
	}
	if flags&flagOpen != 0 {
		w.openState(n.ext.open)
	}
	if flags&flagCut != 0 {
		w.u64(&n.ext.cut)
	}
}

// openState writes the open state of a file.
func (w *imageWriter) openState(o *openState) {
	g := o.grant
	w.u64(&g.epoch)
	w.raw((*[16]byte)(&g.token))
	w.i64(&g.since)
	w.raw((*[16]byte)(&g.holder.Session))
	w.i64(&g.holder.PID)
	for _, s := range []*string{&g.holder.User, &g.holder.Client, &g.holder.Host} {
		w.string(s)
	}
	w.i64(&g.holder.TTL)
	w.i64(&o.lastOff)
	w.u32(&o.lastLen)
	w.sum32(&o.lastCRC)
}

// delta writes how far v is from the value before.
func (w *imageWriter) delta(v, before int64) {
	d := v - before // may wrap, and wraps back
	w.i64(&d)
}

func (t *Tree) writeGarbage(w *imageWriter) {
	w.count(t.garbage.Len())
	before := int64(0)
	t.garbage.Ascend(func(g garbageItem) bool {
		w.delta(g.time, before)
		before = g.time
		w.key(&g.key)
		w.u32(&g.stored)
		return w.item()
	})
}

func (t *Tree) writeSessions(w *imageWriter) {
	w.count(t.sessions.Len())
	t.sessions.Ascend(func(s sessionItem) bool {
		w.raw((*[16]byte)(&s.id))
		w.i64(&s.last)
		w.u64(&s.acked)
		w.count(len(s.results))
		for i := range s.results {
			s.results[i].fields(&w.coder)
			w.item()
		}
		return w.item()
	})
}

func (r *callResult) fields(c *coder) {
	c.u64(&r.seq)
	c.sum64(&r.hash)
	c.u64(&r.res.TxID)
	c.u8(&r.res.Op)
	c.inode(&r.res.Inode)
	c.i64(&r.res.Length)
	c.i64(&r.res.BlocksLength)
	c.raw((*[16]byte)(&r.res.Token))
	c.bool(&r.res.Flag)
}

// writeLeases writes the granted leases with their files, the ages of leases,
// and the sessions that may cache.
func (t *Tree) writeLeases(w *imageWriter) {
	w.count(t.leases.Len())
	t.leases.Ascend(func(l *Lease) bool {
		w.lease(&l.ID)
		w.i64(&l.TTL)
		w.i64(&l.Since)
		w.u64(&l.Ended)
		for _, s := range []*string{&l.Owner.User, &l.Owner.Client, &l.Owner.Host} {
			w.string(s)
		}
		return w.item()
	})
	w.count(t.attachments.Len())
	t.attachments.Ascend(func(a attachment) bool {
		w.lease(&a.lease)
		w.inode(&a.inode)
		return w.item()
	})
	w.count(t.ages.Len())
	t.ages.Ascend(func(a Age) bool {
		w.age(&a)
		return w.item()
	})
	w.count(t.caching.Len())
	t.caching.Ascend(func(c OpCaching) bool {
		c.fields(&w.coder)
		return w.item()
	})
}

// writeTrailer writes what the reader must have counted itself.
func (t *Tree) writeTrailer(w *imageWriter) {
	for _, n := range t.trailer() {
		w.put(n)
	}
}

func (t *Tree) trailer() [7]uint64 {
	c := t.Counts()
	return [7]uint64{ //nolint:gosec // counts
		uint64(c.Files), uint64(c.Dirs), uint64(c.Symlinks), uint64(c.Blocks), uint64(c.Open),
		uint64(c.StoredBytes), t.txid,
	}
}
