package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// past is what a tree shows that is not the present: a snapshot of a directory, or, without
// one, the directory of its snapshots. Inodes have in it the numbers that they had.
type past struct {
	live *Tree
	dir  InodeID
	snap *snapshots.Snapshot
}

// in is the tree's part that a snapshot keeps.
func (t *inodes) in() snapshots.In {
	return snapshots.In{Inodes: t.slots, Xattrs: t.xattrs, ACLs: t.acls, Leases: t.Grants}
}

// present is the tree that is, of one that was.
func present(t *Tree) *Tree {
	if t.past != nil {
		return t.past.live
	}
	return t
}

// enter is the view of a snapshot of a directory, or of the directory of its snapshots. What a
// call sees there can be changed without a change of an inode: the answer is not to be kept.
func enter(v view, dir InodeID, s *snapshots.Snapshot) (view, *inode) {
	live := present(v.Tree)
	live.look(v.c, snapshotChange(dir))
	if v.c != nil {
		v.c.Collect, v.c.Looks = false, nil
	}
	t := *live
	t.frozen, t.tracker, t.past = true, calls.Tracker{}, &past{live, dir, s}
	id := dir
	if s != nil {
		t.slots, t.xattrs, t.acls, t.Grants = s.In.Inodes, s.In.Xattrs, s.In.ACLs, s.In.Leases
	}
	v.Tree = &t
	n := v.get(id)
	if s == nil {
		n.Mode &^= 0o222
	}
	return v, n
}

// isDead reports whether an inode is attached to a lease that has ended, or not in the snapshot.
func (t *Tree) isDead(n *inode) bool {
	if t.past != nil && t.past.snap != nil {
		return t.past.snap.Hides(n.ID)
	}
	return t.inodes.isDead(n)
}

// snapshotChange: what snapshots a directory has, or whether it may have any.
func snapshotChange(dir InodeID) Change {
	return Change{Kind: ChangeAttr, Inode: snapshots.ListID.Number(dir)}
}

// step is entry, into what is or was, and the view of what it leads to.
func step(v view, dir *inode, name string, n *inode) (view, *inode) {
	switch {
	case v.past != nil && v.past.snap == nil:
		if s := v.snaps.Named(v.past.dir, name); s != nil {
			return enter(v, s.Dir, s)
		}
		return v, nil
	case v.past == nil && name == snapshots.DirName:
		list, n := enter(v, dir.ID, nil)
		if v.snaps.IsAllowed(dir.ID) {
			return list, n
		}
	}
	return v, v.entry(dir.ID, name, n)
}

// up is the directory above one, in the view that has it; a directory without one is its own.
func up(v view, dir *inode) (view, *inode) {
	switch {
	case v.past == nil && dir.Parent == 0:
		return v, dir
	case v.past == nil || v.past.snap != nil && dir.ID != v.past.dir:
		return v, v.get(dir.Parent)
	case v.past.snap != nil:
		return enter(v, v.past.dir, nil)
	}
	v.Tree = v.past.live
	return v, v.get(dir.ID)
}

// requirePast is requireSearch of what was: all directories above it, as they were, and those
// above the directory of the snapshots, as they are.
func requirePast(v view, n *inode, path string) error {
	for {
		v, n = up(v, n)
		v.lookAttr(n.ID)
		if err := v.require(n, mayExecute, path); err != nil {
			return err
		}
		if v.past == nil {
			return v.requireSearch(n, path)
		}
	}
}

// reachPast is reach for a number in a snapshot, or of a directory of snapshots.
func reachPast(v view, id InodeID) (view, *inode, error) {
	snap, in := snapshots.Split(id)
	s, dir := v.snaps.Get(snap), in
	if s != nil {
		dir = s.Dir
	}
	w, n := v, (*inode)(nil)
	if s != nil && s.Has(in) || snap == snapshots.ListID && v.snaps.IsAllowed(dir) && v.reachable(v.get(dir), nil) {
		if w, n = enter(v, dir, s); s != nil {
			n = w.get(in)
		}
	}
	if n == nil {
		v.look(snapshotChange(0))
		err := v.errorf(fserror.NotFound, inodeName(id), "it was in a snapshot that is deleted, or never was")
		err.Reason = Gone
		return v, nil, err
	}
	return w, n, w.requireSearch(n, inodeName(id))
}

// changeless is the error of a change of what was.
func changeless(v view, path string) error {
	if v.past.snap == nil {
		return v.errorf(fserror.ReadOnly, path, "%s has the snapshots of the directory; these can be made, renamed and deleted, by the calls for that, and nothing else in it", snapshots.DirName)
	}
	return v.errorf(fserror.ReadOnly, path, "it is in a snapshot of %s, in which nothing changes", v.where(v.get(v.past.dir)))
}

