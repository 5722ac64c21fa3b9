package namespace

import (
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// inodes are the files, directories and links of a tree: by number, as entries of
// their directories, which are open or deleted, and the leases to which they are
// attached; with their extended attributes, their owners and how much they take.
type inodes struct {
	table
	open      tables.Set[InodeID]
	detached  tables.Set[InodeID] // tops of deleted subtrees
	nextInode InodeID             // the number that the next one gets
	xattrs    tables.Xattrs
	acls      acl.Table
	granted
	tables.Named
	counts calls.Counts // those that no table counts
}

// table has all inodes. Those with a parent are entries.
type table struct{ slots slots.Table[ext] }

// get returns an inode by number, nil if there is none.
func (t *table) get(id InodeID) *inode {
	n := new(inode)
	if !t.load(id, n) {
		return nil
	}
	return n
}

// load is get into n.
func (t *table) load(id InodeID, n *inode) bool {
	s, x := t.slots.Get(id)
	if s == nil {
		return false
	}
	n.of(id, s, x)
	return true
}

// each calls fn for all inodes, by number, until it returns false. What it is called with
// is good until it returns.
func (t *table) each(from InodeID, fn func(*inode) bool) {
	n := new(inode)
	t.slots.Each(from, func(id InodeID, s *slots.Node, x *ext) bool {
		n.of(id, s, x)
		return fn(n)
	})
}

// IsDir reports whether there is a directory of that number.
func (t *inodes) IsDir(id InodeID) bool {
	n := t.get(id)
	return n != nil && n.typ == TypeDir
}

// whereAttached says of what can be attached to a lease where it is.
func (t *inodes) whereAttached(id InodeID) (dir InodeID, isDir, can bool) {
	n := t.get(id)
	if n == nil || n.parent == 0 {
		return 0, false, false
	}
	return n.parent, n.typ == TypeDir, true
}

// put places an inode, new or changed, in the table. Of an entry, parent and name are as
// before; for others see linkEntry and unlinkEntry.
func (t *inodes) put(n *inode) {
	old := t.get(n.id)
	s := n.slot()
	if t.slots.Put(n.id, &s, n.ext); old != nil {
		t.countTail(old, -1)
		if old.user != n.user {
			moved := t.xattrMemory(n.id)
			t.Uses.Of(old.user).Xattrs -= moved
			t.Uses.Of(n.user).Xattrs += moved
		}
	}
	t.countTail(n, 1)
}

// countTail counts the tail of an inode, sign times, for all and for its owner.
func (t *inodes) countTail(n *inode, sign int64) {
	t.counts.AddTail(n.tailMemory(), n.open() != nil, sign)
	t.Uses.Of(n.user).Tails += sign * n.tailMemory()
}

// OwnerOf is the user who owns an inode; "" if it is not there.
func (t *inodes) OwnerOf(id InodeID) string {
	if n := t.get(id); n != nil {
		return t.UserNames.Name(n.user)
	}
	return ""
}

// drop takes an inode out of the table.
func (t *inodes) drop(n *inode) {
	t.slots.Drop(n.id)
	t.countTail(n, -1)
}

// linkEntry makes an inode that was put the entry of its name in its directory.
func (t *table) linkEntry(n *inode) { t.slots.Link(n.parent, n.nameString(), n.id) }

// unlinkEntry takes an inode out of its directory; it stays in the table.
func (t *table) unlinkEntry(n *inode) { t.slots.Unlink(n.parent, n.nameString(), n.id) }

// isDead reports whether an inode is attached to a lease that has ended: then neither it
// nor anything below it is in the tree any more.
func (t *inodes) isDead(n *inode) bool { return t.leases.IsDead(n.id) }

// stored is how many entries a directory has in memory, dead ones included.
func (t *inodes) stored(dir *inode) int64 { return dir.entries() + t.leases.DeadIn(dir.id) }

// lookup returns a directory's entry of a name, nil if there is none or it is dead.
func (t *inodes) lookup(dir InodeID, name string) *inode {
	if n := t.named(dir, name); n != nil && !t.isDead(n) {
		return n
	}
	return nil
}

// named is lookup, but finds dead entries, too.
func (t *inodes) named(dir InodeID, name string) *inode { return t.get(t.nameTaken(dir, name)) }

// nameTaken is the number of what has a name in a directory, dead or not; 0: nothing.
func (t *table) nameTaken(dir InodeID, name string) InodeID {
	if len(name) == 0 || len(name) > 255 {
		return 0
	}
	return t.slots.Find(dir, name)
}

// everyChild calls fn for the entries of a directory, the dead ones included, whose names
// are greater than after, in the order of names, until it returns false.
func (t *inodes) everyChild(dir InodeID, after string, fn func(*inode) bool) {
	skip := after != ""
	t.slots.Ascend(dir, after[:min(len(after), fspath.MaxName)], func(id InodeID) bool {
		n := t.get(id)
		if n.parent != dir {
			return false
		}
		if skip && n.nameString() <= after { // one, or more if after is no name
			return true
		}
		skip = false
		return fn(n)
	})
}

// reachable reports whether n is in the tree that hangs from the root. If
// visit is not nil it is called with n and each directory above it, the top of
// a detached subtree, or what is dead, included.
func (t *inodes) reachable(n *inode, visit func(InodeID)) bool {
	if n == nil {
		return false
	}
	for id, up := n.id, n.parent; ; {
		if visit != nil {
			visit(id)
		}
		if id == RootID {
			return true
		}
		if up == 0 || t.leases.IsDead(id) {
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
	case n.typ != TypeFile:
		return nil, misfitf("inode %d is no file", id)
	}
	return n, nil
}
