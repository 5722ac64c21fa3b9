package namespace

// Affects returns what a record, planned on the tree as it is now, will change
// of what callers can look at: who has cached one of these must give it up
// before the record is applied. What the record makes is left out, and so
// are the granted leases, since nobody can have cached those.
//
// A change of a file that is open for write is listed though open files are
// not cached.
func (t *Tree) Affects(op Op) []Change {
	a := affected{t: t}
	switch op := op.(type) {
	case *OpMkdir:
		a.newEntry(op.Parent, nil, op.Names[0])
	case *OpCreate:
		a.newEntry(op.Parent, op.Dirs, op.Name)
		a.attr(op.Replace)
	case *OpCreateAs:
		a.newEntry(op.Parent, nil, op.Name)
		a.attr(op.Inode) // that there is none of this number may have been cached
	case *OpSymlink:
		a.newEntry(op.Parent, op.Dirs, op.Name)
	case *OpOpen:
		a.attr(op.Inode)
	case *OpAppendTail:
		a.attr(op.Inode)
	case *OpCommit:
		a.attr(op.Inode)
	case *OpClose:
		a.attr(op.Inode)
	case *OpRecover:
		a.attr(op.Inode)
	case *OpSetAttr:
		a.attr(op.Inode)
	case *OpTruncate:
		a.attr(op.Inode)
	case *OpCut:
		a.attr(op.Inode)
	case *OpXattr:
		a.attr(op.Inode)
	case *OpHide:
		a.entry(op.Parent, op.Name)
		a.entry(op.Parent, op.Hidden)
		a.attr(op.Inode)
		if n := t.lookup(op.FromParent, op.FromName); n != nil {
			a.entry(op.FromParent, op.FromName)
			a.attr(n.id)
		}
	case *OpAttach:
		a.attr(op.Inode)
	case *OpDetach:
		a.attr(op.Inode)
	case *OpRename:
		a.entry(op.FromParent, op.FromName)
		a.entry(op.ToParent, op.ToName)
		a.attr(op.Replace)
		if n := t.lookup(op.FromParent, op.FromName); n != nil {
			a.attr(n.id)
		}
	case *OpDelete:
		a.entry(op.Parent, op.Name)
		a.attr(op.Inode)
	case *OpConcat:
		a.attr(op.Target)
		for _, id := range op.Sources {
			a.deleted(id)
		}
	case *OpEndLease:
		for _, id := range t.toDelete(endFiles, op.ID) {
			a.deleted(id)
		}
	case *OpReap:
		for _, id := range t.toDelete(int(op.Limit), op.ID) {
			a.deleted(id)
		}
	}
	return a.changes
}

// affected collects changes.
type affected struct {
	t       *Tree
	changes []Change
}

func (a *affected) attr(id InodeID) {
	if id != 0 {
		a.changes = append(a.changes, Change{Kind: ChangeAttr, Inode: id})
	}
}

func (a *affected) entry(dir InodeID, name string) {
	a.changes = append(a.changes, Change{Kind: ChangeName, Inode: dir, Name: name}, Change{Kind: ChangeEntries, Inode: dir})
}

func (a *affected) newEntry(dir InodeID, dirs []string, name string) {
	if len(dirs) > 0 {
		name = dirs[0]
	}
	a.entry(dir, name)
}

// deleted is for a file that is taken out of its directory.
func (a *affected) deleted(id InodeID) {
	a.attr(id)
	if n := a.t.get(id); n != nil && n.parent != 0 {
		a.entry(n.parent, n.nameString())
	}
}
