package namespace

import (
	"fmt"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// maxProblems is how many problems Check lists.
const maxProblems = 1000

// checker collects what a tree's parts disagree about.
type checker struct {
	t        *Tree
	problems []string
	keys     map[blockstore.Key]InodeID
	counts   calls.Counts
	uses     tables.OwnerUses
	hangs    map[InodeID]bool // directories that are known to hang from a top
}

func (c *checker) problem(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// Check compares all parts of the tree with each other and returns what does
// not fit, one line each, at most 1,000; nil for a sound tree. It looks at
// everything and takes memory for each block, so it is meant for clones.
func (t *Tree) Check() []string {
	c := &checker{t: t, keys: make(map[blockstore.Key]InodeID), hangs: make(map[InodeID]bool)}
	t.each(0, func(n *inode) bool {
		c.inode(n)
		return len(c.problems) < maxProblems
	})
	if len(c.problems) < maxProblems {
		c.entries()
		c.counts.XattrBytes = c.t.xattrs.Check(c.problem, func(id InodeID) *int64 {
			if n := c.t.get(id); n != nil {
				return &c.uses.Of(n.User).Xattrs
			}
			return nil
		})
		c.acls()
		c.indexes()
		c.tables()
	}
	return c.problems
}

func (c *checker) inode(n *inode) {
	t := c.t
	c.counts.Inodes++
	if n.Mode&node.ACLBit != 0 {
		c.counts.ACLs++
	}
	n.Check(c.problem, t.txid)
	c.counts.Add(n.Type, 1)
	if n.Type == TypeFile {
		c.file(n)
	}
	switch {
	case n.ID >= t.nextInode:
		c.problem("inode %d is not below the next number %d", n.ID, t.nextInode)
	case int(n.User) >= t.UserNames.Len() || int(n.Group) >= t.GroupNames.Len():
		c.problem("inode %d has an unknown owner or group", n.ID)
	case n.Parent == 0:
		kept := t.trash.Get(n.ID) != nil
		if n.Type != TypeDir && !kept || kept == (n.ID == RootID || t.detached.Has(n.ID)) || n.NameLen != 0 || n.Open() != nil {
			c.problem("inode %d has no parent", n.ID)
		}
	default:
		c.entry(n)
	}
}

// entry checks an inode that has a parent.
func (c *checker) entry(n *inode) {
	name := n.Name()
	if err := fspath.CheckName(name); err != nil {
		c.problem("inode %d: %v", n.ID, err)
	}
	dir := c.t.get(n.Parent)
	switch {
	case dir == nil || dir.Type != TypeDir:
		c.problem("inode %d is in %d, which is no directory", n.ID, n.Parent)
	case !c.hang(dir):
		c.problem("inode %d hangs neither from the root nor from a deleted directory", n.ID)
	}
	if n.ID == RootID || c.t.detached.Has(n.ID) || c.t.trash.Get(n.ID) != nil {
		c.problem("inode %d has a parent and should not", n.ID)
	}
}

// hang reports whether going up from a directory ends.
func (c *checker) hang(dir *inode) bool { return c.t.slots.Hangs(dir, c.hangs) }

// inTree is Tree.reachable for a tree that may have circles.
func (c *checker) inTree(n *inode) bool {
	dir := c.t.get(n.Parent)
	return dir != nil && c.hang(dir) && c.t.reachable(n, nil)
}

func (c *checker) file(n *inode) {
	t := c.t
	for _, b := range n.Blocks() {
		c.counts.StoredBytes += int64(b.Stored)
		if other, twice := c.keys[b.Key]; twice {
			c.problem("block %d.%d is in file %d and in file %d", b.Key.Term, b.Key.Seq, other, n.ID)
		}
		c.keys[b.Key] = n.ID
		if !t.blocks.Has(b.Key) {
			c.problem("block %d.%d of file %d is not in the index", b.Key.Term, b.Key.Seq, n.ID)
		}
		if t.garbage.Has(b.Key) {
			c.problem("block %d.%d of file %d is garbage", b.Key.Term, b.Key.Seq, n.ID)
		}
	}
	c.counts.AddTail(n.TailMemory(), n.Open() != nil, 1)
	c.uses.Of(n.User).Tails += n.TailMemory()
	if n.Open() == nil {
		return
	}
	c.counts.Open++
	switch {
	case !t.open.Has(n.ID):
		c.problem("file %d is open but not in the index", n.ID)
	case !c.inTree(n):
		c.problem("file %d is open but deleted", n.ID)
	}
}

// entries counts the entries of each directory.
func (c *checker) entries() {
	t := c.t
	count := t.slots.Check(c.problem)
	t.each(0, func(n *inode) bool {
		if n.Type == TypeDir && t.stored(n) != count[n.ID] {
			c.problem("directory %d has %d entries, but counts %d", n.ID, count[n.ID], t.stored(n))
		}
		return true
	})
	if root := t.get(RootID); root == nil || root.Type != TypeDir || root.Parent != 0 {
		c.problem("there is no root directory")
	}
}

// indexes compares counts with what was seen.
func (c *checker) indexes() {
	t, have := c.t, c.t.Counts()
	c.counts.Blocks, c.counts.Garbage, c.counts.Detached, c.counts.Sessions = len(c.keys), have.Garbage, have.Detached, have.Sessions
	c.counts.Leases, c.counts.Attached, c.counts.GarbageBytes, c.counts.Passes, c.counts.Trashed = have.Leases, have.Attached, have.GarbageBytes, have.Passes, have.Trashed
	if have != c.counts {
		c.problem("counts are %+v, but should be %+v", have, c.counts)
	}
	for i, have := range t.Uses {
		if want := *c.uses.Of(uint16(i)); have != want { //nolint:gosec // at most MaxOwners
			c.problem("files of user %s take %+v, but should %+v", t.UserNames.Name(uint16(i)), have, want) //nolint:gosec // the same
		}
	}
	if n := t.slots.Entries() + 1 + t.detached.Len() + t.trash.Len(); n != have.Inodes {
		c.problem("%d inodes have a place, %d are there", n, have.Inodes)
	}
	t.open.Ascend(func(id InodeID) bool {
		if n := t.get(id); n == nil || n.Open() == nil {
			c.problem("file %d is in the index of open files but is not open", id)
		}
		return true
	})
	t.detached.Ascend(func(id InodeID) bool {
		if n := t.get(id); n == nil || n.Parent != 0 || n.Type != TypeDir || id == RootID {
			c.problem("inode %d is no deleted directory", id)
		}
		return true
	})
}

// tables has the tables check themselves.
func (c *checker) tables() {
	t := c.t
	t.garbage.Check(c.problem, t.blocks.Has)
	t.ResultTable.Check(c.problem)
	t.Grants.Check(c.problem, t.whereAttached)
	t.AgeTable.Check(c.problem, t.canAge)
	t.CacherTable.Check(c.problem, t.nextInode)
	t.trash.Check(c.problem, t.nextInode, t.reigned)
	t.quotas.Check(c.problem, &t.slots.Table, t.IsDir)
	t.PassTable.Check(c.problem, t.txid, t.time)
}

// acls checks who has ACLs, and what these are counted for.
func (c *checker) acls() {
	t := c.t
	t.acls.Check(c.problem, func(id InodeID) (has, isDir bool) {
		n := t.get(id)
		return n != nil && n.Mode&node.ACLBit != 0, n != nil && n.Type == TypeDir
	}, func(user uint16, bytes int64) {
		c.uses.Of(user).ACLs += bytes
		c.counts.ACLBytes += bytes
	})
}
