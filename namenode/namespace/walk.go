package namespace

import (
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// Walk calls fn for the inode root and for all that is below it: a directory
// before its entries, entries by name. Paths are absolute and good until fn
// returns: all are in one buffer, so that memory grows with the depth alone.
// If fn returns fs.SkipDir for a directory its entries are left out; any other
// error ends the walk and is returned. It is meant for clones: the tree must
// not change meanwhile. NotFound if root is neither in the tree, nor in a snapshot, nor an entry
// of the trash, whose paths are those that they had. A directory .snapshot is walked only if it
// is the root. No permissions are checked.
func (t *Tree) Walk(root InodeID, fn func(path []byte, a Attr) error) error {
	top, ok := t.Path(root)
	if e := t.trash.Get(root); e != nil {
		top, ok = e.Path, true
	}
	if !ok {
		return fserror.New(fserror.NotFound, "walk", inodeName(root), "it was deleted, or never was")
	}
	v, n := view{t, nil, "walk"}, t.get(root)
	if root>>snapshots.Bits != 0 {
		v, n, _ = reachPast(v, root)
	}
	visit := func(path []byte, n *inode) error { return fn(path, v.attr(n)) }
	if v.past == nil || v.past.snap != nil {
		return v.slots.Walk(n, top, v.isDead, visit)
	}
	if err := visit([]byte(top), n); err != nil {
		return node.Ended(err)
	}
	dir, failed := v, error(nil)
	t.snaps.Of(n.ID, "", func(s *snapshots.Snapshot) bool {
		v, n = enter(dir, s.Dir, s)
		failed = v.slots.Walk(n, fspath.Join(top, s.Name), v.isDead, visit)
		return failed == nil
	})
	return failed
}

// RemoveCheck is where CanRemoveAll continues. The zero value begins.
type RemoveCheck = node.Descent

// CanRemoveAll checks that a caller may empty the directory id and all
// directories below it: that those which have entries may be written and
// searched, and that no sticky bit keeps an entry (rm -r of POSIX; HDFS checks
// the same). It looks at about budget inodes, then returns false to be called
// again with the same check, if need be after other changes to the tree; those
// of directories that were checked already are not seen. The error is of kind
// Permission and names the directory.
func (t *Tree) CanRemoveAll(c *Call, id InodeID, check *RemoveCheck, budget int) (done bool, err error) {
	v := view{t, c, "rm"}
	if c.IsSuper() {
		return true, nil
	}
	return t.slots.Descend(id, check, budget, t.isDead, func(dir *inode) error {
		if v.lookAttr(dir.ID); v.allowed(dir, mayWrite|mayExecute) {
			return nil
		}
		return v.requireChange(dir, v.where(dir))
	}, func(dir, n *inode) error {
		if v.stickyAllows(dir, n) {
			return nil
		}
		return v.requireRemove(dir, n, v.where(n))
	})
}

// Referenced calls fn for all blocks of all files from an inode number on, in the order
// of numbers, those of deleted subtrees that are not reclaimed yet included, until it
// returns false; then for the blocks that only snapshots have, also deleted ones that are not
// reclaimed yet, in the order of inodes, with numbers of the files in any of them (snapshots.FileOf).
func (t *Tree) Referenced(from InodeID, fn func(id InodeID, b Block) bool) {
	more := true
	t.each(from, func(n *inode) bool {
		more = !slices.ContainsFunc(n.Blocks(), func(b Block) bool { return !fn(n.ID, b) })
		return more
	})
	if more {
		t.snaps.EachHeld(from, func(h snapshots.Held) bool { return fn(h.Number(), h.Block) })
	}
}

// Tails calls fn for every file that has a tail, by inode number, until it
// returns false: with the tail's length in bytes, the last block before it
// (nil if there is none), whether the file is open, and its mtime (Unix
// milliseconds). It looks at every inode, so it is meant for clones. Files of
// deleted subtrees that are not reclaimed yet are included.
func (t *inodes) Tails(fn func(id InodeID, tailLen int, lastBlock *Block, open bool, mtime int64) bool) {
	t.slots.Tails(func(n *inode, last *Block) bool { return fn(n.ID, len(n.Tail()), last, n.Open() != nil, n.MTime) })
}
