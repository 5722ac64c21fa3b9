package namespace

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// OpGrant grants a lease with a time to live of its own.
type OpGrant struct {
	unseen

	ID    LeaseID
	TTL   int64 // milliseconds
	Owner Owner
}

func (op *OpGrant) fields(c coder) {
	c.lease(&op.ID)
	c.I64(&op.TTL)
	op.Owner.Code(c.Coder)
}

// PlanGrant checks a new lease. ttl is in milliseconds. Errors: Exists (the
// id), InvalidArgument (id or ttl cannot be), Retry (too many leases).
func PlanGrant(t *Tree, c *Call, id LeaseID, ttl int64, owner Owner) (*OpGrant, error) {
	const op = "lease grant"
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(id)})
	switch {
	case id == 0 || id > MaxLeaseID:
		return nil, fserror.New(fserror.InvalidArgument, op, "", "a lease's id is from 1 to %x, not %x", uint64(MaxLeaseID), uint64(id))
	case ttl <= 0 || ttl > tables.MaxLeaseTTL:
		return nil, fserror.New(fserror.InvalidArgument, op, "", "a time to live is from 1 ms to 365 days, not %d ms", ttl)
	case t.leases.Get(id) != nil:
		return nil, fserror.New(fserror.Exists, op, "", "there is a lease %x already; choose another id, or none", uint64(id))
	case t.leases.Len() >= MaxLeases:
		return nil, fserror.With(tables.TooMany("there are %d granted leases, the most there can be, ended ones that are still being removed included; try again in a moment, or revoke some", MaxLeases), op, "")
	}
	return &OpGrant{ID: id, TTL: ttl, Owner: owner}, nil
}

func (op *OpGrant) apply(t applier) (Result, error) {
	switch {
	case op.ID == 0 || op.ID > MaxLeaseID:
		return Result{}, misfitf("%d is no id of a lease", uint64(op.ID))
	case op.TTL <= 0 || op.TTL > tables.MaxLeaseTTL:
		return Result{}, misfitf("a lease cannot have a time to live of %d ms", op.TTL)
	case t.leases.Get(op.ID) != nil:
		return Result{}, misfitf("there is a lease %x already", uint64(op.ID))
	case t.leases.Len() >= MaxLeases:
		return Result{}, misfitf("there are %d leases already", MaxLeases)
	}
	l := &Lease{ID: op.ID, TTL: op.TTL, Since: t.now.Time, Owner: Owner{
		User: strings.Clone(op.Owner.User), Client: strings.Clone(op.Owner.Client), Host: strings.Clone(op.Owner.Host),
	}}
	t.leases.Grant(l)
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	return Result{Lease: op.ID, Granted: l}, nil
}
