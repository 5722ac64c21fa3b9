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
		return nil, v.errorf(fserror.Permission, at.path, "user %s is not a superuser, so it cannot set quotas", c.User).Because(fserror.ReasonNotSuperuser)
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
	g := quota.Growth{Alone: true}
	if grows(t, op, &g); g.None() {
		return nil
	}
	return Quotas(t, c).Fits(g, func(dir InodeID) string {
		path, _ := t.Path(dir)
		return path
	})
}

// growing is what operations tell of their growth (Op.grows).
type growing = quota.Growing[node.Ext]

// grows adds to sum what a record, planned on the tree as it is now, adds to quotas.
func grows(t *Tree, op Op, sum *quota.Growth) {
	if t.quotas.Len() > 0 {
		op.grows(growing{Quotas: &t.quotas, Slots: &t.slots.Table, Dead: t.Grants.IsDead, Sum: sum})
	}
}
