package namespace

// OpEnd ends a granted lease. Everything attached to it is dead from then on: it is
// no longer in the tree, though its memory is freed later, by OpReap.
type OpEnd struct {
	modest

	ID     LeaseID
	Reason string // LeaseExpired or LeaseRevoked
}

// endEvents is how many of a lease's inodes are reported to watchers with the record of its
// end. The rest are reported as they are removed.
const endEvents = 1000

func (op *OpEnd) fields(c coder) {
	c.lease(&op.ID)
	c.Text(&op.Reason)
}

// PlanEnd checks the end of a lease, why being LeaseRevoked or LeaseExpired.
// Errors: NotFound, Permission.
func PlanEnd(t *Tree, c *Call, id LeaseID, why string) (*OpEnd, error) {
	v := view{t, c, "lease revoke"}
	if err := v.checkLease(id); err != nil {
		return nil, err
	}
	return &OpEnd{ID: id, Reason: why}, nil
}

// Its time grows with the directories that it concerns and the files open for write.
func (op *OpEnd) apply(t applier) (Result, error) {
	l, err := t.liveLease(op.ID)
	if err != nil {
		return Result{}, err
	}
	r := Result{Lease: op.ID, LeaseEnded: true, LeaseOwner: l.Owner.User, Ended: l, Reason: op.Reason}
	for _, f := range t.openAttached(l) {
		r.Closed = append(r.Closed, closedFile(f, ReasonDeleted))
		t.shut(f.Edit())
	}
	for _, p := range t.Grants.Places(l) {
		if p.Entries > 0 {
			t.changeEntries(p.Dir, -p.Entries)
			t.touch(Change{Kind: ChangeEntries, Inode: p.Dir})
		}
	}
	t.Grants.EndLease(op.ID, t.now.TxID, true, endEvents)
	t.AgeTable.Forget(AgeKey{Lease: op.ID})
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	if l.Name != "" {
		t.touch(nameOf(l.Owner.User, l.Name))
	}
	return r, nil
}

func (op *OpEnd) affects(a affected) affected {
	l := a.t.Grants.Get(op.ID)
	if l == nil {
		return a
	}
	a.changes = append(a.changes, Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	for _, p := range a.t.Grants.Places(l) {
		if p.Entries > 0 {
			a.changes = append(a.changes, Change{Kind: ChangeEntries, Inode: p.Dir})
		}
		if p.Attached {
			a = a.attr(p.Dir)
		}
	}
	return a
}

func (op *OpEnd) events(n news) news {
	l := n.t.Grants.Get(op.ID)
	if l == nil {
		return n
	}
	n = n.closed(n.t.openAttached(l))
	for _, id := range n.t.Grants.Files(l, 0, endEvents) {
		if !n.t.Grants.GoesWithDir(l, id, n.t.whereAttached) {
			n = n.gone(id)
		}
	}
	return n
}
