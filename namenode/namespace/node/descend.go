package node

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Descent is where Descend continues. The zero value begins.
type Descent struct {
	begun bool
	stack []sizeLevel
}

// Descend calls enter for a directory, and for each below it, if it has entries, and entry for
// each of these that is not hidden, until one returns an error. It looks at about budget inodes,
// then returns false to be called again, if need be after changes; those of directories that it
// has left are not seen.
func (t *Table) Descend(id tables.InodeID, d *Descent, budget int, hidden func(*Inode) bool, enter func(dir *Inode) error, entry func(dir, n *Inode) error) (done bool, err error) {
	into := func(n *Inode) error {
		if n == nil || n.Type != calls.TypeDir || n.Entries() == 0 {
			return nil
		}
		d.stack = append(d.stack, sizeLevel{id: n.ID})
		return enter(n)
	}
	if !d.begun {
		d.begun = true
		err = into(t.Inode(id))
	}
	for err == nil && len(d.stack) > 0 {
		if budget <= 0 {
			return false, nil
		}
		top := len(d.stack) - 1
		dir, l := t.Inode(d.stack[top].id), d.stack[top]
		var sub *Inode
		end := true
		t.Children(l.id, l.after, func(n *Inode) bool {
			if dir == nil {
				return false
			}
			budget--
			if !hidden(n) {
				if err = entry(dir, n); err == nil && n.Type == calls.TypeDir && n.Entries() > 0 {
					sub = n
				}
			}
			if err != nil || sub != nil || budget <= 0 {
				l.after, end = n.Name(), false
			}
			return end
		})
		switch d.stack[top] = l; {
		case err != nil:
		case sub != nil:
			err = into(sub)
		case end:
			d.stack = d.stack[:top]
		}
	}
	return err == nil, err
}

// EachBelow calls fn for all inodes below some directories.
func (t *Table) EachBelow(dirs []tables.InodeID, fn func(*Inode)) {
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		t.Children(dir, "", func(n *Inode) bool {
			if fn(n); n.Type == calls.TypeDir {
				dirs = append(dirs, n.ID)
			}
			return true
		})
	}
}
