package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// OpAttach attaches an inode to a granted lease: it is deleted at its end, a directory
// with all that is below it.
type OpAttach struct {
	modest

	ID    LeaseID
	Inode InodeID
}

func (op *OpAttach) fields(c coder) {
	c.lease(&op.ID)
	c.inode(&op.Inode)
}

// PlanAttach checks the attaching to a lease, away from another one if need be. The end of
// the lease will delete what is named, so it takes permission to delete that and, for a
// directory, everything that is below it now. Since the end deletes it wherever it is then,
// whoever may delete things there, only its owner or a superuser may attach it. A nil
// record without an error: it is attached to that lease already.
// Errors: NotFound, Permission, InvalidArgument (the root), NoSpace (too many
// directories), TooLarge (a directory with more below it than can be looked at).
func PlanAttach(t *Tree, c *Call, id LeaseID, r Ref) (*OpAttach, error) {
	v := view{t, c, "lease attach"}
	if err := v.checkLease(id); err != nil {
		return nil, fserror.With(err, v.op, r.Path)
	}
	n, path, err := v.attached(r)
	if err != nil || t.LeaseOf(n.ID) == id {
		return nil, err
	}
	if !v.mayAttach(n) {
		return nil, v.errorf(fserror.Permission, path, "user %s does not own it (owner %s); only its owner, or a superuser, may have it deleted with a lease", c.User, t.UserNames.Name(n.User)).Because(calls.NotOwner)
	}
	dirs := []InodeID{n.Parent}
	if n.Type == TypeDir {
		dirs = append(dirs, n.ID)
	}
	if err := v.checkRoom(id, path, dirs...); err != nil {
		return nil, err
	}
	if err := cmp.Or(v.mayGoWhole(n, path), fserror.With(keepsSnapshots(v, n), v.op, path)); err != nil {
		return nil, err
	}
	return &OpAttach{ID: id, Inode: n.ID}, nil
}

// maxAttachLook is how many inodes below a directory are looked at before it is attached.
const maxAttachLook = 10_000

// mayGoWhole checks that a caller could delete all that is below a directory now. Whoever
// makes something there later entrusts it to the lease.
func (v view) mayGoWhole(n *inode, path string) error {
	if n.Type != TypeDir {
		return nil
	}
	done, err := v.CanRemoveAll(v.c, n.ID, new(RemoveCheck), maxAttachLook)
	if err == nil && !done {
		err = v.errorf(fserror.TooLarge, path, "there are more than %d files below it, too many to check for permission to delete them; only a superuser may attach it", maxAttachLook)
	}
	return fserror.With(err, v.op, path)
}

// inAttached reports whether a directory, or one above it, is attached to a lease.
func (v view) inAttached(dir *inode) (is bool) {
	v.reachable(dir, func(id InodeID) {
		v.lookAttr(id)
		is = is || v.LeaseOf(id) != 0
	})
	return is
}

// mayAttach reports whether a caller may have an inode deleted with a lease.
func (v view) mayAttach(n *inode) bool { return v.c.IsSuper() || v.isOwner(n) }

// attached returns what r names if the caller may attach or detach it: the caller may
// delete it, and its lease, if it has one, has not ended.
func (v view) attached(r Ref) (n *inode, path string, err error) {
	at, err := v.find(r)
	if err != nil {
		return nil, "", err
	}
	n, path = at.node, at.path
	if n.ID == RootID {
		return nil, "", v.errorf(fserror.InvalidArgument, path, "the root directory is attached to no lease, and cannot be, since it cannot be deleted; name what is in it")
	}
	if err := v.requireRemove(at.dir, n, path); err != nil {
		return nil, "", err
	}
	if v.attachable(n.ID) != nil {
		return nil, "", v.errorf(fserror.NotFound, path, "lease %x of the file has ended, it is being deleted", uint64(v.LeaseOf(n.ID)))
	}
	return n, path, nil
}

func (op *OpAttach) apply(t applier) (Result, error) {
	n, err := t.entryInTree(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if _, err := t.liveLease(op.ID); err != nil {
		return Result{}, err
	}
	if err := cmp.Or(t.attachable(n.ID), keepsSnapshots(view{Tree: t.Tree}, n)); err != nil {
		return Result{}, err
	}
	t.attachTo(op.ID, n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	r := fileResult(n)
	r.Lease = op.ID
	return r, nil
}

// entryInTree returns an inode that is in the tree, and not its root.
func (t applier) entryInTree(id InodeID) (*inode, error) {
	n := t.get(id)
	switch {
	case n == nil:
		return nil, misfitf("there is no inode %d", id)
	case n.Parent == 0 || !t.reachable(n, nil):
		return nil, misfitf("inode %d is the root, or deleted", id)
	}
	return n, nil
}

func (op *OpAttach) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpAttach) events(n news) news          { return n.after(EventLease, op.Inode) }
