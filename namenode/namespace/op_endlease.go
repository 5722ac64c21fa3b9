package namespace

// OpEndLease ends a granted lease as leasefs did before it had OpEnd: it deletes a few of
// the files attached, and the others stay in the tree until OpReap deletes them.
type OpEndLease struct {
	modest

	ID     LeaseID
	Reason string
}

// endFiles is how many attached files an OpEndLease deletes.
const endFiles = 64

func (op *OpEndLease) fields(c coder) {
	c.lease(&op.ID)
	c.Text(&op.Reason)
}

func (op *OpEndLease) apply(t applier) (Result, error) {
	l, err := t.liveLease(op.ID)
	if err != nil {
		return Result{}, err
	}
	r := Result{Lease: op.ID, LeaseEnded: true, LeaseOwner: l.Owner.User, Ended: l, Reason: op.Reason}
	files := t.Grants.Files(l, 0, endFiles)
	t.Grants.EndLease(op.ID, t.now.TxID, false, 0)
	t.AgeTable.Forget(AgeKey{Lease: op.ID})
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	r.Closed = t.deleteAttached(files)
	r.Deleted = len(files)
	return r, nil
}

func (op *OpEndLease) affects(a affected) affected {
	return a.deleted(a.t.LeaseFiles(op.ID, 0, endFiles)...)
}
func (op *OpEndLease) events(n news) news { return n.gone(n.t.LeaseFiles(op.ID, 0, endFiles)...) }
