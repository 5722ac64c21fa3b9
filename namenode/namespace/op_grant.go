package namespace

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
)

// OpGrant grants a lease with a time to live of its own.
type OpGrant struct {
	unseen

	ID    LeaseID
	TTL   int64 // milliseconds
	Owner Owner
}

// OpGrantNamed is OpGrant of a lease that has a name.
type OpGrantNamed struct {
	OpGrant

	Name string
}

func (op *OpGrant) fields(c coder) {
	c.lease(&op.ID)
	c.I64(&op.TTL)
	op.Owner.Code(c.Coder)
}

func (op *OpGrantNamed) fields(c coder) {
	op.OpGrant.fields(c)
	c.Text(&op.Name)
}

// PlanGrant checks a new lease: its id, time to live (in milliseconds), owner and name,
// which may be empty. Errors: Exists (the id or the name), InvalidArgument (one of them
// cannot be), Retry (too many leases).
func PlanGrant(t *Tree, c *Call, l Lease) (Op, error) {
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(l.ID)})
	if l.Name != "" {
		t.look(c, nameOf(l.Owner.User, l.Name))
	}
	if err := t.Grants.Choose(&l); err != nil {
		return nil, fserror.With(err, "lease grant", "")
	}
	op := OpGrant{ID: l.ID, TTL: l.TTL, Owner: l.Owner}
	if l.Name == "" {
		return &op, nil
	}
	return &OpGrantNamed{op, l.Name}, nil
}

func (op *OpGrant) apply(t applier) (Result, error) { return op.grant(t, "") }

func (op *OpGrantNamed) apply(t applier) (Result, error) { return op.grant(t, op.Name) }

func (op *OpGrant) grant(t applier, name string) (Result, error) {
	l := &Lease{ID: op.ID, TTL: op.TTL, Since: t.now.Time, Name: strings.Clone(name), Owner: op.Owner.Clone()}
	if err := t.Grants.MayGrant(l); err != nil {
		return Result{}, misfitf("%v", err)
	}
	t.Grants.Grant(l)
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	if name != "" {
		t.touch(nameOf(l.Owner.User, l.Name))
	}
	return Result{Lease: op.ID, Granted: l}, nil
}
