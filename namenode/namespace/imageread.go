package namespace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
)

// ImageError says that an image is not what was written, and where. An image
// that is merely cut off has io.ErrUnexpectedEOF as its cause.
type ImageError struct {
	Offset int64  // bytes from the beginning, of about the place
	Detail string // what does not fit
	Err    error  // of the reader, if that is why
}

func (e *ImageError) Error() string {
	s := fmt.Sprintf("image damaged at offset %d: %s", e.Offset, e.Detail)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// ReadImage reads what WriteImage wrote, to the end of r. Everything is
// checked: sums, order, and that the parts fit each other. Errors are
// *ImageError. It takes memory only for what it has really read.
func ReadImage(r io.Reader) (*Tree, error) {
	ir := &imageReader{r: r, t: newTree()}
	err := ir.header()
	for _, part := range []func() error{ir.meta, ir.inodes, ir.link, ir.garbage, ir.sessions, ir.leases, ir.xattrs, ir.numbers, ir.trailer} {
		if err == nil {
			err = part()
		}
	}
	if err != nil {
		return nil, err
	}
	return ir.t, nil
}

// CheckImage reads an image to its end, as ReadImage does, and returns the last txid
// in it. Of what is in it the checksums are checked, not whether it fits: so it takes
// the memory of one chunk, and as long as reading takes.
func CheckImage(r io.Reader) (txid uint64, err error) {
	ir := &imageReader{r: r}
	for err = ir.header(); err == nil && !ir.end; {
		first := ir.chunks == 0
		if err = ir.chunk(); err == nil && first {
			txid = ir.number(64)
			err = ir.ok("the txid")
		}
		ir.buf = nil
	}
	if err == nil {
		err = ir.finish()
	}
	return txid, err
}

// itemRoom is how many bytes any item takes at most, without its lists, tail
// and long strings.
const itemRoom = 512

// imageReader reads the frames and decodes what is in them.
type imageReader struct {
	coder           // buf is what is left of mem
	mem      []byte // of the chunks read
	r        io.Reader
	offset   int64 // of r
	chunks   uint64
	end      bool
	t        *Tree
	total    uint64 // inodes
	prev     inode
	pages    map[uint64]*page
	lastNum  uint64
	lastPage *page
	dirs     []dirCount
	keys     []blockstore.Key
	open     []InodeID
}

// dirCount is how many entries were read for a directory.
type dirCount struct {
	id InodeID
	n  int64
}

// wrong is an error at the place where reading is.
func (r *imageReader) wrong(format string, args ...any) error {
	return &ImageError{Offset: r.offset - int64(len(r.buf)), Detail: fmt.Sprintf(format, args...)}
}

// ok returns an error if something could not be decoded.
func (r *imageReader) ok(what string) error {
	if r.bad == "" {
		return nil
	}
	return r.wrong("%s: %s", what, r.bad)
}

// read fills b from the file.
func (r *imageReader) read(b []byte, what string) error {
	n, err := io.ReadFull(r.r, b)
	r.offset += int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &ImageError{Offset: r.offset, Detail: "cannot read " + what, Err: err}
	}
	return nil
}

func (r *imageReader) header() error {
	var h [imageHeader]byte
	if err := r.read(h[:], "the header"); err != nil {
		return err
	}
	sum := len(h) - 4
	switch {
	case string(h[:len(imageMagic)]) != imageMagic:
		return &ImageError{Detail: "it does not begin as an image does"}
	case binary.LittleEndian.Uint32(h[sum:]) != crc32.Checksum(h[:sum], castagnoli):
		return &ImageError{Detail: "the header does not match its checksum"}
	}
	if version := binary.LittleEndian.Uint32(h[len(imageMagic):]); version != imageVersion {
		return &ImageError{Detail: fmt.Sprintf("format %d is not the one known here, %d; it was written by another version of leasefs", version, imageVersion)}
	}
	return nil
}

// fill makes n bytes ready to be decoded, if there are so many.
func (r *imageReader) fill(n int) error {
	for len(r.buf) < n && !r.end {
		if err := r.chunk(); err != nil {
			return err
		}
	}
	return nil
}

// chunk reads one chunk behind what is left of those before.
func (r *imageReader) chunk() error {
	var h [chunkHeader]byte
	begin := r.offset
	if err := r.read(h[:], "a chunk's header"); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxChunk {
		return &ImageError{Offset: begin, Detail: fmt.Sprintf("a chunk of %d bytes is over the limit of %d", n, maxChunk)}
	}
	left := copy(r.mem, r.buf)
	r.mem = slices.Grow(r.mem[:left], int(n))[:left+int(n)]
	payload := r.mem[left:]
	if err := r.read(payload, "a chunk"); err != nil {
		return err
	}
	if chunkSum(r.chunks, payload) != binary.LittleEndian.Uint32(h[4:]) {
		return &ImageError{Offset: begin, Detail: fmt.Sprintf("chunk %d of %d bytes does not match its checksum", r.chunks, n)}
	}
	r.chunks++
	r.buf = r.mem
	r.end = n == 0
	return nil
}

