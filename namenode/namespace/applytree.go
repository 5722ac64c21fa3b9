package namespace

import (
	"slices"
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
func (t *Tree) checkChain(c *chain, replace InodeID) (old *inode, err error) {
	if _, err := t.reachableDir(c.parent); err != nil {
		return nil, err
	}
	if err := checkNames(c.dirs, c.name); err != nil {
		return nil, err
	}
	if err := t.checkOwners(nil, "", "", c.user, c.group); err != nil {
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
func (t *Tree) makeChain(c *chain, old *inode, e *Entry) *inode {
	user, group := t.users.add(c.user, t.gen), t.groups.add(c.group, t.gen)
	top := c.name
	if len(c.dirs) > 0 {
		top = c.dirs[0]
	}
	parent := c.parent
	for _, name := range c.dirs {
		d := &inode{typ: TypeDir, mode: c.dirMode & modeBits, mtime: e.Time}
		d.ownExt().n = 1
		t.attach(d, parent, name, user, group, e)
		parent = d.id
	}
	t.attach(c.leaf, parent, c.name, user, group, e)
	t.touchEntry(e.TxID, c.parent, top)
	t.changeEntries(c.parent, delta(old == nil), e)
	return c.leaf
}

// attach numbers and names a new inode and hangs it into a directory, whose
// own attributes are the caller's affair.
func (t *Tree) attach(n *inode, parent InodeID, name string, user, group uint16, e *Entry) {
	if n.id == 0 {
		n.id = t.nextInode
		t.nextInode++
	}
	n.parent, n.user, n.group = parent, user, group
	if len(name) > inlineName {
		name = cloneString(name)
	}
	n.setName(name)
	t.put(n)
	t.dentries.ReplaceOrInsert(n)
	t.countType(n.typ, 1)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
}

func delta(grew bool) int64 {
	if grew {
		return 1
	}
	return 0
}

// changeEntries adds d to the number of a directory's entries and sets its
// mtime to the record's time.
func (t *Tree) changeEntries(dir InodeID, d int64, e *Entry) {
	n := t.get(dir).edit()
	n.mtime = e.Time
	if d != 0 {
		n.ownExt().n += d
		n.dropEmptyExt()
	}
	t.replace(n)
}

func (t *Tree) mkdir(op *OpMkdir, e *Entry) (Result, error) {
	last := len(op.Names) - 1
	if last < 0 {
		return Result{}, misfit("it has no name")
	}
	c := chain{
		parent: op.Parent, dirs: op.Names[:last], name: op.Names[last],
		// What mkdir -p makes on the way its maker can go on in (POSIX).
		dirMode: op.Mode | 0o300,
		leaf:    &inode{typ: TypeDir, mode: op.Mode & modeBits, mtime: e.Time},
		user:    op.User, group: op.Group,
	}
	if _, err := t.checkChain(&c, 0); err != nil {
		return Result{}, err
	}
	return Result{Inode: t.makeChain(&c, nil, e).id}, nil
}

func (t *Tree) symlink(op *OpSymlink, e *Entry) (Result, error) {
	if op.Target == "" {
		return Result{}, misfit("the link has no target")
	}
	target := []byte(op.Target)
	c := chain{
		parent: op.Parent, dirs: op.Dirs, name: op.Name, dirMode: op.DirMode,
		leaf: &inode{typ: TypeSymlink, mode: 0o777, mtime: e.Time, ext: &ext{tail: target[:len(target):len(target)]}},
		user: op.User, group: op.Group,
	}
	if _, err := t.checkChain(&c, 0); err != nil {
		return Result{}, err
	}
	return Result{Inode: t.makeChain(&c, nil, e).id}, nil
}

func (t *Tree) createAs(op *OpCreateAs, e *Entry) (Result, error) {
	switch {
	case len(op.Dirs) > 0 || op.Replace != 0:
		return Result{}, misfit("a file with a number set aside is made in a directory that exists, and replaces nothing")
	case !t.Reserved(op.Session, op.Inode):
		return Result{}, misfitf("inode number %d is not set aside for its session, or is used", op.Inode)
	}
	r, err := t.create(&op.OpCreate, op.Inode, e)
	if n, found := t.rangeOf(op.Session, op.Inode); err == nil && found {
		t.numbers.ReplaceOrInsert(n.use(op.Inode - n.first))
	}
	return r, err
}

// create makes a file, with a number that was set aside unless that is 0.
func (t *Tree) create(op *OpCreate, id InodeID, e *Entry) (Result, error) {
	leaf := &inode{id: id, typ: TypeFile, mode: op.Mode & modeBits, mtime: op.MTime}
	c := chain{
		parent: op.Parent, dirs: op.Dirs, name: op.Name, dirMode: op.DirMode,
		leaf: leaf, user: op.User, group: op.Group,
	}
	old, err := t.checkChain(&c, op.Replace)
	if err != nil {
		return Result{}, err
	}
	if old != nil && old.typ != TypeFile {
		return Result{}, misfitf("inode %d, which it replaces, is no file", old.id)
	}
	if op.Lease != 0 {
		if _, err := t.liveLease(op.Lease); err != nil {
			return Result{}, err
		}
	}
	if leaf.mtime == 0 {
		leaf.mtime = e.Time
	}
	if len(op.Data) > 0 || !op.Closed {
		leaf.ext = &ext{tail: copyTail(op.Data)}
	}
	if !op.Closed {
		leaf.ext.open = &openState{grant: t.grant(op.Holder, op.Token, e)}
	}

	var r Result
	if old != nil {
		r.Closed = t.free(old, e, ReasonReplaced)
	}
	t.makeChain(&c, old, e)
	if op.Lease != 0 {
		t.attachTo(op.Lease, leaf.id, e)
	}
	r.Inode, r.Length = leaf.id, leaf.length()
	if !op.Closed {
		t.open.ReplaceOrInsert(leaf.id)
		o := leaf.openFile()
		r.Opened = &o
	}
	return r, nil
}

func (t *Tree) grant(h Holder, token Token, e *Entry) *grant {
	return &grant{holder: t.shareHolder(h), epoch: e.TxID, token: token, since: e.Time}
}

func (t *Tree) rename(op *OpRename, e *Entry) (Result, error) {
	n := t.lookup(op.FromParent, op.FromName)
	if n == nil {
		return Result{}, misfitf("directory %d has no entry %q", op.FromParent, op.FromName)
	}
	if _, err := t.reachableDir(op.FromParent); err != nil {
		return Result{}, err
	}
	to, err := t.reachableDir(op.ToParent)
	if err != nil {
		return Result{}, err
	}
	if err := checkNames(nil, op.ToName); err != nil {
		return Result{}, err
	}
	old, err := t.entry(op.ToParent, op.ToName, op.Replace)
	if err != nil {
		return Result{}, err
	}
	if old == n {
		return Result{}, misfit("it renames an inode to the name that it has")
	}
	if old != nil && ((old.typ == TypeDir) != (n.typ == TypeDir) || old.typ == TypeDir && old.entries() > 0) {
		return Result{}, misfitf("inode %d cannot replace inode %d", n.id, old.id)
	}
	if op.Detach {
		if err := t.attachable(n.id); err != nil {
			return Result{}, err
		}
	}
	if n.typ == TypeDir && t.isBelow(to, n.id) {
		return Result{}, misfitf("directory %d would be inside itself", n.id)
	}

	if op.Detach {
		t.unattach(n.id, e)
	}
	t.dentries.Delete(n)
	var closed []ClosedFile
	if old != nil {
		t.dentries.Delete(old)
		closed = t.free(old, e, ReasonReplaced)
	}
	r := t.move(n, op.ToParent, op.ToName, delta(old == nil), e)
	r.Closed = closed
	return r, nil
}

// move gives an inode, which is no entry any more, another place. grown is by
// how many entries the directory that it comes to grows.
func (t *Tree) move(n *inode, dir InodeID, name string, grown int64, e *Entry) Result {
	from, fromName := n.parent, n.nameString()
	moved := n.edit()
	moved.parent = dir
	if len(name) > inlineName {
		name = cloneString(name)
	}
	moved.setName(name)
	t.replace(moved)
	if from == dir {
		t.changeEntries(dir, grown-1, e)
	} else {
		t.changeEntries(from, -1, e)
		t.changeEntries(dir, grown, e)
	}
	t.touchEntry(e.TxID, from, fromName)
	t.touchEntry(e.TxID, dir, name)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
	return Result{Inode: n.id, Length: moved.length(), BlocksLength: moved.blocksLength()}
}

// hide gives a file a hidden name, and what was its name to another.
func (t *Tree) hide(op *OpHide, e *Entry) (Result, error) {
	if _, err := t.reachableDir(op.Parent); err != nil {
		return Result{}, err
	}
	n, err := t.entry(op.Parent, op.Name, op.Inode)
	if err != nil {
		return Result{}, err
	}
	switch {
	case n == nil || n.typ != TypeFile:
		return Result{}, misfitf("entry %q of directory %d is no file", op.Name, op.Parent)
	case t.lookup(op.Parent, op.Hidden) != nil:
		return Result{}, misfitf("directory %d has an entry %q already", op.Parent, op.Hidden)
	}
	if err := checkNames(nil, op.Hidden); err != nil {
		return Result{}, err
	}
	if _, err := t.liveLease(op.Lease); err != nil {
		return Result{}, err
	}
	if err := t.attachable(n.id); err != nil {
		return Result{}, err
	}
	var src *inode
	if op.FromParent != 0 {
		if _, err := t.reachableDir(op.FromParent); err != nil {
			return Result{}, err
		}
		src = t.lookup(op.FromParent, op.FromName)
		switch {
		case src == nil || src == n || src.typ == TypeDir:
			return Result{}, misfitf("entry %q of directory %d cannot replace inode %d", op.FromName, op.FromParent, n.id)
		case op.Detach:
			if err := t.attachable(src.id); err != nil {
				return Result{}, err
			}
		}
	}

	t.attachTo(op.Lease, n.id, e)
	t.dentries.Delete(n)
	r := t.move(n, op.Parent, op.Hidden, 1, e)
	if src != nil {
		if op.Detach {
			t.unattach(src.id, e)
		}
		t.dentries.Delete(src)
		t.move(src, op.Parent, op.Name, 1, e)
	}
	return r, nil
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

func (t *Tree) remove(op *OpDelete, e *Entry) (Result, error) {
	if _, err := t.reachableDir(op.Parent); err != nil {
		return Result{}, err
	}
	n, err := t.entry(op.Parent, op.Name, op.Inode)
	if err != nil {
		return Result{}, err
	}
	if n == nil {
		return Result{}, misfit("it names no inode")
	}
	return Result{Inode: n.id, Closed: t.unlink(n, e)}, nil
}

// unlink takes an entry out of its directory. A directory with entries is
// detached, anything else freed at once.
func (t *Tree) unlink(n *inode, e *Entry) []ClosedFile {
	var closed []ClosedFile
	dir, name := n.parent, n.nameString()
	if n.typ == TypeDir && n.entries() > 0 {
		for _, f := range t.openBelow(n) {
			closed = append(closed, closedFile(f, ReasonDeleted))
			t.shut(f.edit(), e)
		}
		t.detach(n, e)
	} else {
		t.dentries.Delete(n)
		closed = t.free(n, e, ReasonDeleted)
	}
	t.touchEntry(e.TxID, dir, name)
	t.changeEntries(dir, -1, e)
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

func (t *Tree) setAttr(op *OpSetAttr, e *Entry) (Result, error) {
	n := t.get(op.Inode)
	if n == nil {
		return Result{}, misfitf("there is no inode %d", op.Inode)
	}
	if err := t.checkOwners(nil, "", "", op.User, op.Group); err != nil {
		return Result{}, err
	}
	n = n.edit()
	if op.SetMode {
		n.mode = op.Mode & modeBits
	}
	if op.User != "" {
		n.user = t.users.add(op.User, t.gen)
	}
	if op.Group != "" {
		n.group = t.groups.add(op.Group, t.gen)
	}
	if op.SetMTime {
		n.mtime = op.MTime
		if n.mtime == 0 {
			n.mtime = e.Time
		}
	}
	t.replace(n)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
	return Result{Inode: n.id, Length: n.length(), BlocksLength: n.blocksLength()}, nil
}
