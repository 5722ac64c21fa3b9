package namespace

import "github.com/leasefs/leasefs/namenode/namespace/codec"

// head codes what there is once.
func (im *imageCoder) head() {
	t := im.t
	im.U64(&t.txid)
	im.I64(&t.time)
	im.I64(&t.reigned)
	im.U64(&t.reigns.Term)
	im.Raw(&t.namespace)
	im.owner(&t.superUser, &t.superGroup)
	im.Bool(&t.safeMode)
	im.coder.inode(&t.nextInode)
	codec.List(im.Coder, &t.images, 7, func(op *OpImage) { op.fields(im.coder) })
	t.reigns.Code(im.Coder)
	t.UserNames.Code(im.Coder)
	t.GroupNames.Code(im.Coder)
	im.read.total = uint64(t.Counts().Inodes) //nolint:gosec // a count; of a reader 0
	im.U64(&im.read.total)
	if len(t.images) > 2 {
		im.Fail("too many images")
	}
}

// leases codes the granted leases with their files, the ages of leases, and the
// sessions that may cache.
func (im *imageCoder) leases() {
	t := im.t
	if im.version == 7 {
		t.Grants.CodeOld(im.Coder, t.txid, t.whereAttached)
	} else {
		t.Grants.Code(im.Coder, t.txid, im.version >= 9, t.whereAttached)
	}
	if !im.Writes() {
		im.linkLeases()
	}
	t.AgeTable.Code(im.Coder, t.canAge)
	t.CacherTable.CodeTerms(im.Coder)
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
