package namespace

import (
	"slices"
	"strings"
)

// chain is directories to be made, each inside the one before, and a leaf in
// the last of them.
type chain struct {
	parent  InodeID
	dirs    []string
	dirMode uint16
	name    string
	leaf    *inode // without name and parent, and number unless one was set aside
	user    string
	group   string
}

// checkChain says why a chain cannot be made. replace is what the leaf's name
// must be now; 0: not taken.
func (t applier) checkChain(c *chain, replace InodeID) (old *inode, err error) {
	if _, err := t.reachableDir(c.parent); err != nil {
		return nil, err
	}
	if err := checkNames(c.dirs, c.name); err != nil {
		return nil, err
	}
	if err := t.fitOwners(c.user, c.group); err != nil {
		return nil, err
	}
	first := c.name
	if len(c.dirs) > 0 {
		first = c.dirs[0]
		if replace != 0 {
			return nil, misfit("it replaces a file in a directory that is yet to be made")
		}
	}
	return t.entry(c.parent, first, replace)
}

// makeChain makes a chain that was checked. If old is not nil the leaf takes
// its place; the old inode was freed already.
func (t applier) makeChain(c *chain, old *inode) *inode {
	user, group := t.users.Add(c.user), t.groups.Add(c.group)
	top := c.name
	if len(c.dirs) > 0 {
		top = c.dirs[0]
	}
	parent := c.parent
	for _, name := range c.dirs {
		d := &inode{typ: TypeDir, mode: c.dirMode & modeBits, mtime: t.now.Time}
		d.ownExt().n = 1
		t.attach(d, parent, name, user, group)
		parent = d.id
	}
	t.attach(c.leaf, parent, c.name, user, group)
	t.touchEntry(c.parent, top)
	t.changeEntries(c.parent, delta(old == nil))
	return c.leaf
}

// attach numbers and names a new inode and hangs it into a directory, whose
// own attributes are the caller's affair.
func (t applier) attach(n *inode, parent InodeID, name string, user, group uint16) {
	if n.id == 0 {
		n.id = t.nextInode
		t.nextInode++
	}
	n.parent, n.user, n.group = parent, user, group
	if len(name) > inlineName {
		name = strings.Clone(name)
	}
	n.setName(name)
	t.put(n)
	t.dentries.ReplaceOrInsert(n)
	t.countType(n.typ, 1)
	t.touch(Change{Kind: ChangeAttr, Inode: n.id})
}

func delta(grew bool) int64 {
	if grew {
		return 1
	}
	return 0
}

// changeEntries adds d to the number of a directory's entries and sets its
// mtime to the record's time.
func (t applier) changeEntries(dir InodeID, d int64) {
	n := t.get(dir).edit()
	n.mtime = t.now.Time
	if d != 0 {
		n.ownExt().n += d
		n.dropEmptyExt()
	}
	t.replace(n)
}

func (t applier) grant(h Holder, token Token) *grant {
	return &grant{holder: t.holders.Share(h), epoch: t.now.TxID, token: token, since: t.now.Time}
}

// move gives an inode, which is no entry any more, another place. grown is by
// how many entries the directory that it comes to grows.
func (t applier) move(n *inode, dir InodeID, name string, grown int64) Result {
	from, fromName := n.parent, n.nameString()
	moved := n.edit()
	moved.parent = dir
	if len(name) > inlineName {
		name = strings.Clone(name)
	}
	moved.setName(name)
	t.replace(moved)
	if from == dir {
		t.changeEntries(dir, grown-1)
	} else {
		t.changeEntries(from, -1)
		t.changeEntries(dir, grown)
	}
	t.touchEntry(from, fromName)
	t.touchEntry(dir, name)
	t.touch(Change{Kind: ChangeAttr, Inode: n.id})
	return Result{Inode: n.id, Length: moved.length(), BlocksLength: moved.blocksLength()}
}

// isBelow reports whether n is the directory id or somewhere below it.
func (t *Tree) isBelow(n *inode, id InodeID) bool {
	for n != nil {
		if n.id == id {
			return true
		}
		if n.parent == 0 {
			return false
		}
		n = t.get(n.parent)
	}
	return false
}

// unlink takes an entry out of its directory. A directory with entries is
// detached, anything else freed at once.
func (t applier) unlink(n *inode) []ClosedFile {
	var closed []ClosedFile
	dir, name := n.parent, n.nameString()
	if n.typ == TypeDir && n.entries() > 0 {
		for _, f := range t.openBelow(n) {
			closed = append(closed, closedFile(f, ReasonDeleted))
			t.shut(f.edit())
		}
		t.detach(n)
	} else {
		t.dentries.Delete(n)
		closed = t.free(n, ReasonDeleted)
	}
	t.touchEntry(dir, name)
	t.changeEntries(dir, -1)
	return closed
}

// openBelow returns the open files below a directory by number. It looks
// through the subtree if that is small, else at the parents of all open files,
// so that it takes no longer than the number of open files warrants.
func (t *Tree) openBelow(top *inode) []*inode {
	if t.open.Len() == 0 {
		return nil
	}
	var found []*inode
	budget := 64 + 2*t.open.Len()
	dirs := []InodeID{top.id}
	for len(dirs) > 0 && budget > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		t.children(dir, "", func(n *inode) bool {
			switch {
			case n.typ == TypeDir && n.entries() > 0:
				dirs = append(dirs, n.id)
			case n.open() != nil:
				found = append(found, n)
			}
			budget--
			return budget > 0
		})
	}
	if budget > 0 {
		slices.SortFunc(found, func(a, b *inode) int {
			if a.id < b.id {
				return -1
			}
			return 1
		})
		return found
	}

	found = found[:0]
	below := map[InodeID]bool{top.id: true, RootID: false}
	var up []InodeID
	t.open.Ascend(func(id InodeID) bool {
		n := t.get(id)
		up = up[:0]
		dir := n.parent
		is, known := below[dir]
		for !known && dir != 0 {
			up = append(up, dir)
			dir = t.get(dir).parent
			is, known = below[dir]
		}
		for _, d := range up {
			below[d] = is
		}
		if is {
			found = append(found, n)
		}
		return true
	})
	return found
}
