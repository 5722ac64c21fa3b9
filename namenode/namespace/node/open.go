package node

import (
	"cmp"
	"slices"

	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// MayOpen is why a caller may not open a file for append, which it may write unless err is not
// nil. To resume, a process of the caller's client has to have it open, and what the mode says
// counts no more: that was looked at when it was opened.
func (n *Inode) MayOpen(c *calls.Call, resume bool, path string, err error) error {
	if n == nil || !resume || c == nil {
		return err
	}
	if o := n.Open(); o == nil || c.Client == "" || o.Grant.Holder.Client != c.Client || o.Grant.Holder.User != c.User {
		return calls.NotOpen(c, path)
	}
	return nil
}

// OpenBudget is how many inodes of subtrees are looked at, by the number of open files,
// before the open files are looked at one by one instead.
func OpenBudget(open int) int { return 64 + 2*open }

// OpenAmong returns those of the open files, by number, that are among tops or below them, and
// not dead. It looks through the subtrees if they are small, otherwise at the directories above
// each open file, so that its time is bounded by the number of open files. tops may be
// incomplete if there are many; isTop reports whether an inode belongs to the complete list.
func (t *Table) OpenAmong(open *tables.Set[tables.InodeID], dead func(tables.InodeID) bool, tops []*Inode, isTop func(*Inode) bool) []*Inode {
	if open.Len() == 0 {
		return nil
	}
	var found []*Inode
	var dirs []tables.InodeID
	budget := OpenBudget(open.Len()) - len(tops)
	for _, n := range tops {
		switch {
		case n.Type == calls.TypeDir:
			dirs = append(dirs, n.ID)
		case n.Open() != nil:
			found = append(found, n)
		}
	}
	for len(dirs) > 0 && budget > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		t.Children(dir, "", func(n *Inode) bool {
			switch {
			case dead(n.ID):
			case n.Type == calls.TypeDir && n.Entries() > 0:
				dirs = append(dirs, n.ID)
			case n.Open() != nil:
				found = append(found, n)
			}
			budget--
			return budget > 0
		})
	}
	if budget > 0 {
		slices.SortFunc(found, func(a, b *Inode) int { return cmp.Compare(a.ID, b.ID) })
		return slices.CompactFunc(found, func(a, b *Inode) bool { return a.ID == b.ID }) // a top may be below another top
	}
	return t.openBelow(open, isTop)
}

// openBelow is OpenAmong by the directories above each open file.
func (t *Table) openBelow(open *tables.Set[tables.InodeID], isTop func(*Inode) bool) (found []*Inode) {
	below := map[tables.InodeID]bool{calls.RootID: isTop(t.Inode(calls.RootID))}
	var up []tables.InodeID
	open.Ascend(func(id tables.InodeID) bool {
		n := t.Inode(id)
		up = up[:0]
		at := n
		is, known := isTop(at), false
		for !is && !known && at.Parent != 0 {
			at = t.Inode(at.Parent)
			if is, known = below[at.ID]; known {
				break
			}
			up = append(up, at.ID)
			is = isTop(at)
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
