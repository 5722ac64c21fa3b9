package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
)

// view is the tree as a call sees it that wants to do op: it finds what a path
// leads to, knows what the caller may do there, and notes what the call looks at.
type view struct {
	*Tree
	c  *Call
	op string
}

// errorf is the error of a call about a path.
func (v view) errorf(kind fserror.Kind, path, format string, args ...any) *fserror.Error {
	return fserror.New(kind, v.op, path, format, args...)
}

// where is the path of an inode, for errors.
func (v view) where(n *inode) string {
	path, _ := v.Path(n.ID)
	return path
}

func (v view) look(what Change) { v.tracker.Look(v.c, what) }

// lookAttr notes that a call has looked at an inode's attributes, and whether it is dead.
func (v view) lookAttr(id InodeID) {
	v.look(Change{Kind: ChangeAttr, Inode: id})
	if lease := v.LeaseOf(id); lease != 0 {
		v.look(Change{Kind: ChangeLease, Inode: InodeID(lease)})
	}
}

// entry is lookup into n, noted.
func (v view) entry(dir InodeID, name string, n *inode) *inode {
	v.look(Change{Kind: ChangeName, Inode: dir, Name: name})
	if !v.slots.Read(v.slots.Named(dir, name), n) {
		return nil
	}
	if v.isDead(n) {
		v.lookAttr(n.ID)
		return nil
	}
	return n
}

// lookShown notes that a call has looked at all that stat shows of an inode.
func (v view) lookShown(n *inode) {
	v.lookAttr(n.ID)
	if n.Type == TypeDir {
		v.look(Change{Kind: ChangeEntries, Inode: n.ID})
	}
}
