package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
)

// OpQuota gives a directory a quota, or takes it if the limits are none.
type OpQuota struct {
	unseen

	Inode InodeID
	quota.Limits
}

func (op *OpQuota) fields(c coder) {
	c.inode(&op.Inode)
	op.Limits.Code(c.Coder)
}

// PlanQuota checks the setting of a directory's quota, which is for superusers. A limit that is
// quota.Keep stays as it is. The op is nil if nothing changes. Errors: NotFound, NotDirectory,
// Permission, InvalidArgument (a limit).
func PlanQuota(t *Tree, c *Call, r Ref, l quota.Limits) (*OpQuota, error) {
	v := view{t, c, "quota"}
	at, err := v.find(r)
	switch {
	case err != nil:
		return nil, err
	case at.node.Type != TypeDir:
		return nil, v.notDirectory(at.node, at.path)
	case !c.IsSuper():
		return nil, v.errorf(fserror.Permission, at.path, "user %s is no superuser, and may set no quota", c.User).Because(fserror.ReasonNotSuperuser)
	}
	e, _ := Quotas(t, c).Get(at.node.ID)
	if l = l.Over(e.Limits); !l.Good() {
		return nil, v.errorf(fserror.InvalidArgument, at.path, "a quota cannot be of %d names and %d bytes: each is 0 or more, or %d for none", l.Names, l.Bytes, quota.None)
	}
	if l == e.Limits {
		return nil, nil
	}
	return &OpQuota{Inode: at.node.ID, Limits: l}, nil
}

func (op *OpQuota) apply(t applier) (Result, error) {
	if _, err := t.reachableDir(op.Inode); err != nil {
		return Result{}, err
	}
	if !op.Good() {
		return Result{}, misfitf("%+v are no limits", op.Limits)
	}
	t.quotas.Set(&t.slots.Table, op.Inode, op.Limits)
	return Result{Inode: op.Inode}, nil
}

// quotaChange: some quota changes, or how much of it is used.
var quotaChange = Change{Kind: calls.ChangeQuota}

// Quotas are the quotas, to be looked at for a call.
func Quotas(t *Tree, c *Call) *quota.Table[node.Ext] {
	t.look(c, quotaChange)
	return &t.quotas
}

// QuotasAbove are the quota of a directory and those of the directories above it, the nearest
// first.
func QuotasAbove(t *Tree, c *Call, dir InodeID) []quota.Entry {
	return Quotas(t, c).Above(nil, &t.slots.Table, dir)
}

// FitQuotas returns an error if a planned record makes a quota grow beyond a limit, whether it
// was within it or not: NoSpace.
func FitQuotas(t *Tree, c *Call, op Op) error {
	if t.quotas.Len() == 0 {
		return nil
	}
	if k, is := op.(*OpTrash); is && k.Do == TrashKeep {
		op = k.Op
	}
	g := quota.Growth{Alone: true}
	_, deletes := op.(*OpDelete)
	r, renames := op.(*OpRename)
	if txn, is := op.(*OpTxn); is {
		g = txn.grows
	} else if !deletes && (!renames || t.quotas.Enters(&t.slots.Table, r.FromParent, r.ToParent)) { // else it never grows, and is long to count
		grows(t, op, &g)
	}
	if g.None() {
		return nil
	}
	return Quotas(t, c).Fits(g, func(dir InodeID) string {
		path, _ := t.Path(dir)
		return path
	})
}

// grows adds to g what a record, planned on the tree as it is now, adds to quotas: what moves comes
// last (quota.Growth.Alone). Where it only shortens files it adds nothing.
func grows(t *Tree, op Op, g *quota.Growth) {
	if t.quotas.Len() == 0 {
		return
	}
	moves := func(id, from, to InodeID) { t.quotas.Grows(&t.slots.Table, id, from, to, g) }
	add := func(dir InodeID, names int, bytes int64) {
		for _, e := range t.quotas.Above(nil, &t.slots.Table, dir) {
			g.Add(e, quota.Use{Names: int64(names), Bytes: bytes}, 1)
		}
	}
	// A dead entry gives its name up.
	clears := func(dir InodeID, name string) {
		if n := t.named(dir, name); n != nil && t.isDead(n) {
			moves(n.ID, dir, 0)
		}
	}
	lengthen := func(file InodeID, bytes int64) {
		if n := t.get(file); n != nil {
			add(n.Parent, 0, bytes)
		}
	}
	switch p := op.(type) {
	case *OpMkdir:
		add(p.Parent, len(p.Names), 0)
		clears(p.Parent, p.Names[0])
	case *OpSymlink:
		add(p.Parent, len(p.Dirs)+1, 0)
		clears(p.Parent, top(p.Dirs, p.Name))
	case *OpCreateAs:
		grows(t, &p.OpCreate, g)
	case *OpCreate:
		add(p.Parent, len(p.Dirs)+1, int64(len(p.Data)))
		moves(p.Replace, p.Parent, 0)
		clears(p.Parent, top(p.Dirs, p.Name))
	case *OpRename:
		moves(p.Replace, p.ToParent, 0)
		clears(p.ToParent, p.ToName)
		moves(t.slots.Named(p.FromParent, p.FromName), p.FromParent, p.ToParent)
	case *OpHide:
		clears(p.Parent, p.Hidden)
		moves(t.slots.Named(p.FromParent, p.FromName), p.FromParent, p.Parent)
	case *OpDelete:
		moves(p.Inode, p.Parent, 0)
	case *OpTrash:
		if p.Do == TrashRestore {
			clears(p.Parent, p.Name)
			moves(p.Inodes[0], 0, p.Parent)
		}
	case *OpConcat:
		for _, id := range p.Sources {
			s := t.get(id)
			lengthen(p.Target, s.Length())
			moves(id, s.Parent, 0)
		}
	case *OpAppendTail:
		lengthen(p.Inode, int64(len(p.Data)))
	case *OpClose:
		lengthen(p.Inode, int64(len(p.Data)))
	case *OpCommit:
		if p.grows() {
			lengthen(p.Inode, int64(p.Block.Used)-p.TailCovered)
		}
	}
}
