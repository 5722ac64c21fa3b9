package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// OpAttach attaches a file to a granted lease: it is deleted at its end.
type OpAttach struct {
	ID    LeaseID
	Inode InodeID
}

func (*OpAttach) opType() uint8 { return 23 }

func (op *OpAttach) fields(c coder) {
	c.lease(&op.ID)
	c.inode(&op.Inode)
}

// PlanAttach checks the attaching of a file to a lease, away from another one
// if need be. It takes permission to delete the file, which the end of the
// lease will do; and since it does so wherever the file is by then, and whoever
// may delete it there, the file must be the caller's, if that is no superuser. A
// nil record without an error: it is attached to it already.
// Errors: NotFound, IsDirectory, Permission, InvalidArgument (a link).
func PlanAttach(t *Tree, c *Call, id LeaseID, r Ref) (*OpAttach, error) {
	const op = "lease attach"
	if err := t.CheckLease(c, op, id); err != nil {
		return nil, fserror.With(err, op, r.Path)
	}
	n, path, err := t.leaseFile(c, op, r)
	if err != nil || t.leases.Of(n.id) == id {
		return nil, err
	}
	if !t.mayAttach(c, n) {
		return nil, fserror.New(fserror.Permission, op, path, "user %s does not own it (owner %s); only its owner, or a superuser, may have it deleted with a lease", c.User, t.users.Name(n.user))
	}
	return &OpAttach{ID: id, Inode: n.id}, nil
}

// mayAttach reports whether a caller may have a file deleted with a lease.
func (t *Tree) mayAttach(c *Call, n *inode) bool { return c.isSuper() || t.isOwner(c, n) }

// leaseFile returns a file that the caller may delete and whose lease, if it
// has one, has not ended.
func (t *Tree) leaseFile(c *Call, op string, r Ref) (n *inode, path string, err error) {
	at, err := t.find(c, op, r)
	if err != nil {
		return nil, "", err
	}
	n, path = at.node, at.path
	switch n.typ {
	case TypeDir:
		return nil, "", isDirectory(op, path)
	case TypeSymlink:
		return nil, "", fserror.New(fserror.InvalidArgument, op, path, "it is a symbolic link; name the file itself")
	}
	if err := t.requireRemove(c, at.dir, n, op, path); err != nil {
		return nil, "", err
	}
	if t.attachable(n.id) != nil {
		return nil, "", fserror.New(fserror.NotFound, op, path, "lease %x of the file has ended, it is being deleted", uint64(t.leases.Of(n.id)))
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
	t.attachTo(op.ID, n.id)
	t.touch(Change{Kind: ChangeAttr, Inode: n.id})
	r := fileResult(n)
	r.Lease = op.ID
	return r, nil
}

func (op *OpAttach) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpAttach) events(n news) news          { return n.after(EventLease, op.Inode) }
