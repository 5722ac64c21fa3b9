package namespace

import (
	"crypto/subtle"
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// held is the error for a file that somebody has open for write. How long and
// until when is for the caller to fill in: it knows the leases.
func held(op, path string, n *inode) error {
	err := fserror.New(fserror.Held, op, path, "the file is open for write")
	err.Holder = n.Ext.Open.Grant.Holder.ForError()
	return err
}

// findWritable returns a file that the caller may write.
func (v view) findWritable(r Ref) (n *inode, path string, err error) {
	at, err := v.find(r)
	n, path = at.node, at.path
	switch {
	case err != nil:
		return nil, path, err
	case n.Type == TypeDir:
		return nil, path, isDirectory(v.op, path)
	case n.Type != TypeFile:
		return nil, path, v.errorf(fserror.InvalidArgument, path, "it is a symbolic link")
	}
	return n, path, v.require(n, mayWrite, path)
}

// CheckWriter returns nil if a writer still has its file. Else the error is of
// kind LeaseLost, with the reason and the new holder if there is one, or
// LeaseLostGone if the file is not in the tree any more.
func (t *Tree) CheckWriter(c *Call, w Writer) error {
	v := view{t, c, "write"}
	_, err := v.writable(w)
	return err
}

// writable returns the file of a current writer. A file that is open is in the
// tree: deleting it, or a directory above, closes it.
func (v view) writable(w Writer) (*inode, error) {
	n := v.get(w.Inode)
	v.lookAttr(w.Inode)
	if n != nil && n.Open() != nil {
		g := n.Ext.Open.Grant
		if g.Epoch == w.Epoch && subtle.ConstantTimeCompare(g.Token[:], w.Token[:]) == 1 {
			return n, nil
		}
	}
	if n == nil || !v.reachable(n, v.lookAttr) {
		err := v.errorf(fserror.LeaseLostGone, inodeName(w.Inode), "lease lost: the file was deleted or replaced")
		if l := v.deadWith(n); l != nil {
			err.Message = fmt.Sprintf("lease lost: the file was deleted with granted lease %x, which has ended", uint64(l.ID))
		}
		err.Reason = ReasonDeleted
		return nil, err
	}
	err := v.errorf(fserror.LeaseLost, v.where(n), "lease lost: the file was closed by recovery, or by its writer before")
	err.Reason = ReasonRecovered
	if n.Open() != nil && n.Ext.Open.Grant.Epoch == w.Epoch {
		err.Reason, err.Message = "", "the token is not the one that came with the epoch"
	} else if n.Open() != nil {
		calls.TakenOver(err, n.Ext.Open.Grant.Holder)
	}
	return nil, err
}

func (v view) notAtEnd(n *inode, offset int64) error {
	err := v.errorf(fserror.NotAtEnd, v.where(n), "offset %d is not the end of the file, which is at %d", offset, n.Length())
	err.Length = n.Length()
	return err
}

// tailRepeated reports whether data at offset are in the file already: as bytes
// of its tail, or as what was last appended.
func tailRepeated(n *inode, offset int64, data []byte) bool {
	return len(data) > 0 && (n.Open().Last.Was(offset, data) || n.Content().Has(offset, data))
}

// checkTail returns an error of kind TooLarge if more bytes make a tail larger
// than maxTail.
func (v view) checkTail(n *inode, more, maxTail int) error {
	tail := len(n.Tail())
	if tail+more <= maxTail {
		return nil
	}
	return v.errorf(fserror.TooLarge, v.where(n), "%d bytes after a tail of %d are over its limit of %d; commit a block first", more, tail, maxTail)
}

func noLonger(op, path string, n *inode) error {
	return fserror.New(fserror.Unsupported, op, path, "the file has %d bytes; truncate makes a file shorter, never longer", n.Length())
}
