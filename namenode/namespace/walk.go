package namespace

import (
	"errors"
	"io/fs"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// Walk calls fn for the inode root and for all that is below it: a directory
// before its entries, entries by name. Paths are absolute and good until fn
// returns: all are in one buffer, so that memory grows with the depth alone.
// If fn returns fs.SkipDir for a directory its entries are left out; any other
// error ends the walk and is returned. It is meant for clones: the tree must
// not change meanwhile. NotFound if root is neither in the tree nor an entry of
// the trash, whose paths are those that they had. No permissions are checked.
func (t *Tree) Walk(root InodeID, fn func(path []byte, a Attr) error) error {
	top, ok := t.Path(root)
	if e := t.trash.Get(root); e != nil {
		top, ok = e.Path, true
	}
	if !ok {
		return fserror.New(fserror.NotFound, "walk", inodeName(root), "it was deleted, or never was")
	}
	path := []byte(top)
	var stack []*node.Level
	visit := func(n *inode) error {
		err := fn(path, view{t, nil, "walk"}.attr(n))
		switch {
		case errors.Is(err, fs.SkipDir):
			return nil
		case err != nil:
			return err
		case n.Type == TypeDir && n.Entries() > 0:
			stack = append(stack, &node.Level{ID: n.ID, Path: len(path)})
		}
		return nil
	}
	if err := visit(t.get(root)); err != nil {
		return err
	}
	for len(stack) > 0 {
		l := stack[len(stack)-1]
		n := t.slots.Next(l)
		if n == nil {
			stack = stack[:len(stack)-1]
		}
		if n == nil || t.isDead(n) {
			continue
		}
		if path = path[:l.Path]; l.Path > 1 { // not the root
			path = append(path, '/')
		}
		path = n.AppendName(path)
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCheck is where CanRemoveAll continues. The zero value begins.
type RemoveCheck struct {
	begun bool
	stack []removeLevel
}

type removeLevel struct {
	id    InodeID
	after string
}

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
	if !check.begun {
		check.begun = true
		if err := v.enterRemove(id, check); err != nil {
			return false, err
		}
	}
	for len(check.stack) > 0 {
		if budget <= 0 {
			return false, nil
		}
		l := &check.stack[len(check.stack)-1]
		dir := t.get(l.id)
		if dir == nil {
			check.stack = check.stack[:len(check.stack)-1]
			continue
		}
		var sub, kept *inode
		end := true
		t.slots.Children(l.id, l.after, func(n *inode) bool {
			budget--
			switch {
			case t.isDead(n):
			case !v.stickyAllows(dir, n):
				kept = n
			case n.Type == TypeDir && n.Entries() > 0:
				sub = n
			}
			if kept != nil || sub != nil || budget <= 0 {
				l.after, end = n.Name(), false
			}
			return end
		})
		switch {
		case kept != nil:
			return false, v.requireRemove(dir, kept, v.where(kept))
		case sub != nil:
			if err := v.enterRemove(sub.ID, check); err != nil {
				return false, err
			}
		case end:
			check.stack = check.stack[:len(check.stack)-1]
		}
	}
	return true, nil
}

// enterRemove checks one directory and has its entries checked next.
func (v view) enterRemove(id InodeID, check *RemoveCheck) error {
	n := v.get(id)
	if n == nil || n.Type != TypeDir || n.Entries() == 0 {
		return nil
	}
	v.lookAttr(id)
	if !v.allowed(n, mayWrite|mayExecute) {
		return v.requireChange(n, v.where(n))
	}
	check.stack = append(check.stack, removeLevel{id: id})
	return nil
}

// Referenced calls fn for all blocks of all files from an inode number on, in the order
// of numbers, those of deleted subtrees that are not reclaimed yet included, until it
// returns false.
func (t *inodes) Referenced(from InodeID, fn func(id InodeID, b Block) bool) {
	t.each(from, func(n *inode) bool {
		for _, b := range n.Blocks() {
			if !fn(n.ID, b) {
				return false
			}
		}
		return true
	})
}

// Tails calls fn for every file that has a tail, by inode number, until it
// returns false: with the tail's length in bytes, the last block before it
// (nil if there is none), whether the file is open, and its mtime (Unix
// milliseconds). It looks at every inode, so it is meant for clones. Files of
// deleted subtrees that are not reclaimed yet are included.
func (t *inodes) Tails(fn func(id InodeID, tailLen int, lastBlock *Block, open bool, mtime int64) bool) {
	t.slots.Tails(func(n *inode, last *Block) bool { return fn(n.ID, len(n.Tail()), last, n.Open() != nil, n.MTime) })
}
