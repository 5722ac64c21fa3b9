package namespace

import (
	"crypto/subtle"
	"hash/crc32"
	"math"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Writer is what a writer shows with each call.
type Writer struct {
	Inode InodeID
	Epoch uint64
	Token Token
}

// held is the error for a file that somebody has open for write. How long and
// until when is for the caller to fill in: it knows the leases.
func held(op, path string, n *inode) error {
	err := fserror.New(fserror.Held, op, path, "the file is open for write")
	err.Holder = errorHolder(n.ext.open.grant.holder)
	return err
}

func errorHolder(h *Holder) *fserror.Holder {
	return &fserror.Holder{User: h.User, Client: h.Client, Host: h.Host, PID: h.PID}
}

// PlanOpen checks that a caller may open an existing file for append, and
// returns its attributes; Open of them says who has it now. Links are followed.
// Errors: NotFound, IsDirectory, Permission (write), Loop.
func (t *Tree) PlanOpen(c *Call, at Target) (Attr, error) {
	n, _, err := t.findWritable(c, "append", at)
	if err != nil {
		return Attr{}, err
	}
	return t.attr(n), nil
}

// findWritable returns a file that the caller may write.
func (t *Tree) findWritable(c *Call, op string, at Target) (n *inode, path string, err error) {
	n, path, err = t.aim(c, op, at, true)
	switch {
	case err != nil:
		return nil, path, err
	case n.typ == TypeDir:
		return nil, path, isDirectory(op, path)
	case n.typ != TypeFile: // by its number
		return nil, path, fserror.New(fserror.InvalidArgument, op, path, "it is a symbolic link")
	}
	return n, path, t.require(c, n, mayWrite, op, path)
}

// CheckWriter returns nil if a writer still has its file. Else the error is of
// kind LeaseLost, with the reason and the new holder if there is one, or
// LeaseLostGone if the file is not in the tree any more.
func (t *Tree) CheckWriter(c *Call, w Writer) error {
	_, err := t.writable(c, "write", w)
	return err
}

// writable returns the file of a current writer. A file that is open is in the
// tree: deleting it, or a directory above, closes it.
func (t *Tree) writable(c *Call, op string, w Writer) (*inode, error) {
	n := t.get(w.Inode)
	t.lookAttr(c, w.Inode)
	if n != nil && n.open() != nil {
		g := n.ext.open.grant
		if g.epoch == w.Epoch && subtle.ConstantTimeCompare(g.token[:], w.Token[:]) == 1 {
			return n, nil
		}
	}
	if n == nil || !t.reachable(n, func(n *inode) { t.lookAttr(c, n.id) }) {
		err := fserror.New(fserror.LeaseLostGone, op, inodeName(w.Inode), "lease lost: the file was deleted or replaced")
		err.Reason = ReasonDeleted
		return nil, err
	}
	path, _ := t.Path(n.id)
	err := fserror.New(fserror.LeaseLost, op, path, "lease lost: the file was closed by recovery, or by its writer before")
	err.Reason = ReasonRecovered
	if n.open() != nil {
		g := n.ext.open.grant
		err.Holder = errorHolder(g.holder)
		err.Reason = ReasonTakenOver
		err.Message = "lease lost: taken over by " + g.holder.Client + " (host " + g.holder.Host + ")"
		if g.epoch == w.Epoch {
			err.Holder, err.Reason, err.Message = nil, "", "the token is not the one that came with the epoch"
		}
	}
	return nil, err
}

func notAtEnd(op, path string, n *inode, offset int64) error {
	err := fserror.New(fserror.NotAtEnd, op, path, "offset %d is not the end of the file, which is at %d", offset, n.length())
	err.Length = n.length()
	return err
}

// tailRepeated reports whether data at offset are in the file already: as bytes
// of its tail, or as what was last appended.
func tailRepeated(n *inode, offset int64, data []byte) bool {
	if len(data) == 0 {
		return false
	}
	o := n.open()
	if o.lastLen != 0 && o.lastOff == offset && int64(o.lastLen) == int64(len(data)) && o.lastCRC == crc32.Checksum(data, castagnoli) {
		return true
	}
	return tailHas(n, offset, data)
}

// checkTail returns an error of kind TooLarge if more bytes make a tail larger
// than maxTail.
func (t *Tree) checkTail(op string, n *inode, more, maxTail int) error {
	tail := len(n.tail())
	if tail+more <= maxTail {
		return nil
	}
	path, _ := t.Path(n.id)
	return fserror.New(fserror.TooLarge, op, path, "%d bytes after a tail of %d are over its limit of %d; commit a block first", more, tail, maxTail)
}

// PlanAppendTail checks the appending of bytes at offset, the end of the file.
// A nil record without an error is a repetition of what was applied: nothing is
// to be done. The int64 is the file's length, in bytes, once the record is
// applied (or now, without one). Errors: LeaseLost, LeaseLostGone, NotAtEnd
// with the true length, TooLarge if the tail would have more than maxTail
// bytes (the writer commits a block first), InvalidArgument without data.
func (t *Tree) PlanAppendTail(c *Call, w Writer, offset int64, data []byte, maxTail int) (*OpAppendTail, int64, error) {
	const op = "write"
	n, err := t.writable(c, op, w)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case tailRepeated(n, offset, data):
		return nil, n.length(), nil
	case offset != n.length():
		path, _ := t.Path(n.id)
		return nil, n.length(), notAtEnd(op, path, n, offset)
	case len(data) == 0:
		path, _ := t.Path(n.id)
		return nil, n.length(), fserror.New(fserror.InvalidArgument, op, path, "no bytes to append")
	}
	if err := t.checkTail(op, n, len(data), maxTail); err != nil {
		return nil, n.length(), err
	}
	return &OpAppendTail{Inode: n.id, Offset: offset, Data: data}, offset + int64(len(data)), nil
}

