package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// OpRename moves (FromParent, FromName) to (ToParent, ToName). If Replace is
// not 0 it is the inode there now, a file or an empty directory.
type OpRename struct {
	FromParent InodeID
	FromName   string
	ToParent   InodeID
	ToName     string
	Replace    InodeID
	Detach     bool // take the file from the granted lease that it is attached to
}

func (op *OpRename) fields(c coder) {
	c.entry(&op.FromParent, &op.FromName)
	c.entry(&op.ToParent, &op.ToName)
	c.inode(&op.Replace)
	c.Bool(&op.Detach)
}

// PlanRename checks a rename by the rules of rename(2): with overwrite a file may replace a file or link,
// a directory an empty directory. Both results are nil if both name the same
// inode. Errors: NotFound, Exists, NotEmpty, IsDirectory, NotDirectory,
// InvalidArgument (the root, or a directory into itself), Permission, Loop,
// NameTooLong (also of a path below a directory, as far as that is looked at).
func PlanRename(t *Tree, c *Call, from, to Ref, overwrite, detach bool) (*OpRename, error) {
	v := view{t, c, "rename"}
	src, err := v.find(from)
	if err != nil {
		return nil, err
	}
	dst, err := v.resolve(to)
	if err != nil {
		return nil, err
	}
	n, old := src.node, dst.node
	switch {
	case n.ID == RootID || (old != nil && old.ID == RootID):
		return nil, v.errorf(fserror.InvalidArgument, src.path, "the root directory can be neither renamed nor replaced")
	case old == nil && dst.rest != "":
		return nil, v.missing(dst)
	case old != nil && old.ID == n.ID:
		return nil, nil
	case n.Type == TypeDir && t.slots.IsBelow(dst.dir.ID, n.ID):
		return nil, v.errorf(fserror.InvalidArgument, src.path, "%s is inside it", dst.path)
	case old != nil && !overwrite:
		return nil, calls.Exists(v.op, dst.path, old.Type)
	case old != nil && old.Type == TypeDir && n.Type != TypeDir:
		return nil, isDirectory(v.op, dst.path)
	case old != nil && old.Type != TypeDir && n.Type == TypeDir:
		return nil, v.errorf(fserror.NotDirectory, dst.path, "not a directory: a directory cannot replace it")
	}
	if err := v.requireRemove(src.dir, n, src.path); err != nil {
		return nil, err
	}
	if n.Type == TypeDir && src.dir.ID != dst.dir.ID {
		// Its entry ".." changes: it must itself be writable (POSIX, Linux).
		if err := v.require(n, mayWrite, src.path); err != nil {
			return nil, err
		}
	}
	if detach {
		if err := t.attachable(n.ID); err != nil {
			return nil, v.errorf(fserror.NotFound, src.path, "%v, it is being deleted", err)
		}
	}
	if err := mayComeInto(v, dst, n, src.path); err != nil {
		return nil, err
	}
	if !detach {
		if err := v.checkRoom(t.LeaseOf(n.ID), dst.path, dst.dir.ID); err != nil {
			return nil, err
		}
	}
	o := &OpRename{FromParent: src.dir.ID, FromName: src.name, ToParent: dst.dir.ID, ToName: dst.name, Detach: detach}
	if old == nil {
		if _, _, err := v.planNew(dst, false); err != nil {
			return nil, err
		}
		return o, nil
	}
	o.Replace = old.ID
	if err := v.requireRemove(dst.dir, old, dst.path); err != nil {
		return nil, err
	}
	if old.Type == TypeDir {
		v.lookShown(old)
		if old.Entries() > 0 {
			return nil, v.errorf(fserror.NotEmpty, dst.path, "the directory is not empty")
		}
	}
	if err := keepsSnapshots(v, old); err != nil {
		return nil, fserror.With(err, v.op, dst.path)
	}
	return o, nil
}

// mayComeInto checks that an inode may get a name in a directory with all that is below it. Where a
// lease may delete what comes, it takes what attaching it would. path is the inode's.
func mayComeInto(v view, at place, n *inode, path string) error {
	switch {
	case n.Type != TypeDir:
		return nil
	case n.Parent != at.dir.ID && !v.c.IsSuper() && v.inAttached(at.dir):
		if err := v.mayGoWhole(n, path); err != nil {
			return err
		}
	}
	if v.deepens(n, at) {
		return fspath.TooLong(v.op, at.path, "the path of something in it")
	}
	return fserror.With(leasesSnapshots(v, n, at.dir), v.op, path)
}

func (op *OpRename) apply(t applier) (Result, error) {
	n := t.lookup(op.FromParent, op.FromName)
	if n == nil {
		return Result{}, misfitf("directory %d has no entry %q", op.FromParent, op.FromName)
	}
	if _, err := t.reachableDir(op.FromParent); err != nil {
		return Result{}, err
	}
	to, err := t.reachableDir(op.ToParent)
	if err != nil {
		return Result{}, err
	}
	if err := fspath.CheckName(op.ToName); err != nil {
		return Result{}, err
	}
	old, err := t.entry(op.ToParent, op.ToName, op.Replace)
	if err != nil {
		return Result{}, err
	}
	if old != nil && old.ID == n.ID {
		return Result{}, misfit("it renames an inode to the name that it has")
	}
	if old != nil && ((old.Type == TypeDir) != (n.Type == TypeDir) || old.Type == TypeDir && old.Entries() > 0) {
		return Result{}, misfitf("inode %d cannot replace inode %d", n.ID, old.ID)
	}
	if op.Detach {
		if err := t.attachable(n.ID); err != nil {
			return Result{}, err
		}
	}
	if err := cmp.Or(leasesSnapshots(view{Tree: t.Tree}, n, to), keepsSnapshots(view{Tree: t.Tree}, old)); err != nil {
		return Result{}, err
	}
	if n.Type == TypeDir && t.slots.IsBelow(to.ID, n.ID) {
		return Result{}, misfitf("directory %d would be inside itself", n.ID)
	}

	if op.Detach {
		t.unattach(n)
	}
	t.slots.UnlinkInode(n)
	var closed []ClosedFile
	if old != nil {
		closed = t.takeOut(old, ReasonReplaced)
	}
	r := t.move(n, op.ToParent, op.ToName, delta(old == nil))
	r.Closed = closed
	return r, nil
}

func (op *OpRename) takes() InodeID { return op.Replace }

func (op *OpRename) grows(g growing) {
	g.Loses(op.Replace, op.ToParent)
	g.Clears(op.ToParent, op.ToName)
	g.Moves(g.Slots.Find(op.FromParent, op.FromName), op.FromParent, op.ToParent)
}

func (op *OpRename) affects(a affected) affected {
	return a.moved(op.FromParent, op.FromName).entry(op.ToParent, op.ToName).attr(op.Replace)
}

func (op *OpRename) events(n news) news {
	return n.gone(op.Replace).taken(op.ToParent, op.ToName).moved(op.FromParent, op.FromName, op.Detach)
}
