package namespace

import (
	"hash/crc32"
	"math"
	"slices"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileResult is the result of a record about one file.
func fileResult(n *inode) Result {
	return Result{Inode: n.id, Length: n.length(), BlocksLength: n.blocksLength()}
}

// store puts a changed file in the place of the old one.
func (t *Tree) store(n *inode, e *Entry) {
	n.dropEmptyExt()
	t.replace(n)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
}

// shut closes the copy n of an open file, gives its lists their exact size and
// stores it.
func (t *Tree) shut(n *inode, e *Entry) {
	x := n.ownExt()
	x.open = nil
	x.tail = exactTail(x.tail)
	x.blocks = exactBlocks(x.blocks)
	t.open.Delete(n.id)
	t.forgetAge(AgeKey{Inode: n.id})
	t.store(n, e)
}

// openFor returns an open file.
func (t *Tree) openForWrite(id InodeID) (*inode, error) {
	n, err := t.file(id)
	if err != nil {
		return nil, err
	}
	if n.open() == nil {
		return nil, misfitf("file %d is not open", id)
	}
	return n, nil
}

func (t *Tree) openForAppend(op *OpOpen, e *Entry) (Result, error) {
	n, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if !t.reachable(n, nil) {
		return Result{}, misfitf("file %d is deleted", n.id)
	}
	return t.opened(n, n.edit(), ReasonTakenOver, op.Holder, op.Token, e), nil
}

// opened opens next, a copy of n that is to take its place, for append; why is
// the reason for who had n open.
func (t *Tree) opened(n, next *inode, why string, h Holder, token Token, e *Entry) Result {
	var closed []ClosedFile
	if n.open() != nil {
		closed = []ClosedFile{closedFile(n, why)}
	}
	next.ownExt().open = &openState{grant: t.grant(h, token, e)}
	t.open.ReplaceOrInsert(next.id)
	t.forgetAge(AgeKey{Inode: next.id})
	t.store(next, e)
	r := fileResult(next)
	o := next.openFile()
	r.Opened, r.Closed = &o, closed
	return r
}

func (t *Tree) appendTail(op *OpAppendTail, e *Entry) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	switch {
	case len(op.Data) == 0:
		return Result{}, misfit("it brings no bytes")
	case op.Offset != n.length():
		return Result{}, misfitf("its offset %d is not the length %d", op.Offset, n.length())
	case int64(len(op.Data)) > math.MaxInt32:
		return Result{}, misfit("it brings too many bytes")
	case int64(len(op.Data)) > math.MaxInt64-n.length():
		return Result{}, misfitf("file %d would be too long", n.id)
	}
	n = n.edit()
	n.mtime = e.Time
	x := n.ownExt()
	x.tail = growTail(x.tail, op.Data)
	x.open = &openState{
		grant:   x.open.grant,
		lastOff: op.Offset,
		lastLen: uint32(len(op.Data)), //nolint:gosec // checked above
		lastCRC: crc32.Checksum(op.Data, castagnoli),
	}
	t.store(n, e)
	return fileResult(n), nil
}

// checkCommit says why a block cannot become part of a file, whoever asks.
func (t *Tree) checkCommit(n *inode, op *OpCommit) error {
	blocks := n.blocks()
	before, begin := int64(0), n.blocksLength()
	if op.ReplaceLast {
		if len(blocks) == 0 {
			return misfitf("file %d has no block to replace", n.id)
		}
		before = int64(blocks[len(blocks)-1].Used)
		begin -= before
	}
	b, covered, tail := op.Block, op.TailCovered, int64(len(n.tail()))
	used := int64(b.Used)
	switch {
	case b.Key.Seq == 0:
		return misfit("the block has no key")
	case b.Used == 0 || b.Used > b.Stored:
		return misfitf("the block cannot have %d bytes of the file in %d stored", b.Used, b.Stored)
	case op.Offset != begin:
		return misfitf("its offset %d is not %d", op.Offset, begin)
	case covered < 0 || covered > tail:
		return misfitf("it covers %d bytes of a tail of %d", covered, tail)
	case used < before+covered:
		return misfitf("the block has %d bytes of the file, less than the %d that it takes the place of", used, before+covered)
	case used > before+covered && (op.ReplaceLast || covered < tail):
		return misfitf("the block's %d bytes would come between those of the tail", used)
	case used > before+covered && n.open() == nil:
		return misfitf("file %d is not open and the block makes it longer", n.id)
	case n.length() > math.MaxInt64-used:
		return misfitf("file %d would be too long", n.id)
	case t.HasBlock(b.Key):
		return misfitf("block %d.%d is part of a file", b.Key.Term, b.Key.Seq)
	case t.IsGarbage(b.Key):
		return misfitf("block %d.%d is garbage", b.Key.Term, b.Key.Seq)
	}
	return nil
}

