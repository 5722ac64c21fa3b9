package namespace

// OpReap removes up to Limit inodes attached to an ended lease; if several of that id have
// ended, to the one that ended first.
type OpReap struct {
	modest

	ID    LeaseID
	Limit uint32
}

func (op *OpReap) fields(c coder) {
	c.lease(&op.ID)
	c.U32(&op.Limit)
}

// files returns what it removes, and from which lease.
func (op *OpReap) files(t *Tree) (l *Lease, files []InodeID) {
	if l = t.Grants.FirstEnded(op.ID); l != nil {
		files = t.Grants.Files(l, 0, int(op.Limit))
	}
	return l, files
}

func (op *OpReap) apply(t applier) (Result, error) {
	l, files := op.files(t.Tree)
	if l == nil {
		return Result{}, misfitf("there is no lease %x that has ended", uint64(op.ID))
	}
	r := Result{Deleted: len(files)}
	if !l.Dead {
		r.Closed = t.deleteAttached(files)
		return r, nil
	}
	for _, id := range files {
		t.takeOut(t.get(id), ReasonDeleted)
	}
	return r, nil
}

func (op *OpReap) affects(a affected) affected {
	if l, files := op.files(a.t); l != nil && !l.Dead {
		return a.deleted(files...)
	}
	return a // nobody sees it any more
}

func (op *OpReap) events(n news) news {
	l, files := op.files(n.t)
	switch {
	case l == nil:
		return n
	case !l.Dead:
		return n.gone(files...)
	}
	for _, id := range files {
		n = n.buried(n.t.get(id))
	}
	return n
}
