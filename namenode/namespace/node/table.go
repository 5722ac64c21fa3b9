package node

import (
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Table has all inodes. Those with a parent are entries of it.
type Table struct{ slots.Table[Ext] }

// NewTable returns a table without inodes.
func NewTable() Table { return Table{slots.New((*Ext).nameRest)} }

// Clone returns a snapshot, in constant time.
func (t *Table) Clone() Table { return Table{t.Table.Clone()} }

// View is the inodes on one page of a table; see slots.View.
type View = slots.View[Ext]

// PageOf is the number of the page that an inode is on.
func PageOf(id tables.InodeID) uint64 { return slots.PageOf(id) }

// Read makes n the inode of a number; false if there is none.
func (t *Table) Read(id tables.InodeID, n *Inode) bool {
	s, x := t.Get(id)
	if s == nil {
		return false
	}
	n.of(id, s, x)
	return true
}

// Inode returns an inode by number, nil if there is none.
func (t *Table) Inode(id tables.InodeID) *Inode {
	n := new(Inode)
	if !t.Read(id, n) {
		return nil
	}
	return n
}

// IsDir reports whether there is a directory of a number.
func (t *Table) IsDir(id tables.InodeID) bool {
	s, _ := t.Get(id)
	return s != nil && calls.Type(s.Type) == calls.TypeDir
}

// EachInode calls fn for all inodes, by number, until it returns false. What it is called
// with is good until it returns.
func (t *Table) EachInode(from tables.InodeID, fn func(*Inode) bool) {
	n := new(Inode)
	t.Each(from, func(id tables.InodeID, s *slots.Node, x *Ext) bool {
		n.of(id, s, x)
		return fn(n)
	})
}

// PutInode places an inode, new or changed. Of an entry, parent and name are as before; for
// others see LinkInode and UnlinkInode.
func (t *Table) PutInode(n *Inode) {
	s := n.slot()
	t.Put(n.ID, &s, n.Ext)
}

// Loader fills a table that is new; see slots.Loader.
type Loader struct{ *slots.Loader[Ext] }

// Loader returns one for so many inodes, whose numbers are below next.
func (t *Table) Loader(total, next uint64) Loader { return Loader{t.Load(total, next)} }

// AddInode adds the next one.
func (l Loader) AddInode(n *Inode) {
	s := n.slot()
	l.Add(n.ID, &s, n.Ext)
}

// LinkInode makes an inode that was put the entry of its name in its directory.
func (t *Table) LinkInode(n *Inode) { t.Link(n.Parent, n.Name(), n.ID) }

// UnlinkInode takes an inode out of its directory; it stays in the table.
func (t *Table) UnlinkInode(n *Inode) { t.Unlink(n.Parent, n.Name(), n.ID) }

// Named is the number of what has a name in a directory; 0: nothing.
func (t *Table) Named(dir tables.InodeID, name string) tables.InodeID {
	if len(name) == 0 || len(name) > fspath.MaxName {
		return 0
	}
	return t.Find(dir, name)
}

// Children calls fn for the entries of a directory whose names are greater than after, in
// the order of names, until it returns false.
func (t *Table) Children(dir tables.InodeID, after string, fn func(*Inode) bool) {
	skip := after != ""
	t.Ascend(dir, after[:min(len(after), fspath.MaxName)], func(id tables.InodeID) bool {
		n := t.Inode(id)
		if n.Parent != dir {
			return false
		}
		if skip && n.Name() <= after { // one, or more if after is no name
			return true
		}
		skip = false
		return fn(n)
	})
}

// walkBatch is how many entries of a directory a walk takes at a time.
const walkBatch = 256

// Level is a directory that a walk is in.
type Level struct {
	ID    tables.InodeID
	Path  int      // bytes of its path
	batch []*Inode // entries not visited yet
	after string   // the last entry taken
	done  bool     // no entry comes after batch
}

// Next returns the next entry of a directory, and nil at its end.
func (t *Table) Next(l *Level) *Inode {
	if len(l.batch) == 0 && !l.done {
		l.batch = l.batch[:0]
		t.Children(l.ID, l.after, func(n *Inode) bool {
			l.batch = append(l.batch, n)
			return len(l.batch) < walkBatch
		})
		l.done = len(l.batch) < walkBatch
		if len(l.batch) > 0 {
			l.after = l.batch[len(l.batch)-1].Name()
		}
	}
	if len(l.batch) == 0 {
		return nil
	}
	n := l.batch[0]
	l.batch = l.batch[1:]
	return n
}