func (t *Tree) commit(op *OpCommit, e *Entry) (Result, error) {
	old, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if err := t.checkCommit(old, op); err != nil {
		return Result{}, err
	}
	n := old.edit()
	x := n.ownExt()
	if op.ReplaceLast {
		last := len(x.blocks) - 1
		t.disownBlocks(x.blocks[last:], e.reigned)
		x.n -= int64(x.blocks[last].Used)
		x.blocks = x.blocks[:last:last]
	}
	x.blocks = append(x.blocks, op.Block)
	x.n += int64(op.Block.Used)
	x.tail = copyTail(x.tail[op.TailCovered:])
	t.ownBlock(op.Block)
	if op.Block.Key.Term == t.term {
		t.topSeq = max(t.topSeq, op.Block.Key.Seq)
	}
	if n.length() > old.length() {
		n.mtime = e.Time
	}
	t.store(n, e)
	return fileResult(n), nil
}

func (t *Tree) closeFile(op *OpClose, e *Entry) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if int64(len(op.Data)) > math.MaxInt64-n.length() {
		return Result{}, misfitf("file %d would be too long", n.id)
	}
	closed := []ClosedFile{closedFile(n, ReasonClosed)}
	n = n.edit()
	n.mtime = op.MTime
	if n.mtime == 0 {
		n.mtime = e.Time
	}
	if len(op.Data) > 0 {
		x := n.ownExt()
		tail := make([]byte, len(x.tail)+len(op.Data))
		copy(tail[copy(tail, x.tail):], op.Data)
		x.tail = tail
	}
	t.shut(n, e)
	r := fileResult(n)
	r.Closed = closed
	return r, nil
}

func (t *Tree) recover(op *OpRecover, e *Entry) (Result, error) {
	n, err := t.openForWrite(op.Inode)
	if err != nil {
		return Result{}, err
	}
	closed := []ClosedFile{closedFile(n, ReasonRecovered)}
	n = n.edit()
	t.shut(n, e)
	r := fileResult(n)
	r.Closed = closed
	return r, nil
}

func (t *Tree) truncate(op *OpTruncate, e *Entry) (Result, error) {
	n, err := t.file(op.Inode)
	switch {
	case err != nil:
		return Result{}, err
	case n.open() != nil:
		return Result{}, misfitf("file %d is open", n.id)
	}
	if n, err = t.shortened(n, op.Length, e); err != nil {
		return Result{}, err
	}
	t.store(n, e)
	return fileResult(n), nil
}

// shortened returns a copy of a file, cut to length bytes, to be stored.
func (t *Tree) shortened(n *inode, length int64, e *Entry) (*inode, error) {
	if length < 0 || length > n.length() {
		return nil, misfitf("length %d is not within the file's %d bytes", length, n.length())
	}
	if length == n.length() {
		n = n.edit()
		n.mtime = e.Time
		return n, nil
	}
	n = n.edit()
	n.mtime = e.Time
	x := n.ownExt()
	x.cut = e.TxID
	if length >= x.n {
		x.tail = copyTail(x.tail[:length-x.n])
	} else {
		x.tail = nil
		t.cutBlocks(x, length, e)
	}
	return n, nil
}

