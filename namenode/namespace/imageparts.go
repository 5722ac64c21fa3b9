package namespace

import "github.com/leasefs/leasefs/namenode/namespace/codec"

// head codes what there is once.
func (im *imageCoder) head() {
	t := im.t
	im.U64(&t.txid)
	im.I64(&t.time)
	im.I64(&t.reigned)
	im.U64(&t.term)
	im.Raw(&t.namespace)
	im.owner(&t.superUser, &t.superGroup)
	im.Bool(&t.safeMode)
	im.coder.inode(&t.nextInode)
	codec.List(im.Coder, &t.images, 7, func(op *OpImage) { op.fields(im.coder) })
	var reigns []Reign
	if im.Writes() {
		reigns = t.Reigns()
		im.read.total = uint64(t.Counts().Inodes) //nolint:gosec // a count
	}
	codec.List(im.Coder, &reigns, 18, func(r *Reign) { r.fields(im.coder) })
	im.owners(&t.users)
	im.owners(&t.groups)
	im.U64(&im.read.total)
	if !im.Writes() && im.OK() {
		im.checkHead(reigns)
	}
}

// owners codes the names of users or groups.
func (im *imageCoder) owners(in *interner) {
	names := in.names[1:]
	im.strings(&names)
	if im.Writes() {
		return
	}
	for _, name := range names {
		if before := len(in.names); before > MaxOwners || int(in.add(name, im.t.gen)) != before {
			im.wrong("user or group %q comes twice, or is one too many", name)
		}
	}
}

// checkHead looks at the images, and at the reigns, the last of which is this
// term's.
func (im *imageCoder) checkHead(reigns []Reign) {
	t, last := im.t, uint64(0)
	for _, r := range reigns {
		if r.Term <= last {
			im.Fail("reigns that are not in order")
		}
		last = r.Term
	}
	if len(reigns) > MaxReigns || len(t.images) > 2 || last != t.term {
		im.Fail("too many reigns or images, or a last reign of another term")
	}
	if n := len(reigns) - 1; n >= 0 {
		t.reigns, t.nonce, t.topSeq = reigns[:n:n], reigns[n].Nonce, reigns[n].Top
	}
}

// garbage codes the garbage blocks.
func (im *imageCoder) garbage() {
	t, before := im.t, int64(0)
	items(im, t.garbage, lessGarbage, func(g *garbageItem) {
		im.Delta(&g.time, before)
		before = g.time
		im.key(&g.key)
		im.U32(&g.stored)
	}, func(_, g garbageItem) bool {
		fits := !t.IsGarbage(g.key) && !t.HasBlock(g.key)
		t.addGarbage(StoredBlock{g.key, g.stored}, g.time)
		return fits
	})
}

// sessions codes the results of calls.
func (im *imageCoder) sessions() {
	t := im.t
	result := func(r *callResult) { r.fields(im.coder) }
	items(im, t.sessions, lessSession, func(s *sessionItem) {
		if !im.Writes() {
			s.session = &session{gen: t.gen}
		}
		im.Raw((*[16]byte)(&s.id))
		im.I64(&s.last)
		im.U64(&s.acked)
		codec.List(im.Coder, &s.results, 32, result)
	}, func(_, s sessionItem) bool {
		seq, fits := s.acked, s.id != SessionID{}
		for _, r := range s.results {
			fits = fits && r.seq > seq
			seq = r.seq
		}
		t.sessions.ReplaceOrInsert(s)
		t.idle.ReplaceOrInsert(idleItem{bucket: s.last >> idleShift, id: s.id})
		return fits
	})
}

func (r *callResult) fields(c coder) {
	c.U64(&r.seq)
	c.Sum64(&r.hash)
	c.U64(&r.res.TxID)
	c.U8(&r.res.Op)
	c.inode(&r.res.Inode)
	c.I64(&r.res.Length)
	c.I64(&r.res.BlocksLength)
	c.Raw((*[16]byte)(&r.res.Token))
	c.Bool(&r.res.Flag)
}