// room is fill for one item.
func (r *imageReader) room() error {
	if len(r.buf) < itemRoom {
		return r.fill(itemRoom)
	}
	return nil
}

// text reads bytes with their length before them; what it returns is valid
// until the next fill. The caller makes room for what follows.
func (r *imageReader) text() ([]byte, error) {
	if err := r.room(); err != nil {
		return nil, err
	}
	n := r.number(64)
	if n > math.MaxInt32 {
		r.fail("a length is over the limit")
		return nil, nil
	}
	if err := r.fill(int(n)); err != nil { //nolint:gosec // checked above
		return nil, err
	}
	return r.take(n), nil
}

func (r *imageReader) string() (string, error) {
	b, err := r.text()
	if err != nil {
		return "", err
	}
	s := string(b)
	return s, r.room()
}

// meta reads what there is once.
func (r *imageReader) meta() (err error) {
	t := r.t
	if err := r.room(); err != nil {
		return err
	}
	r.u64(&t.txid)
	r.i64(&t.time)
	r.i64(&t.reigned)
	r.u64(&t.term)
	r.raw(&t.namespace)
	if t.superUser, err = r.string(); err != nil {
		return err
	}
	if t.superGroup, err = r.string(); err != nil {
		return err
	}
	r.bool(&t.safeMode)
	r.inode(&t.nextInode)
	if n := r.number(2); n > 2 {
		r.fail("more than two images")
	} else {
		for range n {
			var im OpImage
			r.u64(&im.TxID)
			if im.Name, err = r.string(); err != nil {
				return err
			}
			r.i64(&im.Size)
			r.sum32(&im.CRC)
			t.images = append(t.images, im)
		}
	}
	if err := r.readReigns(); err != nil {
		return err
	}
	for _, in := range []*interner{&t.users, &t.groups} {
		if err := r.names(in); err != nil {
			return err
		}
	}
	r.total = r.number(64)
	return r.ok("the head")
}

// readReigns reads the reigns, the last of which is this term's.
func (r *imageReader) readReigns() error {
	n := r.number(MaxReigns)
	if n > MaxReigns {
		r.fail("too many reigns")
		return r.ok("the reigns")
	}
	t, last := r.t, uint64(0)
	for range n {
		if err := r.room(); err != nil {
			return err
		}
		var one Reign
		one.fields(&r.coder)
		if one.Term <= last {
			r.fail("reigns that are not in order")
			break
		}
		last = one.Term
		t.reigns = append(t.reigns, one)
	}
	if len(t.reigns) > 0 {
		now := t.reigns[len(t.reigns)-1]
		t.reigns, t.nonce, t.topSeq = t.reigns[:len(t.reigns)-1], now.Nonce, now.Top
	}
	if last != t.term {
		r.fail("a last reign of another term")
	}
	return r.ok("the reigns")
}

// names reads the names of users or groups.
func (r *imageReader) names(in *interner) error {
	n := r.number(16)
	for range n {
		name, err := r.string()
		if err != nil {
			return err
		}
		if r.bad != "" {
			break
		}
		if before := len(in.names); int(in.add(name, r.t.gen)) != before {
			return r.wrong("user or group %q comes twice", name)
		}
	}
	return r.ok("the users and groups")
}

// inodes reads all inodes and puts them among the entries, in order.
func (r *imageReader) inodes() error {
	r.pages = make(map[uint64]*page)
	tops := r.number(64)
	if tops == 0 || tops > r.total {
		return r.wrong("%d inodes without a parent of %d", tops, r.total)
	}
	left := r.total - tops
	last := InodeID(0)
	for i := range tops {
		n, err := r.inodeItem(0)
		switch {
		case err != nil:
			return err
		case n.id <= last || n.typ != TypeDir || n.nameLen != 0 || (i == 0 && n.id != RootID):
			return r.wrong("inode %d cannot be without a parent here", n.id)
		case i > 0:
			r.t.detached.ReplaceOrInsert(n.id)
		}
		last = n.id
	}
	dir := InodeID(0)
	for left > 0 {
		if err := r.room(); err != nil {
			return err
		}
		step, n := r.number(64), r.number(63)
		if err := r.ok("a directory"); err != nil {
			return err
		}
		if step == 0 || uint64(dir)+step < step || n == 0 || n > left {
			return r.wrong("%d entries after directory %d", n, dir)
		}
		dir += InodeID(step)
		left -= n
		r.dirs = append(r.dirs, dirCount{dir, int64(n)}) //nolint:gosec // 63 bits
		if err := r.dirEntries(dir, n); err != nil {
			return err
		}
	}
	return nil
}

