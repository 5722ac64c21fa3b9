package namespace

import "strings"

// OpActivate begins a reign.
type OpActivate struct {
	unseen

	Term        uint64
	NamespaceID [16]byte // set in the first record of a namespace
	User, Group string   // the superuser and supergroup, owner of the root
	Nonce       [16]byte // tells it from a reign of that term in another history
}

func (op *OpActivate) fields(c coder) {
	c.U64(&op.Term)
	c.Raw(&op.NamespaceID)
	c.owner(&op.User, &op.Group)
	c.Raw(&op.Nonce)
}

func (op *OpActivate) apply(t applier) (Result, error) {
	first := t.reigns.Term == 0
	switch {
	case op.Term <= t.reigns.Term:
		return Result{}, misfitf("its term %d is not above %d", op.Term, t.reigns.Term)
	case !first && op.NamespaceID != [16]byte{} && op.NamespaceID != t.namespace:
		return Result{}, misfitf("it is of another namespace, %x", op.NamespaceID)
	}
	if err := t.Fit(op.User, op.Group); err != nil {
		return Result{}, err
	}
	t.reigns.Begin(op.Term, op.Nonce)
	if op.User != "" {
		t.superUser = strings.Clone(op.User)
	}
	if op.Group != "" {
		t.superGroup = strings.Clone(op.Group)
	}
	if first {
		t.namespace = op.NamespaceID
		root := t.get(RootID).Edit()
		root.User, root.Group = t.UserNames.Add(op.User), t.GroupNames.Add(op.Group)
		root.MTime = t.now.Time
		t.put(root)
		t.touch(Change{Kind: ChangeAttr, Inode: RootID})
	}
	return Result{}, nil
}