// listPast is List of the directory of a directory's snapshots.
func listPast(v view, after string, limit int) (entries []Attr, next string) {
	list, next := v.snaps.List(v.past.dir, after, limit)
	for _, s := range list {
		in, n := enter(v, s.Dir, s)
		entries = append(entries, in.attr(n))
	}
	return entries, next
}

// shown makes attributes in the past those that callers see.
func (p *past) shown(a *Attr) {
	a.Lease, a.Open, a.Snapshots = 0, nil, false
	switch list := snapshots.ListID.Number(p.dir); {
	case p.snap == nil:
		a.ID, a.Parent, a.Name, a.Entries = list, a.ID, snapshots.DirName, p.live.snaps.Count(p.dir)
	case a.ID == p.dir:
		a.ID, a.Parent, a.Name = p.snap.Number(), list, p.snap.Name
	default:
		a.ID, a.Parent = p.snap.ID.Number(a.ID), p.snap.ID.Number(a.Parent)
	}
}

// Path returns where an inode is; false if it is neither in the tree nor in a snapshot.
func (t *Tree) Path(id InodeID) (string, bool) {
	snap, inode := snapshots.Split(id)
	p := past{present(t), inode, t.snaps.Get(snap)}
	switch {
	case p.snap != nil:
		p.dir = p.snap.Dir
	case snap == 0 && t.past == nil:
		return t.inodes.Path(id)
	case snap == 0:
		p = *t.past
	case snap != snapshots.ListID || !t.snaps.IsAllowed(inode):
		return "", false
	}
	dir, ok := p.live.inodes.Path(p.dir)
	path := fspath.Join(dir, snapshots.DirName)
	if p.snap == nil || !ok || !p.snap.Has(inode) {
		return path, ok && p.snap == nil
	}
	if path = fspath.Join(path, p.snap.Name); inode != p.dir {
		path = fspath.Join(path, p.snap.Path(inode))
	}
	return path, true
}

// Snapshots returns a directory's number and its snapshots, up to limit (0: DefaultList) whose
// names are greater than after, in the order of the bytes of their names. Unless that were all,
// next is the name after which to continue. It takes permission to read the directory. Errors:
// those of List, and Unsupported for a directory that is not allowed to have snapshots. What is
// returned is not to be changed.
func (t *Tree) Snapshots(c *Call, r Ref, after string, limit int) (dir InodeID, list []*snapshots.Snapshot, next string, err error) {
	v := view{t, c, "snapshots"}
	at, err := findSnapshottable(v, r)
	if err != nil {
		return 0, nil, "", err
	}
	if err := v.require(at.node, mayRead, at.path); err != nil {
		return 0, nil, "", err
	}
	list, next = t.snaps.List(at.node.ID, after, cmp.Or(max(limit, 0), DefaultList))
	return at.node.ID, list, next, nil
}

// SnapshotDiff lists what changed from one of a directory's snapshots to another one, in either
// order: see snapshots.Differ. One of the names may be empty: the directory as it is. Both may be
// read by who owns the directory, and by superusers. A limit of 0 is DefaultList. Errors: those of
// PlanRenameSnapshot.
func (t *Tree) SnapshotDiff(c *Call, r Ref, from, to string, start InodeID, limit int) (list []snapshots.Diff, next InodeID, err error) {
	var both [2]*snapshots.Snapshot
	dir := InodeID(0)
	for i, name := range [2]string{from, to} {
		if name == "" && from != to {
			continue
		}
		at, s, err := findSnapshot(view{t, c, "snapshot diff"}, r, name)
		if err != nil {
			return nil, 0, err
		}
		dir, both[i] = at.node.ID, s
	}
	is := &snapshots.Snapshot{Dir: dir, Next: t.nextInode, In: t.in()}
	list, next = snapshots.Differ(cmp.Or(both[0], is), cmp.Or(both[1], is), start, cmp.Or(max(limit, 0), DefaultList))
	return list, next, nil
}

// SnapshotsOf are the snapshots of the namespace, how much each holds, and the directories that may
// have some, to be looked at for a call, whatever it may see.
func SnapshotsOf(t *Tree, c *Call) *snapshots.Table {
	t.look(c, snapshotChange(0))
	return &t.snaps
}

// HeldBelow is, for each of some directories, how many bytes are in blocks that only snapshots of it,
// or of directories below it, have.
func HeldBelow(t *Tree, c *Call, dirs []InodeID) map[InodeID]int64 {
	return SnapshotsOf(t, c).HeldBelow(dirs, t.slots.Up)
}

// SnapshotMemory is about how many bytes of memory the namespace's snapshots take besides the
// tree. It takes time for all that changed since, and is meant for clones.
func (t *Tree) SnapshotMemory() int64 { return t.snaps.Memory(t.in()) }

// SnapshotTable are the snapshots of the namespace, to be read.
func (t *Tree) SnapshotTable() *snapshots.Table { return &t.snaps }
