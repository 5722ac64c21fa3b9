package namespace

import (
	"cmp"
	"slices"
	"strings"
)

// Path returns where an inode is; false if it is not in the tree.
func (t *inodes) Path(id InodeID) (string, bool) {
	n := t.get(id)
	if n == nil {
		return "", false
	}
	if !t.reachable(n, nil) {
		return "", false
	}
	if id == RootID {
		return "/", true
	}
	var names []string
	for n.id != RootID {
		names = append(names, n.nameString())
		t.load(n.parent, n)
	}
	names = append(names, "") // the root's
	slices.Reverse(names)
	return strings.Join(names, "/"), true
}

// IsBelow reports whether a directory is another one, or below it.
func (t *inodes) IsBelow(dir, top InodeID) bool {
	return t.get(dir) != nil && t.slots.IsBelow(dir, top)
}

// openBelow returns the open files below a directory by number.
func (t *inodes) openBelow(top *inode) []*inode {
	return t.openAmong([]*inode{top}, func(n *inode) bool { return n.id == top.id })
}

// openAttached returns the open files by number that are attached to a lease, or below
// a directory that is.
func (t *inodes) openAttached(l *Lease) []*inode {
	if t.open.Len() == 0 {
		return nil
	}
	var tops []*inode
	for _, id := range t.leases.Files(l, 0, openBudget(t.open.Len())) {
		tops = append(tops, t.get(id))
	}
	return t.openAmong(tops, func(n *inode) bool { return t.leases.Of(n.id) == l })
}

// openBudget is how many inodes of subtrees are looked at, by the number of open files,
// before the open files are looked at one by one instead.
func openBudget(open int) int { return 64 + 2*open }

// openAmong returns the open files, by number, that are among tops or below them. It looks
// through the subtrees if they are small, otherwise at the directories above each open
// file, so that its time is bounded by the number of open files. tops may be incomplete if
// there are many; isTop reports whether an inode belongs to the complete list.
func (t *inodes) openAmong(tops []*inode, isTop func(*inode) bool) []*inode {
	if t.open.Len() == 0 {
		return nil
	}
	var found []*inode
	var dirs []InodeID
	budget := openBudget(t.open.Len()) - len(tops)
	for _, n := range tops {
		switch {
		case n.typ == TypeDir:
			dirs = append(dirs, n.id)
		case n.open() != nil:
			found = append(found, n)
		}
	}
	for len(dirs) > 0 && budget > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		t.everyChild(dir, "", func(n *inode) bool {
			switch {
			case t.isDead(n):
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
		slices.SortFunc(found, func(a, b *inode) int { return cmp.Compare(a.id, b.id) })
		return slices.CompactFunc(found, func(a, b *inode) bool { return a.id == b.id }) // a top may be below another top
	}

	found = found[:0]
	below := map[InodeID]bool{RootID: isTop(t.get(RootID))}
	var up []InodeID
	t.open.Ascend(func(id InodeID) bool {
		n := t.get(id)
		up = up[:0]
		at := n
		is, known := isTop(at), false
		for !is && !known && at.parent != 0 {
			at = t.get(at.parent)
			if is, known = below[at.id]; known {
				break
			}
			up = append(up, at.id)
			is = isTop(at)
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

// next returns the next entry of a directory, be it a dead one, and nil at its end.
func (t *inodes) next(l *level) *inode {
	if len(l.batch) == 0 && !l.done {
		l.batch = l.batch[:0]
		t.everyChild(l.id, l.after, func(n *inode) bool {
			l.batch = append(l.batch, n)
			return len(l.batch) < walkBatch
		})
		l.done = len(l.batch) < walkBatch
		if len(l.batch) > 0 {
			l.after = l.batch[len(l.batch)-1].nameString()
		}
	}
	if len(l.batch) == 0 {
		return nil
	}
	n := l.batch[0]
	l.batch = l.batch[1:]
	return n
}
