package namespace

// OpActivate begins a reign.
type OpActivate struct {
	Term        uint64
	NamespaceID [16]byte // set in the first record of a namespace
	User, Group string   // the superuser and supergroup, owner of the root
	Nonce       [16]byte // tells it from a reign of that term in another history
}

func (*OpActivate) opType() uint8 { return 1 }

func (op *OpActivate) fields(c coder) {
	c.U64(&op.Term)
	c.id16(&op.NamespaceID)
	c.owner(&op.User, &op.Group)
	c.id16(&op.Nonce)
}

func (op *OpActivate) apply(t *Tree, e stamp) (Result, error) {
	first := t.term == 0
	switch {
	case op.Term <= t.term:
		return Result{}, misfitf("its term %d is not above %d", op.Term, t.term)
	case !first && op.NamespaceID != [16]byte{} && op.NamespaceID != t.namespace:
		return Result{}, misfitf("it is of another namespace, %x", op.NamespaceID)
	}
	if err := t.checkOwners(nil, "", "", op.User, op.Group); err != nil {
		return Result{}, err
	}
	if past := t.Reigns(); len(past) > 0 { // a new slice: clones have the old one
		t.reigns = past[max(0, len(past)+1-MaxReigns):]
	}
	t.term, t.nonce, t.topSeq = op.Term, op.Nonce, 0
	if op.User != "" {
		t.superUser = cloneString(op.User)
	}
	if op.Group != "" {
		t.superGroup = cloneString(op.Group)
	}
	if first {
		t.namespace = op.NamespaceID
		root := t.get(RootID).edit()
		root.user, root.group = t.users.add(op.User, t.gen), t.groups.add(op.Group, t.gen)
		root.mtime = e.Time
		t.replace(root)
		t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: RootID})
	}
	return Result{}, nil
}

func (*OpActivate) affects(a affected) affected { return a }
func (*OpActivate) events(n news) news          { return n }
