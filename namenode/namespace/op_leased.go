package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// PlanMkdirLeased is PlanMkdir for a directory that is attached to a lease. If it exists
// already that is an error, also with parents, unless it is attached to that lease.
// Errors: also those of PlanAttach.
func PlanMkdirLeased(t *Tree, c *Call, r Ref, mode uint16, parents bool, lease LeaseID) (*OpTxn, error) {
	v := view{t, c, "mkdir"}
	if err := v.checkLease(lease); err != nil {
		return nil, fserror.With(err, v.op, r.Path)
	}
	op, err := PlanMkdir(t, c, r, mode, parents)
	if err != nil {
		return nil, err
	}
	if op != nil {
		return v.planLeased(r, op, lease)
	}
	r.How |= FollowLast
	at, err := v.find(r)
	if err == nil && t.LeaseOf(at.node.ID) != lease {
		err = v.errorf(fserror.Exists, at.path, "the directory exists, and is not attached to lease %x; attach it, or choose another name", uint64(lease))
	}
	return nil, err
}

// PlanSymlinkLeased is PlanSymlink for a link that is attached to a lease. Errors: also
// those of PlanAttach.
func PlanSymlinkLeased(t *Tree, c *Call, r Ref, target string, parents bool, lease LeaseID) (*OpTxn, error) {
	r.How &^= FollowLast // the link is attached, and not what it leads to
	op, err := PlanSymlink(t, c, r, target, parents)
	if err != nil {
		return nil, err
	}
	return view{t, c, "symlink"}.planLeased(r, op, lease)
}

// planLeased makes one OpTxn of a record that makes something and one that attaches it.
func (v view) planLeased(r Ref, makes Op, lease LeaseID) (*OpTxn, error) {
	op, _, err := PlanTxn(v.Tree,
		func(*Tree) (Op, error) { return makes, nil },
		func(t *Tree) (Op, error) { return PlanAttach(t, v.c, lease, r) })
	if err != nil {
		return nil, fserror.Under(err, v.op, r.Path)
	}
	return op, nil
}
