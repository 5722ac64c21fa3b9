package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// OpHide takes the name (Parent, Name) from a file: it gets the name Hidden
// in the same directory and is attached to a granted lease. If FromParent is
// not 0 then (FromParent, FromName), no directory, gets the name that became
// free, as by OpRename.
type OpHide struct {
	sparing

	Parent     InodeID
	Name       string
	Inode      InodeID
	Hidden     string
	Lease      LeaseID
	FromParent InodeID
	FromName   string
	Detach     bool
}

func (op *OpHide) fields(c coder) {
	c.entry(&op.Parent, &op.Name)
	c.inode(&op.Inode)
	c.Text(&op.Hidden)
	c.lease(&op.Lease)
	c.entry(&op.FromParent, &op.FromName)
	c.Bool(&op.Detach)
}

// PlanHide makes of a checked rename or delete one that hides the file which it
// would delete; or returns op itself if that is not the inode of h, or not a file
// that the caller may attach to a lease. Errors:
// those of a bad name; Exists, NotFound (the lease), Permission (likewise).
func PlanHide(t *Tree, c *Call, op Op, h Hide) (Op, error) {
	v := view{t, c, "hide"}
	o := &OpHide{Inode: h.Inode, Hidden: h.Name, Lease: h.Lease}
	if h.Inode == 0 || op.takes() != h.Inode {
		return op, nil
	}
	switch p := op.(type) {
	case *OpRename:
		o.Parent, o.Name, o.FromParent, o.FromName, o.Detach = p.ToParent, p.ToName, p.FromParent, p.FromName, p.Detach
	case *OpDelete:
		o.Parent, o.Name = p.Parent, p.Name
	}
	n := t.get(h.Inode)
	path := v.where(n)
	if n.Type != TypeFile {
		return nil, v.errorf(fserror.InvalidArgument, path, "only a file can be hidden")
	}
	if !v.mayAttach(n) && c.SessionUser == "" { // a mount keeps what its users have open
		return op, nil
	}
	if err := cmp.Or(fspath.CheckName(h.Name), snapshots.CheckNames(h.Name)); err != nil {
		return nil, fserror.With(err, v.op, path)
	}
	if err := v.checkLease(h.Lease); err != nil {
		return nil, fserror.With(err, v.op, path)
	}
	if old := v.entry(o.Parent, h.Name, new(inode)); old != nil {
		return nil, calls.Exists(v.op, v.where(old), old.Type)
	}
	if t.attachable(n.ID) != nil {
		return nil, v.errorf(fserror.NotFound, path, "lease %x of the file has ended, it is being deleted", uint64(t.LeaseOf(n.ID)))
	}
	if err := v.checkRoom(h.Lease, path, o.Parent); err != nil {
		return nil, err
	}
	return o, nil
}

func (op *OpHide) apply(t applier) (Result, error) {
	if _, err := t.reachableDir(op.Parent); err != nil {
		return Result{}, err
	}
	n, err := t.entry(op.Parent, op.Name, op.Inode)
	if err != nil {
		return Result{}, err
	}
	switch {
	case n == nil || n.Type != TypeFile:
		return Result{}, misfitf("entry %q of directory %d is no file", op.Name, op.Parent)
	case t.lookup(op.Parent, op.Hidden) != nil:
		return Result{}, misfitf("directory %d has an entry %q already", op.Parent, op.Hidden)
	}
	if err := fspath.CheckName(op.Hidden); err != nil {
		return Result{}, err
	}
	if _, err := t.liveLease(op.Lease); err != nil {
		return Result{}, err
	}
	if err := t.attachable(n.ID); err != nil {
		return Result{}, err
	}
	var src *inode
	if op.FromParent != 0 {
		if _, err := t.reachableDir(op.FromParent); err != nil {
			return Result{}, err
		}
		src = t.lookup(op.FromParent, op.FromName)
		switch {
		case src == nil || src.ID == n.ID || src.Type == TypeDir:
			return Result{}, misfitf("entry %q of directory %d cannot replace inode %d", op.FromName, op.FromParent, n.ID)
		case op.Detach:
			if err := t.attachable(src.ID); err != nil {
				return Result{}, err
			}
		}
	}

	t.attachTo(op.Lease, n)
	t.slots.UnlinkInode(n)
	r := t.move(n, op.Parent, op.Hidden, 1)
	if src != nil {
		if op.Detach {
			t.unattach(src)
		}
		t.slots.UnlinkInode(src)
		t.move(src, op.Parent, op.Name, 1)
	}
	r.Flag = true
	return r, nil
}

func (op *OpHide) grows(g growing) {
	g.Clears(op.Parent, op.Hidden)
	g.Moves(g.Slots.Find(op.FromParent, op.FromName), op.FromParent, op.Parent)
}

func (op *OpHide) affects(a affected) affected {
	a = a.entry(op.Parent, op.Name).entry(op.Parent, op.Hidden).attr(op.Inode)
	return a.moved(op.FromParent, op.FromName)
}

func (op *OpHide) events(n news) news {
	n = n.taken(op.Parent, op.Hidden).moved(op.Parent, op.Name, false).moved(op.FromParent, op.FromName, op.Detach)
	return n.after(EventLease, op.Inode)
}
