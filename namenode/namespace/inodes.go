package namespace

import (
	"sync"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// inodes are the files, directories and links of a tree: by number, as entries of
// their directories, which are open or deleted, and the leases to which they are
// attached; with their extended attributes, their owners and how much they take.
type inodes struct {
	byID      tables.Pages[inode]
	dentries  tables.Set[*inode] // all that have a parent
	open      tables.Set[InodeID]
	detached  tables.Set[InodeID] // tops of deleted subtrees
	nextInode InodeID             // the number that the next one gets
	xattrs    tables.Xattrs
	granted
	owners
	counts Counts // those that no table counts
}

// get returns an inode by number, nil if there is none.
func (t *inodes) get(id InodeID) *inode { return t.byID.Get(id) }

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

// addTail counts what an inode's tail takes, sign times.
func (c *Counts) addTail(n *inode, sign int64) {
	size := sign * n.tailMemory()
	c.TailBytes += size
	if size != 0 && n.open() == nil {
		c.ClosedTailBytes += size
	}
}

// addType counts an inode of a type, or -1 of them.
func (c *Counts) addType(typ Type, d int) {
	switch typ {
	case TypeFile:
		c.Files += d
	case TypeDir:
		c.Dirs += d
	case TypeSymlink:
		c.Symlinks += d
	}
}

// put places an inode, new or changed, in the table alone.
func (t *inodes) put(n *inode) {
	if old := t.byID.Put(n.id, n); old != nil {
		t.countTail(old, -1)
		if old.user != n.user {
			moved := t.xattrMemory(n.id)
			t.uses.Of(old.user).Xattrs -= moved
			t.uses.Of(n.user).Xattrs += moved
		}
	}
	t.countTail(n, 1)
}

// countTail counts the tail of an inode, sign times, for all and for its owner.
func (t *inodes) countTail(n *inode, sign int64) {
	t.counts.addTail(n, sign)
	t.uses.Of(n.user).Tails += sign * n.tailMemory()
}

// OwnerOf is the user who owns an inode; "" if it is not there.
func (t *inodes) OwnerOf(id InodeID) string {
	if n := t.get(id); n != nil {
		return t.users.Name(n.user)
	}
	return ""
}

// drop takes an inode out of the table.
func (t *inodes) drop(n *inode) {
	t.byID.Drop(n.id)
	t.countTail(n, -1)
}

// replace puts a changed inode, whose name and parent are as before, in the
// place of the old one, in the table and among the entries of its directory.
func (t *inodes) replace(n *inode) {
	t.put(n)
	if n.parent != 0 {
		t.dentries.ReplaceOrInsert(n)
	}
}

// probe is an inode to look for others with.
type probe struct {
	inode
	long     ext
	longName string // where the name in long points to
}

var probes = sync.Pool{New: func() any { return new(probe) }}

// newProbe returns a probe for an entry; give it back with free.
func newProbe(dir InodeID, name string) *probe {
	p := probes.Get().(*probe)
	p.parent = dir
	p.name = [inlineName]byte{}
	copy(p.name[:], name)
	p.nameLen = uint8(min(len(name), 255)) //nolint:gosec // bounded
	if len(name) > inlineName {
		p.longName = name
		p.long.name = &p.longName
		p.ext = &p.long
	}
	return p
}

func (p *probe) free() {
	p.longName = ""
	p.ext = nil
	probes.Put(p)
}

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
func (t *inodes) named(dir InodeID, name string) *inode {
	if len(name) == 0 || len(name) > 255 {
		return nil
	}
	p := newProbe(dir, name)
	n, _ := t.dentries.Get(&p.inode)
	p.free()
	return n
}

// everyChild calls fn for the entries of a directory, the dead ones included, whose names
// are greater than after, in the order of names, until it returns false.
func (t *inodes) everyChild(dir InodeID, after string, fn func(*inode) bool) {
	p := newProbe(dir, after)
	defer p.free()
	t.dentries.AscendGreaterOrEqual(&p.inode, func(n *inode) bool {
		if n.parent != dir {
			return false
		}
		if after != "" && compareNames(n, &p.inode) == 0 {
			return true
		}
		return fn(n)
	})
}

// reachable reports whether n is in the tree that hangs from the root. If
// visit is not nil it is called with n and each directory above it, the top of
// a detached subtree, or what is dead, included.
func (t *inodes) reachable(n *inode, visit func(*inode)) bool {
	for n != nil {
		if visit != nil {
			visit(n)
		}
		if n.id == RootID {
			return true
		}
		if n.parent == 0 || t.isDead(n) {
			return false
		}
		n = t.get(n.parent)
	}
	return false
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