// dirEntries reads the entries of one directory.
func (r *imageReader) dirEntries(dir InodeID, count uint64) error {
	var last *inode
	for range count {
		n, err := r.inodeItem(dir)
		if err != nil {
			return err
		}
		if err := fspath.CheckName(n.nameString()); err != nil {
			return r.wrong("an entry of directory %d: %v", dir, err)
		}
		if last != nil && compareNames(last, n) >= 0 {
			return r.wrong("the entries of directory %d are not in order", dir)
		}
		last = n
		r.t.dentries.ReplaceOrInsert(n)
	}
	return nil
}

// inodeItem reads one inode and puts it into its page.
func (r *imageReader) inodeItem(parent InodeID) (*inode, error) {
	if err := r.room(); err != nil {
		return nil, err
	}
	var flags, nameLen uint8
	var id, mtime int64
	p := &r.prev
	r.u8(&flags)
	r.i64(&id)
	r.i64(&mtime)
	n := &inode{
		id: p.id + InodeID(id), parent: parent, mtime: p.mtime + mtime, //nolint:gosec // as bits
		mode: p.mode, user: p.user, group: p.group, typ: Type(flags & flagType),
	}
	if flags&flagSameOwner == 0 {
		r.u16(&n.mode)
		r.u16(&n.user)
		r.u16(&n.group)
	}
	r.u8(&nameLen)
	name := r.take(uint64(nameLen))
	n.nameLen = nameLen
	copy(n.name[:], name)
	if nameLen > inlineName && r.bad == "" {
		whole := string(name)
		n.ext = &ext{name: &whole}
	}
	r.prev = *n
	if err := r.ok("an inode"); err != nil {
		return nil, err
	}
	switch {
	case n.typ < TypeFile || n.typ > TypeSymlink || flags&^flagsAll != 0 ||
		(n.typ != TypeFile && flags&(flagBlocks|flagOpen|flagCut) != 0) || (n.typ == TypeDir) && flags&flagTail != 0 ||
		(n.typ == TypeSymlink && flags&flagTail == 0):
		return nil, r.wrong("inode %d has flags %#x, which do not go together", n.id, flags)
	case n.id == 0 || n.id >= r.t.nextInode:
		return nil, r.wrong("inode number %d is not below the next, %d", n.id, r.t.nextInode)
	case int(n.user) >= len(r.t.users.names) || int(n.group) >= len(r.t.groups.names) || n.mode&^modeBits != 0:
		return nil, r.wrong("inode %d has owner %d, group %d, mode %o", n.id, n.user, n.group, n.mode)
	}
	if flags&(flagBlocks|flagTail|flagOpen|flagCut) != 0 {
		if err := r.content(n, flags); err != nil {
			return nil, err
		}
	}
	return n, r.place(n)
}

// content reads blocks, tail and open state of a file, or a link's target.
func (r *imageReader) content(n *inode, flags uint8) error {
	if n.ext == nil {
		n.ext = new(ext)
	}
	x := n.ext
	if flags&flagBlocks != 0 {
		if err := r.blockList(n); err != nil {
			return err
		}
	}
	if flags&flagTail != 0 {
		b, err := r.text()
		if err != nil {
			return err
		}
		if len(b) == 0 {
			r.fail("an empty tail")
		}
		x.tail = copyTail(b)
		if err := r.room(); err != nil {
			return err
		}
		if x.n > math.MaxInt64-int64(len(x.tail)) {
			r.fail("a file that is too long")
		}
	}
	if flags&flagOpen != 0 {
		if err := r.openState(x); err != nil {
			return err
		}
		r.open = append(r.open, n.id)
	}
	r.t.countTail(n, 1)
	if flags&flagCut != 0 {
		if err := r.room(); err != nil {
			return err
		}
		if r.u64(&x.cut); x.cut == 0 || x.cut > r.t.txid {
			r.fail("a file that a record to come has shortened")
		}
	}
	return r.ok("the content of an inode")
}

// openState reads the open state of a file.
func (r *imageReader) openState(x *ext) error {
	if err := r.room(); err != nil {
		return err
	}
	g, o := new(grant), new(openState)
	r.u64(&g.epoch)
	r.raw((*[16]byte)(&g.token))
	r.i64(&g.since)
	var h Holder
	r.raw((*[16]byte)(&h.Session))
	r.i64(&h.PID)
	for _, s := range []*string{&h.User, &h.Client, &h.Host} {
		var err error
		if *s, err = r.string(); err != nil {
			return err
		}
	}
	r.i64(&h.TTL)
	r.i64(&o.lastOff)
	r.u32(&o.lastLen)
	r.sum32(&o.lastCRC)
	length := x.n + int64(len(x.tail))
	if g.epoch == 0 || g.epoch > r.t.txid || o.lastOff < 0 || o.lastOff > length || int64(o.lastLen) > length-o.lastOff {
		r.fail("an open file whose epoch or last append cannot be")
	}
	g.holder = r.t.shareHolder(h)
	o.grant = g
	x.open = o
	return nil
}