// leases codes the granted leases with their files, the ages of leases, and the
// sessions that may cache.
func (im *imageCoder) leases() {
	t := im.t
	items(im, t.leases, lessLease, func(l **Lease) {
		if !im.Writes() {
			*l = new(Lease)
		}
		im.lease(&(*l).ID)
		im.I64(&(*l).TTL)
		im.I64(&(*l).Since)
		im.U64(&(*l).Ended)
		im.leaseOwner(&(*l).Owner)
	}, func(_, l *Lease) bool {
		fits := l.ID > 0 && l.ID <= MaxLeaseID && l.TTL > 0 && l.TTL <= MaxLeaseTTL && l.Ended <= t.txid && !t.ended.Has(endedLease{ended: l.Ended})
		t.leases.ReplaceOrInsert(l)
		if l.Ended != 0 {
			t.ended.ReplaceOrInsert(endedLease{l.Ended, l.ID})
		}
		return fits
	})
	items(im, t.attachments, lessAttachment, func(a *attachment) {
		im.lease(&a.lease)
		im.coder.inode(&a.inode)
	}, func(_, a attachment) bool {
		n, l := t.get(a.inode), t.lease(a.lease)
		if l == nil || n == nil || n.typ != TypeFile || t.attached.Has(a) {
			return false
		}
		t.attachments.ReplaceOrInsert(a)
		t.attached.ReplaceOrInsert(a)
		l.Files++ // nobody else has seen it yet
		return true
	})
	items(im, t.ages, lessAge, im.age, func(_, a Age) bool {
		t.ages.ReplaceOrInsert(a)
		return a.MS > 0 && a.names() && t.canAge(a.AgeKey)
	})
	items(im, t.caching, lessCaching, func(op *OpCaching) { op.fields(im.coder) }, func(_, op OpCaching) bool {
		t.caching.ReplaceOrInsert(op)
		return op.Term > 0 && op.Session != SessionID{}
	})
	// An ended lease is kept for its files only.
	t.ended.Ascend(func(e endedLease) bool {
		if !im.Writes() && t.lease(e.id).Files == 0 {
			im.wrong("lease %x has ended and has no files", uint64(e.id))
		}
		return im.OK()
	})
}

// xattrs codes the extended attributes.
func (im *imageCoder) xattrs() {
	t, sum := im.t, 0
	items(im, t.xattrs, lessXattr, func(x *xattrItem) {
		im.coder.inode(&x.inode)
		im.Text(&x.name)
		im.Text(&x.value)
	}, func(last, x xattrItem) bool {
		if x.inode != last.inode {
			sum = 0
		}
		sum += x.size()
		if t.get(x.inode) == nil || CheckXattrName(x.name) != nil || len(x.value) > MaxXattrValue || sum > MaxXattrs {
			return false
		}
		t.putXattr(x)
		return true
	})
}

// numbers codes the inode numbers that are set aside.
func (im *imageCoder) numbers() {
	t := im.t
	items(im, t.numbers, lessNumbers, func(n *numbers) { n.fields(im.coder) }, func(last, n numbers) bool {
		t.numbers.ReplaceOrInsert(n)
		return t.goodNumbers(n) && (n.session != last.session || n.first-last.first >= InodeID(last.count))
	})
	if !im.Writes() && im.OK() && len(t.sharedNumbers()) > 0 {
		im.Fail("one is set aside for two sessions")
	}
}

// trailer codes what a reader must have counted itself.
func (im *imageCoder) trailer() {
	c := im.t.Counts()
	for _, have := range []uint64{ //nolint:gosec // counts
		uint64(c.Files), uint64(c.Dirs), uint64(c.Symlinks), uint64(c.Blocks), uint64(c.Open),
		uint64(c.StoredBytes), im.t.txid,
	} {
		n := have
		if im.U64(&n); n != have {
			im.wrong("one is %d, but %d were read", n, have)
		}
	}
}
