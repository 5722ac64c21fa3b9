package namespace

// OpEndLease ends a granted lease. It deletes a few of the files attached;
// if there are more, the lease stays, ended, until OpReap has deleted them.
type OpEndLease struct {
	ID     LeaseID
	Reason string // LeaseExpired or LeaseRevoked
}

func (op *OpEndLease) fields(c coder) {
	c.lease(&op.ID)
	c.Text(&op.Reason)
}

// PlanEndLease checks the end of a lease, why being LeaseRevoked or
// LeaseExpired. Errors: NotFound, Permission.
func PlanEndLease(t *Tree, c *Call, id LeaseID, why string) (*OpEndLease, error) {
	v := view{t, c, "lease revoke"}
	if err := v.checkLease(id); err != nil {
		return nil, err
	}
	return &OpEndLease{ID: id, Reason: why}, nil
}

func (op *OpEndLease) apply(t applier) (Result, error) {
	l, err := t.liveLease(op.ID)
	if err != nil {
		return Result{}, err
	}
	t.leases.End(op.ID, t.now.TxID)
	t.ages.Forget(AgeKey{Lease: op.ID})
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	r := Result{Lease: op.ID, LeaseEnded: true, LeaseOwner: l.Owner.User, Reason: op.Reason}
	r.Closed = t.deleteAttached(endFiles, op.ID, &r.Deleted)
	return r, nil
}

func (op *OpEndLease) affects(a affected) affected {
	return a.deleted(a.t.leases.Files(op.ID, 0, endFiles)...)
}

func (op *OpEndLease) events(n news) news { return n.gone(n.t.leases.Files(op.ID, 0, endFiles)...) }