// blockList reads the blocks of a file.
func (r *imageReader) blockList(n *inode) error {
	count := r.number(63)
	if count == 0 {
		r.fail("an empty block list")
	}
	x := n.ext
	// The list grows with what is read, not with what is promised.
	x.blocks = make([]Block, 0, min(count, 1024))
	for range count {
		if err := r.room(); err != nil {
			return err
		}
		var b Block
		r.block(&b)
		if err := r.ok("a block list"); err != nil {
			return err
		}
		if b.Key.Seq == 0 || b.Used == 0 || b.Used > b.Stored || x.n > math.MaxInt64-int64(b.Used) {
			return r.wrong("inode %d has a block with %d bytes used of %d", n.id, b.Used, b.Stored)
		}
		x.n += int64(b.Used)
		x.blocks = append(x.blocks, b)
		r.keys = append(r.keys, b.Key)
		r.t.counts.StoredBytes += int64(b.Stored)
	}
	x.blocks = exactBlocks(x.blocks)
	return nil
}

// place puts an inode into its page.
func (r *imageReader) place(n *inode) error {
	num := uint64(n.id) >> pageBits
	if r.lastPage == nil || num != r.lastNum {
		p := r.pages[num]
		if p == nil {
			p = new(page)
			r.pages[num] = p
		}
		r.lastNum, r.lastPage = num, p
	}
	s := &r.lastPage[n.id&(1<<pageBits-1)]
	if *s != nil {
		return r.wrong("inode %d comes twice", n.id)
	}
	*s = n
	r.t.countType(n.typ, 1)
	return nil
}

// garbage reads the garbage blocks.
func (r *imageReader) garbage() error {
	if err := r.room(); err != nil {
		return err
	}
	t := r.t
	var last garbageItem
	for i := range r.number(63) {
		if err := r.room(); err != nil {
			return err
		}
		var step int64
		r.i64(&step)
		g := garbageItem{time: last.time + step}
		r.key(&g.key)
		r.u32(&g.stored)
		if err := r.ok("the garbage"); err != nil {
			return err
		}
		if (i > 0 && !lessGarbage(last, g)) || t.IsGarbage(g.key) || t.HasBlock(g.key) {
			return r.wrong("garbage block %d.%d comes twice, out of order, or is part of a file", g.key.Term, g.key.Seq)
		}
		t.addGarbage(StoredBlock{g.key, g.stored}, g.time)
		last = g
	}
	return r.ok("the garbage")
}

// sessions reads the results of calls.
func (r *imageReader) sessions() error {
	if err := r.room(); err != nil {
		return err
	}
	t := r.t
	var last SessionID
	for range r.number(63) {
		if err := r.room(); err != nil {
			return err
		}
		it := sessionItem{session: &session{gen: t.gen}}
		r.raw((*[16]byte)(&it.id))
		r.i64(&it.last)
		r.u64(&it.acked)
		seq := it.acked
		for range r.number(63) {
			if err := r.room(); err != nil {
				return err
			}
			var c callResult
			c.fields(&r.coder)
			if c.seq <= seq {
				r.fail("results out of order")
			}
			if r.bad != "" {
				break
			}
			seq = c.seq
			it.results = append(it.results, c)
		}
		if err := r.ok("the calls' results"); err != nil {
			return err
		}
		if compareSessions(last, it.id) >= 0 {
			return r.wrong("the sessions are not in order")
		}
		last = it.id
		t.sessions.ReplaceOrInsert(it)
		t.idle.ReplaceOrInsert(idleItem{bucket: it.last >> idleShift, id: it.id})
	}
	return r.ok("the calls' results")
}

// trailer compares what was counted, and checks that nothing follows.
func (r *imageReader) trailer() error {
	if err := r.room(); err != nil {
		return err
	}
	for i, have := range r.t.trailer() {
		if want := r.number(64); want != have {
			return r.wrong("count %d at the end is %d, but %d were read", i, want, have)
		}
	}
	if err := r.fill(1); err != nil {
		return err
	}
	if err := r.ok("the end"); err != nil {
		return err
	}
	if !r.end || len(r.buf) > 0 {
		return r.wrong("it has bytes after its end")
	}
	return r.finish()
}

// finish returns an error if there is more in the file.
func (r *imageReader) finish() error {
	var b [1]byte
	switch _, err := io.ReadFull(r.r, b[:]); {
	case err == nil:
		return r.wrong("the file has bytes after the image")
	case !errors.Is(err, io.EOF):
		return &ImageError{Offset: r.offset, Detail: "cannot read the end", Err: err}
	}
	return nil
}