// PlanCommit checks that a block may become part of a file: offset, where it
// begins, must be the end of the last block; its first tailCovered bytes are
// the tail's first, which tailCRC (CRC32C) proves; only what goes beyond the
// whole tail may be new. Both results are nil if this very block is there
// already. Errors: LeaseLost, LeaseLostGone, NotAtEnd (with the length of the
// blocks), InvalidArgument (the rest; also a key that is garbage or of another
// file).
func (t *Tree) PlanCommit(c *Call, w Writer, offset int64, b Block, tailCovered int64, tailCRC uint32) (*OpCommit, error) {
	const op = "write"
	n, err := t.writable(c, op, w)
	if err != nil {
		return nil, err
	}
	if blockAt(n, offset, b) {
		return nil, nil
	}
	if end := n.blocksLength(); offset != end {
		path, _ := t.Path(n.id)
		err := fserror.New(fserror.NotAtEnd, op, path, "a block at offset %d is not at the end of the blocks, which is at %d", offset, end)
		err.Length = end
		return nil, err
	}
	o := &OpCommit{Inode: n.id, Offset: offset, Block: b, TailCovered: tailCovered}
	if err := t.checkCommit(n, o); err != nil {
		path, _ := t.Path(n.id)
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the block was refused: %v", err)
	}
	if crc32.Checksum(n.tail()[:tailCovered], castagnoli) != tailCRC {
		path, _ := t.Path(n.id)
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the block's first %d bytes are not what was flushed at offset %d", tailCovered, offset)
	}
	return o, nil
}

// blockAt reports whether a file has this very block at this offset.
func blockAt(n *inode, offset int64, b Block) bool {
	begin := n.blocksLength()
	blocks := n.blocks()
	for i := len(blocks) - 1; i >= 0 && begin > offset; i-- {
		begin -= int64(blocks[i].Used)
		if begin == offset {
			return blocks[i] == b
		}
	}
	return false
}

// PlanMerge checks that a block which the namenode made of a file's first
// tailCovered tail bytes (and with replaceLast of its last block before them)
// may take their place; last is the last block as it was when that began (nil:
// none). It refuses with kind Retry if the file is gone or its blocks changed
// since. That the tail's bytes are still the same is seen only by their number:
// compare them with TailIs first, since a truncated file may have grown again.
func (t *Tree) PlanMerge(id InodeID, b Block, offset int64, tailCovered int64, replaceLast bool, last *Block) (*OpCommit, error) {
	const op = "seal"
	changed := func(why string) error {
		err := fserror.New(fserror.Retry, op, inodeName(id), "%s meanwhile", why)
		err.RetryAfter = retryMS * 1e6
		return err
	}
	n := t.get(id)
	if n == nil || n.typ != TypeFile || !t.reachable(n, nil) {
		return nil, changed("the file was deleted")
	}
	blocks := n.blocks()
	if (last == nil) != (len(blocks) == 0) || (last != nil && *last != blocks[len(blocks)-1]) {
		return nil, changed("its blocks changed")
	}
	if tailCovered > int64(len(n.tail())) {
		return nil, changed("its tail became shorter")
	}
	o := &OpCommit{Inode: id, Offset: offset, Block: b, TailCovered: tailCovered, ReplaceLast: replaceLast}
	if err := t.checkCommit(n, o); err != nil {
		return nil, changed(err.Error())
	}
	return o, nil
}

// KeepMTime is the modification time that stands for the one a file has.
const KeepMTime = math.MinInt64

