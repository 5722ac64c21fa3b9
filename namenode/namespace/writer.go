package namespace

import (
	"crypto/subtle"
	"hash/crc32"

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

// findWritable returns a file that the caller may write.
func (t *Tree) findWritable(c *Call, op string, r Ref) (n *inode, path string, err error) {
	at, err := t.find(c, op, r)
	n, path = at.node, at.path
	switch {
	case err != nil:
		return nil, path, err
	case n.typ == TypeDir:
		return nil, path, isDirectory(op, path)
	case n.typ != TypeFile:
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

func noLonger(op, path string, n *inode) error {
	return fserror.New(fserror.Unsupported, op, path, "the file has %d bytes; truncate makes a file shorter, never longer", n.length())
}

// WriterOf returns the file that a record of its writer is about: bytes that it
// brings, or the close. Ask before the record is applied. The namenode's own records, a
// block that it makes of a tail among them, are no writer's; nor is the commit of a
// block that makes the file no longer, since the two look alike.
//
// Such a record is a renewal: live, the namenode renews the session when it applies
// the record; and the tree forgets the session's age, so that a namenode that takes
// over counts its limits from then.
func (t *Tree) WriterOf(op Op) (f OpenFile, ok bool) {
	if w, is := op.(interface{ written() InodeID }); is {
		return t.OpenFile(w.written())
	}
	return f, false
}