// cut shortens a file and opens it.
func (t *Tree) cut(op *OpCut, e *Entry) (Result, error) {
	n, err := t.file(op.Inode)
	switch {
	case err != nil:
		return Result{}, err
	case !t.reachable(n, nil):
		return Result{}, misfitf("file %d is deleted", n.id)
	}
	short := n
	if op.Length != n.length() {
		if short, err = t.shortened(n, op.Length, e); err != nil {
			return Result{}, err
		}
	}
	why := ReasonTakenOver
	if n.open() != nil && n.ext.open.grant.holder.Session == op.Holder.Session {
		why = ReasonClosed // by the same, who continues under a new epoch
	}
	return t.opened(n, short.edit(), why, op.Holder, op.Token, e), nil
}

// cutBlocks shortens a block list to length bytes, which is less than it has.
func (t *Tree) cutBlocks(x *ext, length int64, e *Entry) {
	keep, begin := len(x.blocks), x.n
	for keep > 0 && begin-int64(x.blocks[keep-1].Used) >= length {
		keep--
		begin -= int64(x.blocks[keep].Used)
	}
	t.disownBlocks(x.blocks[keep:], e.reigned)
	if begin > length {
		// The last block is in part above the length: a list of its own, since
		// the old one must keep what it says.
		last := x.blocks[keep-1]
		last.Used -= uint32(begin - length) //nolint:gosec // less than Used
		x.blocks = append(x.blocks[:keep-1:keep-1], last)
	} else {
		x.blocks = slices.Clone(x.blocks[:keep])
	}
	x.n = length
}

// concatFiles returns the target and the sources of a concat, checked.
func (t *Tree) concatFiles(op *OpConcat) (files []*inode, err error) {
	seen := make(map[InodeID]bool, len(op.Sources)+1)
	for _, id := range append([]InodeID{op.Target}, op.Sources...) {
		n, err := t.file(id)
		switch {
		case err != nil:
			return nil, err
		case n.open() != nil:
			return nil, misfitf("file %d is open", id)
		case seen[id]:
			return nil, misfitf("file %d comes twice", id)
		case !t.reachable(n, nil):
			return nil, misfitf("file %d is deleted", id)
		}
		seen[id] = true
		files = append(files, n)
	}
	if len(files) == 1 {
		return nil, misfit("it has no sources")
	}
	return files, nil
}

// tailsToSeal returns the files, of those to be joined in this order, whose
// tails would come before other bytes.
func tailsToSeal(files []*inode) (ids []InodeID) {
	last := len(files) - 1
	for last > 0 && files[last].length() == 0 {
		last--
	}
	for _, n := range files[:last] {
		if len(n.tail()) > 0 {
			ids = append(ids, n.id)
		}
	}
	return ids
}

func (t *Tree) concat(op *OpConcat, e *Entry) (Result, error) {
	files, err := t.concatFiles(op)
	if err != nil {
		return Result{}, err
	}
	if ids := tailsToSeal(files); len(ids) > 0 {
		return Result{}, misfitf("file %d has a tail, which would come before other bytes", ids[0])
	}
	length := int64(0)
	for _, f := range files {
		if length > math.MaxInt64-f.length() {
			return Result{}, misfit("the whole would be too long")
		}
		length += f.length()
	}
	n := files[0].edit()
	n.mtime = e.Time
	x := n.ownExt()
	for _, s := range files[1:] {
		x.blocks = append(x.blocks, s.blocks()...)
		x.n += s.blocksLength()
		if tail := s.tail(); len(tail) > 0 {
			x.tail = exactTail(tail)
		}
		// The source goes without its blocks, which have a new owner.
		if s.ext != nil {
			bare := s.edit()
			y := bare.ownExt()
			y.blocks, y.tail, y.n = nil, nil, 0
			bare.dropEmptyExt()
			t.replace(bare)
			s = bare
		}
		t.unlink(s, e)
	}
	t.store(n, e)
	return fileResult(n), nil
}
