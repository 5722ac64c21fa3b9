package namespace

import "sync"

// get returns an inode by number, nil if there is none.
func (t *Tree) get(id InodeID) *inode { return t.inodes.Get(id) }

// IsDir reports whether there is a directory of that number.
func (t *Tree) IsDir(id InodeID) bool {
	n := t.get(id)
	return n != nil && n.typ == TypeDir
}

// isFile reports whether there is a file of that number.
func (t *Tree) isFile(id InodeID) bool {
	n := t.get(id)
	return n != nil && n.typ == TypeFile
}

// addTail counts what an inode's tail takes, sign times.
func (c *Counts) addTail(n *inode, sign int64) {
	size := sign * n.tailMemory()
	c.TailBytes += size
	if size != 0 && n.open() == nil {
		c.ClosedTailBytes += size
	}
}

// put places an inode, new or changed, in the table alone.
func (t *Tree) put(n *inode) {
	if old := t.inodes.Put(n.id, n); old != nil {
		t.countTail(old, -1)
		if old.user != n.user {
			moved := t.xattrMemory(n.id)
			t.uses.of(old.user).xattrs -= moved
			t.uses.of(n.user).xattrs += moved
		}
	}
	t.countTail(n, 1)
}

// countTail counts the tail of an inode, sign times, for all and for its owner.
func (t *Tree) countTail(n *inode, sign int64) {
	t.counts.addTail(n, sign)
	t.uses.of(n.user).tails += sign * n.tailMemory()
}

// ownerUse is the memory that the files of one owner take of what all share.
type ownerUse struct{ tails, xattrs int64 }

// ownerUses are by the number of the user.
type ownerUses []ownerUse

// of is what the files of one user take, to be changed.
func (u *ownerUses) of(user uint16) *ownerUse {
	if missing := int(user) + 1 - len(*u); missing > 0 {
		*u = append(*u, make([]ownerUse, missing)...)
	}
	return &(*u)[user]
}

// OwnedTails is how much of Counts.TailBytes the files of a user take. It is not for
// clones, and for a caller that may change the tree.
func (t *Tree) OwnedTails(user string) int64 {
	if i, ok := t.users.Number(user); ok {
		return t.uses.of(i).tails
	}
	return 0
}

// OwnerOf is the user who owns an inode; "" if it is not there.
func (t *Tree) OwnerOf(id InodeID) string {
	if n := t.get(id); n != nil {
		return t.users.Name(n.user)
	}
	return ""
}

// drop takes an inode out of the table.
func (t *Tree) drop(n *inode) {
	t.inodes.Drop(n.id)
	t.countTail(n, -1)
}

// replace puts a changed inode, whose name and parent are as before, in the
// place of the old one, in the table and among the entries of its directory.
func (t *Tree) replace(n *inode) {
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

// lookup returns the entry of a directory, nil if there is none.
func (t *Tree) lookup(dir InodeID, name string) *inode {
	if len(name) == 0 || len(name) > 255 {
		return nil
	}
	p := newProbe(dir, name)
	n, _ := t.dentries.Get(&p.inode)
	p.free()
	return n
}

// children calls fn for the entries of a directory whose names are greater
// than after, in the order of names, until it returns false.
func (t *Tree) children(dir InodeID, after string, fn func(*inode) bool) {
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
// a detached subtree included.
func (t *Tree) reachable(n *inode, visit func(*inode)) bool {
	for n != nil {
		if visit != nil {
			visit(n)
		}
		if n.id == RootID {
			return true
		}
		if n.parent == 0 {
			return false
		}
		n = t.get(n.parent)
	}
	return false
}
