package slots

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// firstNodes is how many nodes a new page has room for, unless many are expected.
const firstNodes = 4

// Table is inodes by number and by name. X is what only some of them have; it is
// replaced, never changed.
type Table[X any] struct {
	gen    uint64 // grows with each clone
	root   *branch[X]
	levels uint // of branches
	nodes  int
	first  int // how many nodes a new page has room for

	leaves  tables.Set[leafItem]
	entries int
	rest    func(*X) string

	// What was changed last, if it may be changed: the page and its number, the last leaf
	// of an image that is being read.
	last    *page[X]
	lastNum uint64
	end     *leaf
}

// New returns an empty table. rest says what of a name that is longer than Inline does
// not fit a Node.
func New[X any](rest func(*X) string) Table[X] {
	t := Table[X]{gen: 1, levels: 1, first: firstNodes, rest: rest, leaves: newLeaves()}
	t.root = t.newBranch(true)
	return t
}

// Clone returns a snapshot, in constant time.
func (t *Table[X]) Clone() Table[X] {
	t.gen++
	t.last, t.end = nil, nil
	c := *t
	c.leaves = t.leaves.Clone()
	return c
}

// Len is how many inodes there are.
func (t *Table[X]) Len() int { return t.nodes }

// Entries is how many of them are entries of directories.
func (t *Table[X]) Entries() int { return t.entries }

// Get returns an inode, nil if there is none of that number. What it points to is good
// until the next change of the table.
func (t *Table[X]) Get(id tables.InodeID) (*Node, *X) {
	p := t.page(id)
	if p == nil {
		return nil, nil
	}
	return p.get(id)
}

// Put gives an inode a number, in the place of what has it; an entry keeps its parent and
// its name. It reports whether nothing had the number.
func (t *Table[X]) Put(id tables.InodeID, n *Node, x *X) bool {
	isNew := t.ownPage(id).put(id, n, x, t.first)
	if isNew {
		t.nodes++
	}
	return isNew
}

// Drop takes out the inode of a number, which is no entry any more.
func (t *Table[X]) Drop(id tables.InodeID) {
	if n, _ := t.Get(id); n == nil {
		return
	}
	p := t.ownPage(id)
	p.drop(id)
	t.nodes--
	if p.used == 0 {
		t.last = nil
		t.prune(t.ownBranch(&t.root), uint64(id)>>pageBits, t.bits()-branchBits)
	}
}

// Each calls fn for all inodes from a number on, in the order of numbers, until it returns false.
func (t *Table[X]) Each(from tables.InodeID, fn func(tables.InodeID, *Node, *X) bool) {
	t.root.each(from, 0, t.bits()-branchBits, fn)
}

// Up is the directory of an inode; 0 if it has none, or is not there.
func (t *Table[X]) Up(id tables.InodeID) tables.InodeID {
	if n, _ := t.Get(id); n != nil {
		return n.Parent
	}
	return 0
}

// IsBelow reports whether an inode that is there is another one or somewhere below it.
func (t *Table[X]) IsBelow(id, top tables.InodeID) bool {
	for id != top {
		n, _ := t.Get(id)
		if n == nil {
			return false
		}
		id = n.Parent
	}
	return true
}

// Extent is how many components, and bytes, the path of an inode that is there has; both
// 0 for one without a parent.
func (t *Table[X]) Extent(id tables.InodeID) (depth, size int) {
	for n, _ := t.Get(id); n.Parent != 0; n, _ = t.Get(n.Parent) {
		depth, size = depth+1, size+1+int(n.NameLen)
	}
	return depth, size
}
