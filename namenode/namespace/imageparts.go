package namespace

import (
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/imaging"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

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
	im.nodes.Total = uint64(t.Counts().Inodes) //nolint:gosec // a count; of a reader 0
	im.U64(&im.nodes.Total)
	if len(t.images) > 2 {
		im.Fail("too many images")
	}
}

// inodes codes the inodes with their places.
func (im *imageCoder) inodes() {
	t := im.t
	im.nodes = imaging.Inodes{
		Coder: node.Coder{
			Coder:  im.Coder,
			Limits: node.Limits{Next: t.nextInode, Users: t.UserNames.Len(), Groups: t.GroupNames.Len(), TxID: t.txid},
			Share:  t.holders.Share,
		},
		Total: im.nodes.Total, Slots: &t.slots, Open: &t.open, Detached: &t.detached, Trash: &t.trash, Quotas: &t.quotas,
		Blocks: &t.blocks, Counts: &t.counts, Stored: t.stored, CountTail: func(n *inode) { t.countTail(n, 1) },
	}
	im.nodes.Code()
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
		im.nodes.LinkLeases(&t.Grants, func(n *inode) bool { return t.reachable(n, nil) })
	}
	t.AgeTable.Code(im.Coder, t.canAge)
	t.CacherTable.CodeTerms(im.Coder)
}

// snapshots codes the snapshots, of what there is as it was before.
func (im *imageCoder) snapshots() {
	t, in := im.t, im.t.in()
	t.snaps.Code(&im.nodes.Coder, &in, func(k blockstore.Key) bool {
		fits := !t.blocks.Has(k) && !t.garbage.Has(k)
		t.blocks.ReplaceOrInsert(k)
		return fits
	}, t.IsDir)
	if !im.Writes() {
		t.slots = in.Inodes
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
