package namespace

// leases reads the granted leases with their files, the ages of leases, and
// the sessions that may cache.
func (r *imageReader) leases() error {
	for _, part := range []func() error{r.granted, r.attachments, r.ages, r.caching} {
		if err := r.room(); err != nil {
			return err
		}
		if err := part(); err != nil {
			return err
		}
		if err := r.ok("the leases"); err != nil {
			return err
		}
	}
	// An ended lease is kept for its files only.
	var bare LeaseID
	r.t.ended.Ascend(func(e endedLease) bool {
		if r.t.lease(e.id).Files == 0 {
			bare = e.id
		}
		return bare == 0
	})
	if bare != 0 {
		return r.wrong("lease %x has ended and has no files", uint64(bare))
	}
	return nil
}

func (r *imageReader) granted() error {
	t := r.t
	var last LeaseID
	for range r.number(63) {
		if err := r.room(); err != nil {
			return err
		}
		l := new(Lease)
		r.lease(&l.ID)
		r.i64(&l.TTL)
		r.i64(&l.Since)
		r.u64(&l.Ended)
		for _, s := range []*string{&l.Owner.User, &l.Owner.Client, &l.Owner.Host} {
			var err error
			if *s, err = r.string(); err != nil {
				return err
			}
		}
		if err := r.ok("a granted lease"); err != nil {
			return err
		}
		if l.ID <= last || l.ID > MaxLeaseID || l.TTL <= 0 || l.TTL > MaxLeaseTTL || l.Ended > t.txid {
			return r.wrong("lease %x is out of order, or has a time to live or an end that cannot be", uint64(l.ID))
		}
		last = l.ID
		t.leases.ReplaceOrInsert(l)
		if l.Ended == 0 {
			continue
		}
		if t.ended.Has(endedLease{ended: l.Ended}) {
			return r.wrong("lease %x ended by the same record as another", uint64(l.ID))
		}
		t.ended.ReplaceOrInsert(endedLease{l.Ended, l.ID})
	}
	return nil
}

func (r *imageReader) attachments() error {
	t := r.t
	var last attachment
	for range r.number(63) {
		if err := r.room(); err != nil {
			return err
		}
		var a attachment
		r.lease(&a.lease)
		r.inode(&a.inode)
		if err := r.ok("an attached file"); err != nil {
			return err
		}
		n, l := t.get(a.inode), t.lease(a.lease)
		if !lessAttachment(last, a) || l == nil || n == nil || n.typ != TypeFile || t.attached.Has(a) {
			return r.wrong("inode %d cannot be attached to lease %x here", a.inode, uint64(a.lease))
		}
		last = a
		t.attachments.ReplaceOrInsert(a)
		t.attached.ReplaceOrInsert(a)
		l.Files++ // nobody else has seen it yet
	}
	return nil
}

func (r *imageReader) ages() error {
	var last Age
	for i := range r.number(63) {
		if err := r.room(); err != nil {
			return err
		}
		var a Age
		r.age(&a)
		if a.MS <= 0 || !a.names() || !r.t.canAge(a.AgeKey) || i > 0 && !lessAge(last, a) {
			r.fail("ages out of order, none, or of what cannot have one")
		}
		if r.bad != "" {
			return nil
		}
		last = a
		r.t.ages.ReplaceOrInsert(a)
	}
	return nil
}

func (r *imageReader) caching() error {
	var last OpCaching
	for range r.number(63) {
		if err := r.room(); err != nil {
			return err
		}
		var c OpCaching
		c.fields(&r.coder)
		if !lessCaching(last, c) || c.Term <= 0 {
			r.fail("sessions that may cache are out of order, or have no term")
		}
		if r.bad != "" {
			return nil
		}
		last = c
		r.t.caching.ReplaceOrInsert(c)
	}
	return nil
}
