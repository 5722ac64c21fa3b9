package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Limits of a namespace.
const (
	// MaxLinks is how many symbolic links one path may lead through, as in Linux.
	MaxLinks = 40
	// MaxTarget is how many bytes the target of a symbolic link may have.
	MaxTarget = 4096
	// MaxConcat is how many sources one concat may have.
	MaxConcat = 1000
)

// Tree is a namespace: the state that a journal describes. Methods that read
// may run at the same time; those that change (Apply, Clone, SetDurable,
// Track) need the tree alone. A clone may be read without any lock.
type Tree struct {
	// frozen: this is a clone, which nothing changes any more.
	frozen bool
	inodes
	space
	tables.Clients
	history
	snaps snapshots.Table
	past  *past // nil: it is the present

	// What follows is no state: it is neither in the image nor compared.

	holders tables.Holders // empty in a clone
	tracker calls.Tracker  // changes that are not durable
	events  bool           // whether records make events
}

// New returns an empty namespace: a root directory that belongs to nobody. The
// first record must be an OpActivate.
func New() *Tree {
	t := newTree()
	t.nextInode = RootID + 1
	t.put(&inode{ID: RootID, Type: TypeDir, Mode: 0o755})
	t.counts.Dirs = 1
	return t
}

// newTree has not even a root.
func newTree() *Tree {
	return &Tree{
		inodes: inodes{
			slots:    node.NewTable(),
			open:     tables.NewSet(cmp.Less[InodeID]),
			detached: tables.NewSet(cmp.Less[InodeID]),
			trash:    tables.NewTrash(),
			quotas:   quota.NewTable(node.FileLength),
			xattrs:   tables.NewXattrs(),
			acls:     acl.NewTable(),
			Named:    tables.Named{UserNames: tables.NewOwners(), GroupNames: tables.NewOwners()},
			granted:  granted{tables.Granted{Grants: tables.NewLeases()}},
		},
		space:   space{blocks: tables.NewSet(blockstore.Key.Less), garbage: tables.NewGarbage()},
		history: history{at: levels.State{Level: levels.First}},
		snaps:   snapshots.NewTable(),
		Clients: tables.Clients{ResultTable: tables.NewResults(), AgeTable: tables.NewAges(), CacherTable: tables.NewCachers(), PassTable: tables.NewPasses()},
	}
}

// Clone returns a snapshot of the tree as it is now, in constant time. It never
// changes and may be read by anyone without a lock; Apply on it fails. What the
// tree changes later it copies first, where the clone shares it.
func (t *Tree) Clone() *Tree {
	if t.frozen {
		return t
	}
	c := copied(t)
	c.frozen = true
	c.ResultTable = t.ResultTable.Clone()
	c.CacherTable = t.CacherTable.Clone()
	c.tracker = t.tracker.Clone()
	return &c
}

// copied returns a copy of the tree. Call results and what sessions may cache are
// shared: the copy must not change them.
func copied(t *Tree) Tree {
	c := *t
	c.slots = t.slots.Clone()
	c.open = t.open.Clone()
	c.detached = t.detached.Clone()
	c.blocks = t.blocks.Clone()
	c.garbage = t.garbage.Clone()
	c.Grants = t.Grants.Clone()
	c.AgeTable = t.AgeTable.Clone()
	c.PassTable = t.PassTable.Clone()
	c.trash = t.trash.Clone()
	c.quotas = t.quotas.Clone()
	c.xattrs = t.xattrs.Clone()
	c.acls = t.acls.Clone()
	c.UserNames = t.UserNames.Clone()
	c.GroupNames = t.GroupNames.Clone()
	c.reigns = t.reigns.Clone()
	c.snaps = t.snaps.Clone()
	c.events = false
	c.holders, c.Uses = nil, nil
	return c
}

// InSafeMode is SafeMode for a call, which has then looked at it.
func (t *Tree) InSafeMode(c *Call) bool {
	t.look(c, safeModeChange)
	return t.safeMode
}

// Counts returns the sizes of the tree, in constant time.
func (t *Tree) Counts() calls.Counts {
	c := t.counts
	c.Inodes = c.Files + c.Dirs + c.Symlinks
	c.Held, c.HeldBytes = t.snaps.Held()
	c.Blocks = t.blocks.Len() - c.Held
	c.Snapshots = t.snaps.Len()
	c.Open = t.open.Len()
	c.Garbage = t.garbage.Len()
	c.Detached = t.detached.Len()
	c.GarbageBytes = t.garbage.Bytes()
	c.Sessions = t.ResultTable.Len()
	c.Leases = t.Grants.Len()
	c.Attached = t.Grants.Attached()
	c.ACLs = t.acls.Len()
	c.Passes = t.PassTable.Len()
	c.Trashed = t.trash.Len()
	return c
}

// CountReachable is Counts of what has a path: of Inodes, Files, Dirs and Symlinks what
// was deleted, or is dead, and is still to be freed does not count. It takes the time of a walk of that.
// As Walk it is meant for clones.
func (t *Tree) CountReachable() calls.Counts {
	c := t.Counts()
	var tops []InodeID
	gone := func(n *inode) {
		c.Inodes--
		c.Add(n.Type, -1)
	}
	top := func(id InodeID) bool {
		tops = append(tops, id)
		gone(t.get(id))
		return true
	}
	t.detached.Ascend(top)
	t.trash.Due(func(e *tables.Trashed) bool { return top(e.Inode) })
	t.Grants.EachDead(func(id InodeID) {
		if t.reachable(t.get(t.get(id).Parent), nil) {
			top(id)
		}
	})
	t.slots.EachBelow(tops, gone)
	return c
}
