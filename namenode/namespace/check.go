package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/checks"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Check compares all parts of the tree with each other and returns what does
// not fit, one line each, at most 1,000; nil for a sound tree. It looks at
// everything and takes memory for each block, so it is meant for clones.
func (t *Tree) Check() []string {
	return checks.Check(&checks.Tree{
		Slots: &t.slots, Open: &t.open, Detached: &t.detached, Trash: &t.trash, Quotas: &t.quotas, Xattrs: &t.xattrs, ACLs: &t.acls,
		Names: &t.Named, Blocks: &t.blocks, Garbage: &t.garbage, Snapshots: &t.snaps, Counts: t.Counts(),
		Next: t.nextInode, TxID: t.txid, Reigned: t.reigned,
		Reachable: func(n *inode) bool { return t.reachable(n, nil) }, Stored: t.stored,
		Rest: func(problem tables.Problem) {
			t.ResultTable.Check(problem)
			t.Grants.Check(problem, t.whereAttached)
			t.AgeTable.Check(problem, t.canAge)
			t.CacherTable.Check(problem, t.nextInode)
			t.PassTable.Check(problem, t.txid, t.time)
		},
	})
}
