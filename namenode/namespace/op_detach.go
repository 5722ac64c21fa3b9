package namespace

// OpDetach takes an inode from its granted lease.
type OpDetach struct {
	modest

	Inode InodeID
}

func (op *OpDetach) fields(c coder) { c.inode(&op.Inode) }

// PlanDetach checks the detaching of an inode from its lease. A nil record
// without an error: it is attached to none. Errors: NotFound,
// Permission, InvalidArgument (the root).
func PlanDetach(t *Tree, c *Call, r Ref) (*OpDetach, error) {
	v := view{t, c, "lease detach"}
	n, _, err := v.attached(r)
	if err != nil || t.LeaseOf(n.ID) == 0 {
		return nil, err
	}
	return &OpDetach{Inode: n.ID}, nil
}

func (op *OpDetach) apply(t applier) (Result, error) {
	n := t.get(op.Inode)
	if n == nil {
		return Result{}, misfitf("there is no inode %d", op.Inode)
	}
	if t.LeaseOf(n.ID) == 0 {
		return Result{}, misfitf("file %d is attached to no lease", n.ID)
	}
	if err := t.attachable(n.ID); err != nil {
		return Result{}, err
	}
	t.unattach(n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	return fileResult(n), nil
}

func (op *OpDetach) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpDetach) events(n news) news          { return n.after(EventLease, op.Inode) }