// PlanClose checks the end of writing. data, if any, are last bytes for the
// tail at offset; they may be there already. length is the file's whole length
// as the writer believes, data included (-1: not given); mtime is for the file
// (Unix milliseconds; 0: now; KeepMTime: as it is, or now with data). Errors: as
// of PlanAppendTail.
func (t *Tree) PlanClose(c *Call, w Writer, offset int64, data []byte, length int64, mtime int64, maxTail int) (*OpClose, error) {
	const op = "close"
	n, err := t.writable(c, op, w)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		if offset+int64(len(data)) == n.length() && tailRepeated(n, offset, data) {
			data = nil
		} else if offset != n.length() {
			path, _ := t.Path(n.id)
			return nil, notAtEnd(op, path, n, offset)
		}
	}
	if length >= 0 && length != n.length()+int64(len(data)) {
		path, _ := t.Path(n.id)
		err := fserror.New(fserror.NotAtEnd, op, path, "the file has %d bytes, not %d as its writer believes", n.length()+int64(len(data)), length)
		err.Length = n.length()
		return nil, err
	}
	if len(data) > 0 {
		if err := t.checkTail(op, n, len(data), maxTail); err != nil {
			return nil, err
		}
	}
	if mtime == KeepMTime {
		mtime = 0
		if len(data) == 0 {
			mtime = n.mtime
		}
	}
	return &OpClose{Inode: n.id, Data: data, MTime: mtime}, nil
}

// PlanTruncate checks the shrinking of a closed file to length bytes. Links are
// followed. Both results are nil if it has that length. Errors: NotFound,
// IsDirectory, Permission (write), Held with the holder, InvalidArgument (a
// length below 0), Unsupported (a length above the file's).
func (t *Tree) PlanTruncate(c *Call, at Target, length int64) (*OpTruncate, error) {
	const op = "truncate"
	n, path, err := t.findWritable(c, op, at)
	switch {
	case err != nil:
		return nil, err
	case length < 0:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the length %d is below 0", length)
	case n.open() != nil:
		return nil, held(op, path, n)
	case length > n.length():
		return nil, noLonger(op, path, n)
	case length == n.length():
		return nil, nil
	}
	return &OpTruncate{Inode: n.id, Length: length}, nil
}

func noLonger(op, path string, n *inode) error {
	return fserror.New(fserror.Unsupported, op, path, "the file has %d bytes; truncate makes a file shorter, never longer", n.length())
}

// PlanCut checks that a caller, who may open a file for append, also may cut it
// to length bytes with that: see PlanOpen. Errors: InvalidArgument (a length
// below 0), Unsupported (a length above the file's).
func (t *Tree) PlanCut(a Attr, length int64, h Holder, token Token) (*OpCut, error) {
	const op = "truncate"
	n := t.get(a.ID)
	path, _ := t.Path(a.ID)
	switch {
	case length < 0:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the length %d is below 0", length)
	case length > n.length():
		return nil, noLonger(op, path, n)
	}
	return &OpCut{Inode: a.ID, Length: length, Holder: h, Token: token}, nil
}

// PlanConcat checks the joining of closed files: the bytes of the sources, 1 to
// MaxConcat, come after those of the target, in order, and the sources are
// deleted. A link as target is followed, one as source refused. It takes
// permission to write the target, to read and write the sources and to remove
// them. Errors: NotFound, IsDirectory, Permission, Held with the holder,
// InvalidArgument (too few, too many, or one twice). Tails that ConcatNeedsSeal
// lists must become blocks before the record fits.
func (t *Tree) PlanConcat(c *Call, target string, sources []string) (*OpConcat, error) {
	const op = "concat"
	switch {
	case len(sources) == 0:
		return nil, fserror.New(fserror.InvalidArgument, op, target, "no sources given")
	case len(sources) > MaxConcat:
		return nil, fserror.New(fserror.InvalidArgument, op, target, "%d sources are over the limit of %d", len(sources), MaxConcat)
	}
	n, _, err := t.findWritable(c, op, At(target))
	if err != nil {
		return nil, err
	}
	if n.open() != nil {
		return nil, held(op, target, n)
	}
	o := &OpConcat{Target: n.id}
	seen := map[InodeID]bool{n.id: true}
	for _, path := range sources {
		at, err := t.find(c, op, path, false)
		if err != nil {
			return nil, err
		}
		s := at.node
		switch {
		case s.typ == TypeDir:
			return nil, isDirectory(op, path)
		case s.typ == TypeSymlink:
			return nil, fserror.New(fserror.InvalidArgument, op, path, "it is a symbolic link; name the file itself")
		case seen[s.id]:
			return nil, fserror.New(fserror.InvalidArgument, op, path, "the file is named twice")
		}
		if err := t.require(c, s, mayRead|mayWrite, op, path); err != nil {
			return nil, err
		}
		if err := t.requireRemove(c, at.dir, s, op, path); err != nil {
			return nil, err
		}
		if s.open() != nil {
			return nil, held(op, path, s)
		}
		seen[s.id] = true
		o.Sources = append(o.Sources, s.id)
	}
	return o, nil
}

// ConcatNeedsSeal returns those files of a concat whose tails would come before
// other bytes: they must be made blocks first (PlanMerge).
func (t *Tree) ConcatNeedsSeal(op *OpConcat) []InodeID {
	files, err := t.concatFiles(op)
	if err != nil {
		return nil
	}
	return tailsToSeal(files)
}
