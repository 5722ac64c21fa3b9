package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// OpDelete takes an inode out of the tree. A directory is detached with all
// that is below it; files open below it are no longer open. OpReclaim gives
// the memory back afterwards.
type OpDelete struct {
	Parent InodeID
	Name   string
	Inode  InodeID
}

func (op *OpDelete) fields(c coder) {
	c.entry(&op.Parent, &op.Name)
	c.inode(&op.Inode)
}

// PlanDelete checks a delete. A directory with entries takes recursive; that its subtree may be emptied by a caller
// other than the superuser is for CanRemoveAll. If only is not 0 an inode of
// another type is refused (a link counts as a file). Errors: NotFound,
// NotEmpty, IsDirectory, NotDirectory, InvalidArgument (the root), Permission.
func PlanDelete(t *Tree, c *Call, r Ref, recursive bool, only Type) (*OpDelete, error) {
	v := view{t, c, "rm"}
	at, err := v.find(r)
	if err != nil {
		return nil, err
	}
	n, path := at.node, at.path
	switch {
	case n.ID == RootID:
		return nil, v.errorf(fserror.InvalidArgument, path, "the root directory cannot be deleted")
	case only == TypeDir && n.Type != TypeDir:
		return nil, v.errorf(fserror.NotDirectory, path, "not a directory")
	case only != 0 && only != TypeDir && n.Type == TypeDir:
		return nil, isDirectory(v.op, path)
	case only == TypeSymlink && n.Type != TypeSymlink:
		return nil, v.errorf(fserror.InvalidArgument, path, "not a symbolic link")
	}
	if err := v.requireRemove(at.dir, n, path); err != nil {
		return nil, err
	}
	if n.Type == TypeDir && !recursive {
		v.lookShown(n)
		if n.Entries() > 0 {
			return nil, v.errorf(fserror.NotEmpty, path, "the directory is not empty; delete it recursively to delete all that is in it")
		}
	}
	if err := keepsSnapshots(v, n); err != nil {
		return nil, fserror.With(err, v.op, path)
	}
	return &OpDelete{Parent: at.dir.ID, Name: at.name, Inode: n.ID}, nil
}

func (op *OpDelete) apply(t applier) (Result, error) {
	if _, err := t.reachableDir(op.Parent); err != nil {
		return Result{}, err
	}
	n, err := t.entry(op.Parent, op.Name, op.Inode)
	if err != nil {
		return Result{}, err
	}
	if n == nil {
		return Result{}, misfit("it names no inode")
	}
	if err := keepsSnapshots(view{Tree: t.Tree}, n); err != nil {
		return Result{}, err
	}
	return Result{Inode: n.ID, Closed: t.unlink(n)}, nil
}

func (op *OpDelete) takes() InodeID  { return op.Inode }
func (op *OpDelete) grows(g growing) { g.Moves(op.Inode, op.Parent, 0) }

func (op *OpDelete) affects(a affected) affected { return a.entry(op.Parent, op.Name).attr(op.Inode) }

func (op *OpDelete) events(n news) news {
	if dir := n.t.get(op.Inode); dir != nil && dir.Type == TypeDir {
		n = n.closed(n.t.openBelow(dir))
	}
	return n.gone(op.Inode)
}
