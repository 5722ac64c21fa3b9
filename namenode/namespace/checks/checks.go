// Package checks compares all parts of a tree with each other.
package checks

import (
	"fmt"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Tree are the parts of a tree.
type Tree struct {
	Slots          *node.Table
	Open, Detached *tables.Set[tables.InodeID]
	Trash          *tables.Trash
	Quotas         *quota.Table[node.Ext]
	Xattrs         *tables.Xattrs
	ACLs           *acl.Table
	Names          *tables.Named
	Blocks         *tables.Set[blockstore.Key]
	Garbage        *tables.Garbage
	Snapshots      *snapshots.Table
	Counts         calls.Counts
	Next           tables.InodeID // number of an inode to come
	TxID           uint64         // of the last record
	Reigned        int64

	Reachable func(*node.Inode) bool      // whether it is in the tree
	Stored    func(dir *node.Inode) int64 // how many entries it has in memory
	Rest      func(tables.Problem)        // checks the tables that are not here
}

// maxProblems is how many problems Check lists.
const maxProblems = 1000

// checker collects what a tree's parts disagree about.
type checker struct {
	t        *Tree
	problems []string
	keys     map[blockstore.Key]tables.InodeID
	counts   calls.Counts
	uses     tables.OwnerUses
	hangs    map[tables.InodeID]bool // directories that are known to hang from a top
}

func (c *checker) problem(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// Check compares all parts of the tree with each other and returns what does
// not fit, one line each, at most 1,000; nil for a sound tree. It looks at
// everything and takes memory for each block, so it is meant for clones.
func Check(t *Tree) []string {
	c := &checker{t: t, keys: make(map[blockstore.Key]tables.InodeID), hangs: make(map[tables.InodeID]bool)}
	t.Slots.EachInode(0, func(n *node.Inode) bool {
		c.inode(n)
		return len(c.problems) < maxProblems
	})
	if len(c.problems) < maxProblems {
		c.entries()
		c.counts.XattrBytes = c.t.Xattrs.Check(c.problem, func(id tables.InodeID) *int64 {
			if n := c.t.Slots.Inode(id); n != nil {
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

func (c *checker) inode(n *node.Inode) {
	t := c.t
	c.counts.Inodes++
	if n.Mode&node.ACLBit != 0 {
		c.counts.ACLs++
	}
	n.Check(c.problem, t.TxID)
	c.counts.Add(n.Type, 1)
	if n.Type == calls.TypeFile {
		c.file(n)
	}
	switch {
	case n.ID >= t.Next:
		c.problem("inode %d is not below the next number %d", n.ID, t.Next)
	case int(n.User) >= t.Names.UserNames.Len() || int(n.Group) >= t.Names.GroupNames.Len():
		c.problem("inode %d has an unknown owner or group", n.ID)
	case n.Parent == 0:
		kept := t.Trash.Get(n.ID) != nil
		if n.Type != calls.TypeDir && !kept || kept == (n.ID == calls.RootID || t.Detached.Has(n.ID)) || n.NameLen != 0 || n.Open() != nil {
			c.problem("inode %d has no parent", n.ID)
		}
	default:
		c.entry(n)
	}
}

// entry checks an inode that has a parent.
func (c *checker) entry(n *node.Inode) {
	name := n.Name()
	if err := fspath.CheckName(name); err != nil {
		c.problem("inode %d: %v", n.ID, err)
	}
	dir := c.t.Slots.Inode(n.Parent)
	switch {
	case dir == nil || dir.Type != calls.TypeDir:
		c.problem("inode %d is in %d, which is no directory", n.ID, n.Parent)
	case !c.hang(dir):
		c.problem("inode %d hangs neither from the root nor from a deleted directory", n.ID)
	}
	if n.ID == calls.RootID || c.t.Detached.Has(n.ID) || c.t.Trash.Get(n.ID) != nil {
		c.problem("inode %d has a parent and should not", n.ID)
	}
}

// hang reports whether going up from a directory ends.
func (c *checker) hang(dir *node.Inode) bool { return c.t.Slots.Hangs(dir, c.hangs) }

// inTree is Tree.reachable for a tree that may have circles.
func (c *checker) inTree(n *node.Inode) bool {
	dir := c.t.Slots.Inode(n.Parent)
	return dir != nil && c.hang(dir) && c.t.Reachable(n)
}

func (c *checker) file(n *node.Inode) {
	t := c.t
	for _, b := range n.Blocks() {
		c.counts.StoredBytes += int64(b.Stored)
		if other, twice := c.keys[b.Key]; twice {
			c.problem("block %d.%d is in file %d and in file %d", b.Key.Term, b.Key.Seq, other, n.ID)
		}
		c.keys[b.Key] = n.ID
		if !t.Blocks.Has(b.Key) {
			c.problem("block %d.%d of file %d is not in the index", b.Key.Term, b.Key.Seq, n.ID)
		}
		if t.Garbage.Has(b.Key) {
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
	case !t.Open.Has(n.ID):
		c.problem("file %d is open but not in the index", n.ID)
	case !c.inTree(n):
		c.problem("file %d is open but deleted", n.ID)
	}
}

// entries counts the entries of each directory.
func (c *checker) entries() {
	t := c.t
	count := t.Slots.Check(c.problem)
	t.Slots.EachInode(0, func(n *node.Inode) bool {
		if n.Type == calls.TypeDir && t.Stored(n) != count[n.ID] {
			c.problem("directory %d has %d entries, but counts %d", n.ID, count[n.ID], t.Stored(n))
		}
		return true
	})
	if root := t.Slots.Inode(calls.RootID); root == nil || root.Type != calls.TypeDir || root.Parent != 0 {
		c.problem("there is no root directory")
	}
}

// indexes compares counts with what was seen.
func (c *checker) indexes() {
	t, have := c.t, c.t.Counts
	c.counts.Blocks, c.counts.Garbage, c.counts.Detached, c.counts.Sessions = len(c.keys), have.Garbage, have.Detached, have.Sessions
	c.counts.Leases, c.counts.Attached, c.counts.GarbageBytes, c.counts.Passes, c.counts.Trashed = have.Leases, have.Attached, have.GarbageBytes, have.Passes, have.Trashed
	c.counts.Snapshots, c.counts.Held, c.counts.HeldBytes = have.Snapshots, have.Held, have.HeldBytes
	if have != c.counts {
		c.problem("counts are %+v, but should be %+v", have, c.counts)
	}
	for i, have := range t.Names.Uses {
		if want := *c.uses.Of(uint16(i)); have != want { //nolint:gosec // at most MaxOwners
			c.problem("files of user %s take %+v, but should %+v", t.Names.UserNames.Name(uint16(i)), have, want) //nolint:gosec // the same
		}
	}
	if n := t.Slots.Entries() + 1 + t.Detached.Len() + t.Trash.Len(); n != have.Inodes {
		c.problem("%d inodes have a place, %d are there", n, have.Inodes)
	}
	t.Open.Ascend(func(id tables.InodeID) bool {
		if n := t.Slots.Inode(id); n == nil || n.Open() == nil {
			c.problem("file %d is in the index of open files but is not open", id)
		}
		return true
	})
	t.Detached.Ascend(func(id tables.InodeID) bool {
		if n := t.Slots.Inode(id); n == nil || n.Parent != 0 || n.Type != calls.TypeDir || id == calls.RootID {
			c.problem("inode %d is no deleted directory", id)
		}
		return true
	})
}

// tables has the tables check themselves.
func (c *checker) tables() {
	t := c.t
	t.Garbage.Check(c.problem, t.Blocks.Has)
	t.Trash.Check(c.problem, t.Next, t.Reigned)
	t.Quotas.Check(c.problem, &t.Slots.Table, t.Slots.IsDir)
	t.Rest(c.problem)
	t.Snapshots.Check(c.problem, t.Slots, t.Slots.IsDir, func(id tables.InodeID) bool { return t.Reachable(t.Slots.Inode(id)) }, func(k blockstore.Key) tables.InodeID {
		return c.keys[k]
	}, t.Blocks.Has)
}

// acls checks who has ACLs, and what these are counted for.
func (c *checker) acls() {
	t := c.t
	t.ACLs.Check(c.problem, func(id tables.InodeID) (has, isDir bool) {
		n := t.Slots.Inode(id)
		return n != nil && n.Mode&node.ACLBit != 0, n != nil && n.Type == calls.TypeDir
	}, func(user uint16, bytes int64) {
		c.uses.Of(user).ACLs += bytes
		c.counts.ACLBytes += bytes
	})
}
