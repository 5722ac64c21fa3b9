package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// OpMkdirLeased is an OpMkdir whose last directory is attached to a granted lease.
type OpMkdirLeased struct {
	OpMkdir
	Lease LeaseID
}

func (op *OpMkdirLeased) fields(c coder) {
	op.OpMkdir.fields(c)
	c.lease(&op.Lease)
}

// PlanMkdirLeased is PlanMkdir for a directory that is attached to a lease. One that is
// there already is an error with parents, too, unless it is attached to that lease.
// Errors: also NotFound, Permission (the lease), NoSpace (too many directories).
func PlanMkdirLeased(t *Tree, c *Call, r Ref, mode uint16, parents bool, lease LeaseID) (*OpMkdirLeased, error) {
	v := view{t, c, "mkdir"}
	if err := v.checkLease(lease); err != nil {
		return nil, fserror.With(err, v.op, r.Path)
	}
	op, err := PlanMkdir(t, c, r, mode, parents)
	if err != nil {
		return nil, err
	}
	if op == nil {
		r.How |= FollowLast
		at, err := v.find(r)
		if err == nil && t.leaseOf(at.node.id) != lease {
			err = v.errorf(fserror.Exists, at.path, "the directory exists, and is not attached to lease %x; attach it, or choose another name", uint64(lease))
		}
		return nil, err
	}
	if err := v.checkRoomOfNew(lease, op.Parent, len(op.Names), r.Path); err != nil {
		return nil, err
	}
	return &OpMkdirLeased{*op, lease}, nil
}

func (op *OpMkdirLeased) apply(t applier) (Result, error) {
	return t.leased(op.Lease, op.OpMkdir.apply)
}

// OpSymlinkLeased is an OpSymlink that is attached to a granted lease.
type OpSymlinkLeased struct {
	OpSymlink
	Lease LeaseID
}

func (op *OpSymlinkLeased) fields(c coder) {
	op.OpSymlink.fields(c)
	c.lease(&op.Lease)
}

// PlanSymlinkLeased is PlanSymlink for a link that is attached to a lease. Errors: also
// NotFound, Permission (the lease), NoSpace (too many directories).
func PlanSymlinkLeased(t *Tree, c *Call, r Ref, target string, parents bool, lease LeaseID) (*OpSymlinkLeased, error) {
	v := view{t, c, "symlink"}
	if err := v.checkLease(lease); err != nil {
		return nil, fserror.With(err, v.op, r.Path)
	}
	op, err := PlanSymlink(t, c, r, target, parents)
	if err != nil {
		return nil, err
	}
	if err := v.checkRoomOfNew(lease, op.Parent, len(op.Dirs)+1, r.Path); err != nil {
		return nil, err
	}
	return &OpSymlinkLeased{*op, lease}, nil
}

func (op *OpSymlinkLeased) apply(t applier) (Result, error) {
	return t.leased(op.Lease, op.OpSymlink.apply)
}

// leased attaches what a record makes, if its lease lives.
func (t applier) leased(id LeaseID, apply func(applier) (Result, error)) (Result, error) {
	if _, err := t.liveLease(id); err != nil {
		return Result{}, err
	}
	r, err := apply(t)
	if err == nil {
		t.attachTo(id, t.get(r.Inode))
	}
	return r, err
}
