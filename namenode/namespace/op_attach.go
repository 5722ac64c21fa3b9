package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// OpAttach attaches a file to a granted lease: it is deleted at its end.
type OpAttach struct {
	ID    LeaseID
	Inode InodeID
}

func (op *OpAttach) fields(c coder) {
	c.lease(&op.ID)
	c.inode(&op.Inode)
}

// PlanAttach checks the attaching of a file to a lease, away from another one
// if need be. It takes permission to delete the file, which the end of the
// lease will do; and since it does so wherever the file is by then, and whoever
// may delete it there, the file must be the caller's, if that is no superuser. A
// nil record without an error: it is attached to it already.
// Errors: NotFound, IsDirectory, Permission, InvalidArgument (a link), NoSpace (too
// many directories).
func PlanAttach(t *Tree, c *Call, id LeaseID, r Ref) (*OpAttach, error) {
	v := view{t, c, "lease attach"}
	if err := v.checkLease(id); err != nil {
		return nil, fserror.With(err, v.op, r.Path)
	}
	n, path, err := v.leaseFile(r)
	if err != nil || t.leaseOf(n.id) == id {
		return nil, err
	}
	if !v.mayAttach(n) {
		return nil, v.errorf(fserror.Permission, path, "user %s does not own it (owner %s); only its owner, or a superuser, may have it deleted with a lease", c.User, t.users.Name(n.user))
	}
	if err := v.checkRoom(id, n.parent, path); err != nil {
		return nil, err
	}
	return &OpAttach{ID: id, Inode: n.id}, nil
}

// mayAttach reports whether a caller may have a file deleted with a lease.
func (v view) mayAttach(n *inode) bool { return v.c.IsSuper() || v.isOwner(n) }

// leaseFile returns a file that the caller may delete and whose lease, if it
// has one, has not ended.
func (v view) leaseFile(r Ref) (n *inode, path string, err error) {
	at, err := v.find(r)
	if err != nil {
		return nil, "", err
	}
	n, path = at.node, at.path
	switch n.typ {
	case TypeDir:
		return nil, "", isDirectory(v.op, path)
	case TypeSymlink:
		return nil, "", v.errorf(fserror.InvalidArgument, path, "it is a symbolic link; name the file itself")
	}
	if err := v.requireRemove(at.dir, n, path); err != nil {
		return nil, "", err
	}
	if v.attachable(n.id) != nil {
		return nil, "", v.errorf(fserror.NotFound, path, "lease %x of the file has ended, it is being deleted", uint64(v.leaseOf(n.id)))
	}
	return n, path, nil
}

func (op *OpAttach) apply(t applier) (Result, error) {
	n, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if !t.reachable(n, nil) {
		return Result{}, misfitf("file %d is deleted", n.id)
	}
	if _, err := t.liveLease(op.ID); err != nil {
		return Result{}, err
	}
	if err := t.attachable(n.id); err != nil {
		return Result{}, err
	}
	t.attachTo(op.ID, n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.id})
	r := fileResult(n)
	r.Lease = op.ID
	return r, nil
}

func (op *OpAttach) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpAttach) events(n news) news          { return n.after(EventLease, op.Inode) }
