package namespace

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
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
	kept    *acl.ACL // of the file that the leaf replaces
}

// checkChain says why a chain cannot be made. replace is what the leaf's name
// must be now; 0: not taken.
func (t applier) checkChain(c *chain, replace InodeID) (old *inode, err error) {
	if _, err := t.reachableDir(c.parent); err != nil {
		return nil, err
	}
	if err := fspath.CheckNames(c.dirs, c.name); err != nil {
		return nil, err
	}
	if err := t.Fit(c.user, c.group); err != nil {
		return nil, err
	}
	if t.nextInode+InodeID(len(c.dirs)) >= 1<<snapshots.Bits {
		return nil, noNumbers
	}
	if len(c.dirs) > 0 && replace != 0 {
		return nil, misfit("it replaces a file in a directory that is yet to be made")
	}
	return t.entry(c.parent, top(c.dirs, c.name), replace)
}

const noNumbers = misfit("the namespace has given a number to as many inodes as it can have")

// top is the first of the names of a chain.
func top(dirs []string, name string) string {
	if len(dirs) > 0 {
		return dirs[0]
	}
	return name
}

// makeChain makes a chain that was checked. If old is not nil the leaf takes
// its place; the old inode was freed already.
func (t applier) makeChain(c *chain, old *inode) *inode {
	user, group := t.UserNames.Add(c.user), t.GroupNames.Add(c.group)
	parent, byDefault := c.parent, t.defaultOf(c.parent)
	for _, name := range c.dirs {
		d := &inode{Type: TypeDir, Mode: c.dirMode & node.ModeBits, MTime: t.now.Time}
		d.OwnExt().N = 1
		t.attach(d, parent, name, user, group, d.Inherit(byDefault))
		parent = d.ID
	}
	acls := acl.Of{Access: c.kept}
	if old == nil {
		acls = c.leaf.Inherit(byDefault)
	}
	t.attach(c.leaf, parent, c.name, user, group, acls)
	t.touchEntry(c.parent, top(c.dirs, c.name))
	t.changeEntries(c.parent, delta(old == nil))
	return c.leaf
}

// attach numbers and names a new inode and hangs it into a directory, whose
// own attributes are the caller's affair.
func (t applier) attach(n *inode, parent InodeID, name string, user, group uint16, acls acl.Of) {
	if n.ID == 0 {
		n.ID = t.nextInode
		t.nextInode++
	}
	n.Parent, n.User, n.Group = parent, user, group
	if acls.Inode = n.ID; acls.Access != nil || acls.Default != nil {
		n.Mark(t.acls.Give(acls, user, t.countACL))
	}
	if len(name) > node.Inline {
		name = strings.Clone(name)
	}
	n.SetName(name)
	t.clear(parent, name)
	t.put(n)
	t.slots.LinkInode(n)
	t.quotas.Moved(&t.slots.Table, n.ID, 0, parent)
	t.counts.Add(n.Type, 1)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
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
	n := t.get(dir).Edit()
	n.MTime = t.now.Time
	if d != 0 {
		n.OwnExt().N += d
		n.DropEmptyExt()
	}
	t.put(n)
}

func (t applier) grant(h Holder, token Token) *node.Grant {
	return &node.Grant{Holder: t.holders.Share(h), Epoch: t.now.TxID, Token: token, Since: t.now.Time}
}

// move gives an inode, which is no entry any more, another place. grown is by
// how many entries the directory that it comes to grows.
func (t applier) move(n *inode, dir InodeID, name string, grown int64) Result {
	from, fromName := n.Parent, n.Name()
	moved := n.Edit()
	moved.Parent = dir
	if len(name) > node.Inline {
		name = strings.Clone(name)
	}
	moved.SetName(name)
	t.clear(dir, name)
	t.put(moved)
	t.slots.LinkInode(moved)
	t.quotas.Moved(&t.slots.Table, n.ID, from, dir)
	t.Grants.Move(n.ID, from, dir)
	switch from {
	case 0: // it was in the trash
		t.trash.Take(n.ID)
		t.touch(trashChange)
		t.changeEntries(dir, grown)
		t.touchEntry(dir, name)
		t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
		return Result{Inode: n.ID, Length: moved.Length(), BlocksLength: moved.BlocksLength()}
	case dir:
		t.changeEntries(dir, grown-1)
	default:
		t.changeEntries(from, -1)
		t.changeEntries(dir, grown)
	}
	t.touchEntry(from, fromName)
	t.touchEntry(dir, name)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	return Result{Inode: n.ID, Length: moved.Length(), BlocksLength: moved.BlocksLength()}
}

// clear removes a dead entry from a name that something else is about to get.
func (t applier) clear(dir InodeID, name string) {
	if n := t.named(dir, name); n != nil && t.isDead(n) {
		t.takeOut(n, ReasonDeleted)
	}
}

// unlink takes an entry out of its directory.
func (t applier) unlink(n *inode) []ClosedFile {
	var closed []ClosedFile
	dir, name := n.Parent, n.Name()
	if n.Type == TypeDir && n.Entries() > 0 {
		for _, f := range t.openBelow(n) {
			closed = append(closed, closedFile(f, ReasonDeleted))
			t.shut(f.Edit())
		}
	}
	closed = append(closed, t.takeOut(n, ReasonDeleted)...)
	t.touchEntry(dir, name)
	t.changeEntries(dir, -1)
	return closed
}

// detach makes a directory without a parent the top of a deleted subtree.
func (t applier) detach(id InodeID) {
	t.detached.ReplaceOrInsert(id)
	t.quotas.Drop(id) // what is below it need not be counted any more
}

// takeOut removes an entry without changing its directory's count of entries: the caller
// does, or End did for a dead one. A directory with entries is detached, anything else freed
// at once.
func (t applier) takeOut(n *inode, reason string) []ClosedFile {
	if ms := t.keeps(n); ms > 0 {
		return t.throwAway(n, ms, reason)
	}
	if n.Type == TypeDir && t.stored(n) > 0 {
		t.hangOff(n)
		t.detach(n.ID)
		return nil
	}
	t.quotas.Moved(&t.slots.Table, n.ID, n.Parent, 0)
	t.slots.UnlinkInode(n)
	return t.free(n, reason)
}
