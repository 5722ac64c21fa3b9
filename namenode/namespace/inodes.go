package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// inodes are the files, directories and links of a tree: by number, as entries of
// their directories, which are open or deleted, and the leases to which they are
// attached; with their extended attributes, their owners and how much they take.
type inodes struct {
	slots     node.Table
	open      tables.Set[InodeID]
	detached  tables.Set[InodeID] // tops of deleted subtrees
	nextInode InodeID             // the number that the next one gets
	trash     tables.Trash
	quotas    quota.Table[node.Ext]
	xattrs    tables.Xattrs
	acls      acl.Table
	granted
	tables.Named
	counts calls.Counts // those that no table counts
}

// inode is one file, directory or symbolic link.
type inode = node.Inode

// get returns an inode by number, nil if there is none.
func (t *inodes) get(id InodeID) *inode { return t.slots.Inode(id) }

// each calls fn for all inodes, by number, until it returns false. What it is called with
// is good until it returns.
func (t *inodes) each(from InodeID, fn func(*inode) bool) { t.slots.EachInode(from, fn) }

// IsDir reports whether there is a directory of that number.
func (t *inodes) IsDir(id InodeID) bool { return t.slots.IsDir(id) }

// whereAttached says of what can be attached to a lease where it is.
func (t *inodes) whereAttached(id InodeID) (dir InodeID, isDir, can bool) {
	n := t.get(id)
	if n == nil || n.Parent == 0 {
		return 0, false, false
	}
	return n.Parent, n.Type == TypeDir, true
}

// put places an inode, new or changed, in the table. Of an entry, parent and name are as
// before; for others see node.Table.LinkInode.
func (t *inodes) put(n *inode) {
	old := t.get(n.ID)
	if t.slots.PutInode(n); old != nil {
		t.countTail(old, -1)
		if old.User != n.User {
			moved := t.xattrs.Memory(n.ID)
			t.Uses.Of(old.User).Xattrs -= moved
			t.Uses.Of(n.User).Xattrs += moved
		}
	}
	t.countTail(n, 1)
	if old != nil && t.quotas.Len() > 0 {
		t.quotas.Grew(&t.slots.Table, n.Parent, n.Length()-old.Length())
	}
}

// countTail counts the tail of an inode, sign times, for all and for its owner.
func (t *inodes) countTail(n *inode, sign int64) {
	t.counts.AddTail(n.TailMemory(), n.Open() != nil, sign)
	t.Uses.Of(n.User).Tails += sign * n.TailMemory()
}

// OwnerOf is the user who owns an inode; "" if it is not there.
func (t *inodes) OwnerOf(id InodeID) string {
	if n := t.get(id); n != nil {
		return t.UserNames.Name(n.User)
	}
	return ""
}

// drop takes an inode out of the table.
func (t *inodes) drop(n *inode) {
	t.slots.Drop(n.ID)
	t.quotas.Drop(n.ID)
	t.countTail(n, -1)
}

// isDead reports whether an inode is attached to a lease that has ended: then neither it
// nor anything below it is in the tree any more.
func (t *inodes) isDead(n *inode) bool { return t.Grants.IsDead(n.ID) }

// stored is how many entries a directory has in memory, dead ones included.
func (t *inodes) stored(dir *inode) int64 { return dir.Entries() + t.Grants.DeadIn(dir.ID) }

// lookup returns a directory's entry of a name, nil if there is none or it is dead.
func (t *inodes) lookup(dir InodeID, name string) *inode {
	if n := t.named(dir, name); n != nil && !t.isDead(n) {
		return n
	}
	return nil
}

// named is lookup, but finds dead entries, too.
func (t *inodes) named(dir InodeID, name string) *inode { return t.get(t.slots.Named(dir, name)) }

// reachable reports whether n is in the tree that hangs from the root. If
// visit is not nil it is called with n and each directory above it, the top of
// a detached subtree, or what is dead, included.
func (t *inodes) reachable(n *inode, visit func(InodeID)) bool {
	if n == nil {
		return false
	}
	for id, up := n.ID, n.Parent; ; {
		if visit != nil {
			visit(id)
		}
		if id == RootID {
			return true
		}
		if up == 0 || t.Grants.IsDead(id) {
			return false
		}
		s, _ := t.slots.Get(up)
		if s == nil {
			return false
		}
		id, up = up, s.Parent
	}
}

// file returns a file that is there.
func (t *inodes) file(id InodeID) (*inode, error) {
	n := t.get(id)
	switch {
	case n == nil:
		return nil, misfitf("there is no inode %d", id)
	case n.Type != TypeFile:
		return nil, misfitf("inode %d is no file", id)
	}
	return n, nil
}
