package namespace

// Affects returns what a record, planned on the tree as it is now, will change
// of what callers can look at: who has cached one of these must give it up
// before the record is applied. What the record makes is left out. Of granted leases
// it lists only those that end, since nobody has cached anything about others.
//
// A change of a file that is open for write is listed though open files are
// not cached.
func (t *Tree) Affects(op Op) []Change { return op.affects(affected{t: t}).changes }

// affected collects changes.
type affected struct {
	t       *Tree
	changes []Change
}

// attr is for what stat shows of an inode; 0: of none.
func (a affected) attr(id InodeID) affected {
	if id != 0 {
		a.changes = append(a.changes, Change{Kind: ChangeAttr, Inode: id})
	}
	return a
}

// entry is for a name that comes, goes or gets another inode.
func (a affected) entry(dir InodeID, name string) affected {
	a.changes = append(a.changes, Change{Kind: ChangeName, Inode: dir, Name: name}, Change{Kind: ChangeEntries, Inode: dir})
	return a
}

// newEntry is for a name with the directories that are made above it.
func (a affected) newEntry(dir InodeID, dirs []string, name string) affected {
	return a.entry(dir, top(dirs, name))
}

// moved is for what has a name, if anything has, and gets another.
func (a affected) moved(dir InodeID, name string) affected {
	if n := a.t.lookup(dir, name); n != nil {
		a = a.entry(dir, name).attr(n.ID)
	}
	return a
}

// deleted is for files that are taken out of their directories.
func (a affected) deleted(ids ...InodeID) affected {
	for _, id := range ids {
		a = a.attr(id)
		if n := a.t.get(id); n != nil && n.Parent != 0 {
			a = a.entry(n.Parent, n.Name())
		}
	}
	return a
}
