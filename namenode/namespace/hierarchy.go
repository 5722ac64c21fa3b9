package namespace

import "github.com/leasefs/leasefs/namenode/namespace/node"

// Path returns where an inode is; false if it is not in the tree.
func (t *inodes) Path(id InodeID) (string, bool) {
	n := t.get(id)
	if !t.reachable(n, nil) {
		return "", false
	}
	return t.slots.Path(n), true
}

// IsBelow reports whether a directory is another one, or below it.
func (t *inodes) IsBelow(dir, top InodeID) bool {
	return t.get(dir) != nil && t.slots.IsBelow(dir, top)
}

// openBelow returns the open files below a directory by number.
func (t *inodes) openBelow(top *inode) []*inode {
	return t.openAmong([]*inode{top}, func(n *inode) bool { return n.ID == top.ID })
}

// openAttached returns the open files by number that are attached to a lease, or below
// a directory that is.
func (t *inodes) openAttached(l *Lease) []*inode {
	if t.open.Len() == 0 {
		return nil
	}
	var tops []*inode
	for _, id := range t.Grants.Files(l, 0, node.OpenBudget(t.open.Len())) {
		tops = append(tops, t.get(id))
	}
	return t.openAmong(tops, func(n *inode) bool { return t.Grants.Of(n.ID) == l })
}

func (t *inodes) openAmong(tops []*inode, isTop func(*inode) bool) []*inode {
	return t.slots.OpenAmong(&t.open, t.Grants.IsDead, tops, isTop)
}
