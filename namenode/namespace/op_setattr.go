package namespace

import (
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// OpSetAttr changes attributes; what is not Set stays.
type OpSetAttr struct {
	modest

	Inode       InodeID
	SetMode     bool
	Mode        uint16
	User, Group string // empty: unchanged
	SetMTime    bool
	MTime       int64
}

func (op *OpSetAttr) fields(c coder) {
	c.inode(&op.Inode)
	c.Bool(&op.SetMode)
	c.U16(&op.Mode)
	c.owner(&op.User, &op.Group)
	c.Bool(&op.SetMTime)
	c.I64(&op.MTime)
}

// PlanSetAttr checks a change of attributes; op.Inode is filled in. Mode and
// mtime are for the owner (an mtime of now also for who may write), the user
// for the superuser, the group for the owner if in it. As in POSIX, a change
// of group by the owner takes the set-id bits from a file, and set-group-id
// cannot be set for a group that the caller is not in. Both results are nil if
// there is nothing to change. Errors: NotFound, Permission, NoSpace (MaxOwners).
func PlanSetAttr(t *Tree, c *Call, r Ref, op OpSetAttr) (*OpSetAttr, error) {
	v := view{t, c, "setattr"}
	at, err := v.find(r)
	if err != nil {
		return nil, err
	}
	n, path := at.node, at.path
	op.Inode, op.Mode = n.ID, op.Mode&node.ModeBits
	if !op.SetMode && !op.SetMTime && op.User == "" && op.Group == "" {
		return nil, nil
	}
	if err := v.checkOwners(path, op.User, op.Group); err != nil {
		return nil, err
	}
	if c.IsSuper() {
		return &op, nil
	}
	owner := v.isOwner(n)
	denied := func(what string) error {
		return v.errorf(fserror.Permission, path, "user %s may not change its %s (owner %s)", c.User, what, t.UserNames.Name(n.User)).Because(calls.NotOwner)
	}
	switch {
	case op.SetMode && !owner:
		return nil, denied("mode")
	case op.SetMTime && !owner && (op.MTime != 0 || !v.allowed(n, mayWrite)):
		return nil, denied("mtime")
	case op.User != "" && (!owner || op.User != c.User):
		return nil, denied("owner")
	case op.Group != "" && !owner:
		return nil, denied("group")
	case op.Group != "" && op.Group != t.GroupNames.Name(n.Group) && !slices.Contains(c.Groups, op.Group):
		return nil, v.errorf(fserror.Permission, path, "user %s is not in group %s", c.User, op.Group).Because(calls.NotOwner)
	}
	if op.Group != "" && !op.SetMode && n.Type == TypeFile && n.Mode&setIDBits != 0 {
		op.SetMode, op.Mode = true, n.Perm()&^setIDBits
	}
	group := op.Group
	if group == "" {
		group = t.GroupNames.Name(n.Group)
	}
	if op.SetMode && n.Type == TypeFile && !slices.Contains(c.Groups, group) {
		op.Mode &^= setGIDBit
	}
	return &op, nil
}

func (op *OpSetAttr) apply(t applier) (Result, error) {
	n := t.get(op.Inode)
	if n == nil {
		return Result{}, misfitf("there is no inode %d", op.Inode)
	}
	if err := t.Fit(op.User, op.Group); err != nil {
		return Result{}, err
	}
	n = n.Edit()
	if op.SetMode {
		n.Mode = op.Mode&node.ModeBits | n.Mode&node.ACLBit // what is the mask of an ACL it says
	}
	if op.User != "" {
		n.User = t.UserNames.Add(op.User)
	}
	if op.Group != "" {
		n.Group = t.GroupNames.Add(op.Group)
	}
	if op.SetMTime {
		n.MTime = op.MTime
		if n.MTime == 0 {
			n.MTime = t.now.Time
		}
	}
	t.put(n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	return Result{Inode: n.ID, Length: n.Length(), BlocksLength: n.BlocksLength()}, nil
}

func (op *OpSetAttr) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpSetAttr) events(n news) news          { return n.after(EventAttr, op.Inode) }
