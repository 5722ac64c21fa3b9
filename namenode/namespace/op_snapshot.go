package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// OpSnapshot makes, renames or deletes a snapshot of a directory, says whether it may have any,
// or frees blocks of deleted ones.
type OpSnapshot struct {
	unseen

	snapshots.Change
}

func (op *OpSnapshot) fields(c coder) { op.Code(c.Coder) }

// findSnapshottable is find for a directory that is allowed to have snapshots.
func findSnapshottable(v view, r Ref) (place, error) {
	at, err := v.find(r)
	if err != nil {
		return at, err
	}
	n := at.node
	if v.look(snapshotChange(n.ID)); n.Type != TypeDir {
		return at, v.notDirectory(n, at.path)
	}
	if !v.snaps.IsAllowed(n.ID) {
		return at, v.errorf(fserror.Unsupported, at.path, "the directory is not allowed to have snapshots; a superuser may allow it").Because(fserror.ReasonNoSnapshots)
	}
	return at, nil
}

// findSnapshotted is findSnapshottable for who may change the snapshots of the directory.
func findSnapshotted(v view, r Ref) (place, error) {
	at, err := findSnapshottable(v, r)
	if err == nil && !v.c.IsSuper() && !v.isOwner(at.node) {
		err = v.errorf(fserror.Permission, at.path, "user %s does not own the directory (owner %s), and may not change its snapshots", v.c.User, v.UserNames.Name(at.node.User)).Because(calls.NotOwner)
	}
	return at, err
}

// findSnapshot is findSnapshotted, with a snapshot of a name.
func findSnapshot(v view, r Ref, name string) (at place, s *snapshots.Snapshot, err error) {
	if at, err = findSnapshotted(v, r); err == nil {
		if s = v.snaps.Named(at.node.ID, name); s == nil {
			err = v.errorf(fserror.NotFound, at.path, "the directory has no snapshot %q", name)
		}
	}
	return at, s, err
}

// PlanAllowSnapshots checks that a directory is allowed to have snapshots, or no longer, which
// is for superusers. Both results are nil if it is so already. Errors: NotFound, NotDirectory,
// Permission, Exists (an entry .snapshot), NotEmpty (it has snapshots), NoSpace (so many are
// allowed that no more can be), ReadOnly (below a snapshot).
func PlanAllowSnapshots(t *Tree, c *Call, r Ref, allow bool) (*OpSnapshot, error) {
	v := view{t, c, "snapshot allow"}
	at, err := v.find(r)
	if err != nil {
		return nil, err
	}
	n := at.node
	v.look(snapshotChange(n.ID))
	op := &OpSnapshot{Change: snapshots.Change{Do: snapshots.Allow, Dir: n.ID}}
	if !allow {
		op.Do = snapshots.Disallow
	}
	switch {
	case n.Type != TypeDir:
		return nil, v.notDirectory(n, at.path)
	case !c.IsSuper():
		return nil, v.errorf(fserror.Permission, at.path, "user %s is not a superuser, so it cannot say which directories have snapshots", c.User).Because(fserror.ReasonNotSuperuser)
	case t.snaps.IsAllowed(n.ID) == allow:
		return nil, nil
	}
	return op, fserror.With(maySnapshot(t, op), v.op, at.path)
}

// PlanSnapshot checks that a snapshot of a directory is made, which is for its owner and
// superusers. Result.Inode is the number of what it shows. Errors: NotFound, NotDirectory,
// Permission, Unsupported (not allowed to have any), InvalidPath and NameTooLong (the name),
// Exists, NoSpace (a limit, which it names), InvalidArgument (the directory, or one above it, is
// attached to a granted lease), ReadOnly (below a snapshot).
func PlanSnapshot(t *Tree, c *Call, r Ref, name string) (*OpSnapshot, error) {
	v := view{t, c, "snapshot"}
	at, err := findSnapshotted(v, r)
	if err != nil {
		return nil, err
	}
	op := &OpSnapshot{Change: snapshots.Change{Do: snapshots.Make, Dir: at.node.ID, Name: name}}
	return op, fserror.With(maySnapshot(t, op), v.op, at.path)
}

// PlanRenameSnapshot checks that a snapshot gets another name. Both results are nil if it has
// that. Errors: as of PlanSnapshot, and NotFound for the snapshot.
func PlanRenameSnapshot(t *Tree, c *Call, r Ref, from, to string) (*OpSnapshot, error) {
	v := view{t, c, "snapshot rename"}
	at, s, err := findSnapshot(v, r, from)
	if err != nil || from == to {
		return nil, err
	}
	op := &OpSnapshot{Change: snapshots.Change{Do: snapshots.Rename, ID: s.ID, Name: to}}
	return op, fserror.With(maySnapshot(t, op), v.op, at.path)
}

// PlanDeleteSnapshot checks that a snapshot is deleted. Errors: as of PlanRenameSnapshot.
func PlanDeleteSnapshot(t *Tree, c *Call, r Ref, name string) (*OpSnapshot, error) {
	v := view{t, c, "snapshot delete"}
	_, s, err := findSnapshot(v, r, name)
	if err != nil {
		return nil, err
	}
	return &OpSnapshot{Change: snapshots.Change{Do: snapshots.Delete, ID: s.ID}}, nil
}

// maySnapshot says why a record about snapshots does not fit.
func maySnapshot(t *Tree, op *OpSnapshot) error {
	dir := t.get(op.Dir)
	return t.snaps.May(&op.Change, snapshots.Where{
		Dir: dir != nil && dir.Type == TypeDir && t.reachable(dir, nil), Taken: t.named(op.Dir, snapshots.DirName) != nil, Leased: t.leasedAbove(dir),
	})
}

func (op *OpSnapshot) apply(t applier) (r Result, err error) {
	if err := maySnapshot(t.Tree, op); err != nil {
		return r, err
	}
	in := t.in()
	s := t.snaps.Apply(&op.Change, t.now.Time, t.nextInode, &in, t.forget)
	t.slots = in.Inodes // it shares what it has with a snapshot from now on
	if op.Do == snapshots.Make || op.Do == snapshots.Rename {
		r.Inode = s.Number()
	}
	for _, id := range op.Touches(s) {
		t.touch(Change{Kind: ChangeAttr, Inode: id})
	}
	return r, nil
}

func (op *OpSnapshot) affects(a affected) affected { return a.attr(op.Shown()) }

// leasedAbove reports whether a directory, or one above it, is attached to a granted lease.
func (t *inodes) leasedAbove(dir *inode) (is bool) {
	t.reachable(dir, func(id InodeID) { is = is || t.LeaseOf(id) != 0 })
	return is
}

// keepsSnapshots returns an error of kind NotEmpty if a directory, or one below it, has
// snapshots, which nobody could reach any more without it.
func keepsSnapshots(v view, n *inode) (err error) {
	if n == nil || n.Type != TypeDir {
		return nil
	}
	if dir, has := v.snaps.Below(&v.slots, n); has {
		path, _ := v.Path(dir)
		if v.requireSearch(v.get(dir), path) != nil {
			path = "a directory in it"
		}
		err = fserror.New(fserror.NotEmpty, "", "", "%s has snapshots; delete them first", path).Because(fserror.ReasonHasSnapshots)
	}
	return err
}

// leasesSnapshots is keepsSnapshots for what comes into a directory whose end a granted lease may
// be.
func leasesSnapshots(v view, n, dir *inode) error {
	if v.snaps.Len() == 0 || !v.leasedAbove(dir) {
		return nil
	}
	return keepsSnapshots(v, n)
}
