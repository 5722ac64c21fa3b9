package slots

import (
	"math/bits"
	"slices"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Inline is how many bytes of a name are in the Node. Of a longer name these are the
// first.
const Inline = 24

// Node is what every inode has, in 48 bytes without a pointer.
type Node struct {
	Parent            tables.InodeID // 0: no entry
	MTime             int64          // Unix milliseconds
	Mode, User, Group uint16
	Type, NameLen     uint8 // NameLen in bytes
	// Name is zero behind the name, so that arrays compare as names do (a name has
	// no NUL).
	Name [Inline]byte
}

const (
	pageBits   = 6 // the bitmap of a page is a uint64
	pageSize   = 1 << pageBits
	branchBits = 7
	branchSize = 1 << branchBits
)

// page has the nodes of pageSize adjacent numbers, packed.
type page[X any] struct {
	gen    uint64
	used   uint64 // bit i: number i of the page is in nodes
	extra  uint64 // the same for extras
	nodes  []Node
	extras []*X
}

// branch has pages, or branches, of adjacent numbers.
type branch[X any] struct {
	gen  uint64
	live int                     // those that are not nil
	subs *[branchSize]*branch[X] // nil at the lowest level
	leaf *[branchSize]*page[X]   // nil above it
}

// place is the index in the packed list of which bits are the bitmap, and whether it
// is there.
func place(bitmap uint64, id tables.InodeID) (int, bool) {
	bit := uint64(1) << (id % pageSize)
	return bits.OnesCount64(bitmap & (bit - 1)), bitmap&bit != 0
}

// room returns s with room for one more; if it grows, for at least first and at most most.
func room[T any](s []T, first, most int) []T {
	if len(s) < cap(s) {
		return s
	}
	return append(make([]T, 0, min(most, max(first, 2*len(s)))), s...)
}

// fit returns s in less memory if half of what it takes is free.
func fit[T any](s []T) []T {
	if len(s) <= cap(s)/2 {
		return slices.Clip(append([]T(nil), s...))
	}
	return s
}

func (p *page[X]) get(id tables.InodeID) (*Node, *X) {
	i, ok := place(p.used, id)
	if !ok {
		return nil, nil
	}
	if j, ok := place(p.extra, id); ok {
		return &p.nodes[i], p.extras[j]
	}
	return &p.nodes[i], nil
}

// put places a node, and reports whether it is new. first is how many nodes a page has
// room for at first.
func (p *page[X]) put(id tables.InodeID, n *Node, x *X, first int) bool {
	i, had := place(p.used, id)
	if had {
		p.nodes[i] = *n
	} else {
		p.nodes = slices.Insert(room(p.nodes, first, pageSize), i, *n)
		p.used |= 1 << (id % pageSize)
	}
	j, ok := place(p.extra, id)
	switch {
	case ok && x != nil:
		p.extras[j] = x
	case ok:
		p.extras = fit(slices.Delete(p.extras, j, j+1))
		p.extra &^= 1 << (id % pageSize)
	case x != nil:
		p.extras = slices.Insert(room(p.extras, 1, pageSize), j, x)
		p.extra |= 1 << (id % pageSize)
	}
	return !had
}

// drop takes a number out that is there.
func (p *page[X]) drop(id tables.InodeID) {
	i, _ := place(p.used, id)
	p.nodes = fit(slices.Delete(p.nodes, i, i+1))
	p.used &^= 1 << (id % pageSize)
	if j, ok := place(p.extra, id); ok {
		p.extras = fit(slices.Delete(p.extras, j, j+1))
		p.extra &^= 1 << (id % pageSize)
	}
}

// page returns the page of a number, nil if there is none.
func (t *Table[X]) page(id tables.InodeID) *page[X] {
	num := uint64(id) >> pageBits
	if num>>t.bits() != 0 {
		return nil
	}
	b := t.root
	for shift := t.bits() - branchBits; shift > 0; shift -= branchBits {
		if b = b.subs[num>>shift%branchSize]; b == nil {
			return nil
		}
	}
	return b.leaf[num%branchSize]
}

// bits is how many bits the numbers of pages can have that fit under the root.
func (t *Table[X]) bits() uint { return t.levels * branchBits }

// newBranch returns an empty branch, at the lowest level or above it.
func (t *Table[X]) newBranch(lowest bool) *branch[X] {
	if lowest {
		return &branch[X]{gen: t.gen, leaf: new([branchSize]*page[X])}
	}
	return &branch[X]{gen: t.gen, subs: new([branchSize]*branch[X])}
}

// ownBranch makes a branch one that may be changed.
func (t *Table[X]) ownBranch(b **branch[X]) *branch[X] {
	if old := *b; old.gen != t.gen {
		c := &branch[X]{gen: t.gen, live: old.live}
		if old.leaf != nil {
			c.leaf = new([branchSize]*page[X])
			*c.leaf = *old.leaf
		} else {
			c.subs = new([branchSize]*branch[X])
			*c.subs = *old.subs
		}
		*b = c
	}
	return *b
}

// ownPage returns the page of a number to change, which is made if it is missing.
func (t *Table[X]) ownPage(id tables.InodeID) *page[X] {
	num := uint64(id) >> pageBits
	if t.last != nil && t.lastNum == num {
		return t.last
	}
	for num>>t.bits() != 0 {
		above := t.newBranch(false)
		above.live, above.subs[0] = 1, t.root
		t.root = above
		t.levels++
	}
	b := t.ownBranch(&t.root)
	for shift := t.bits() - branchBits; shift > 0; shift -= branchBits {
		sub := &b.subs[num>>shift%branchSize]
		if *sub == nil {
			*sub = t.newBranch(shift == branchBits)
			b.live++
		}
		b = t.ownBranch(sub)
	}
	p := &b.leaf[num%branchSize]
	switch {
	case *p == nil:
		*p = &page[X]{gen: t.gen}
		b.live++
	case (*p).gen != t.gen:
		c := **p
		c.gen = t.gen
		c.nodes, c.extras = slices.Clone(c.nodes), slices.Clone(c.extras)
		*p = &c
	}
	t.last, t.lastNum = *p, num
	return *p
}

// prune takes an empty page out, and with it the branches that have no other. b is
// a branch that may be changed; it reports whether nothing is left in it.
func (t *Table[X]) prune(b *branch[X], num uint64, shift uint) bool {
	i := num >> shift % branchSize
	if b.leaf != nil {
		b.leaf[i] = nil
	} else if !t.prune(t.ownBranch(&b.subs[i]), num, shift-branchBits) {
		return false
	} else {
		b.subs[i] = nil
	}
	b.live--
	return b.live == 0
}

// each calls fn for all below a branch from an inode on, until it returns false; first is the
// number of the first page that can be there.
func (b *branch[X]) each(from tables.InodeID, first uint64, shift uint, fn func(tables.InodeID, *Node, *X) bool) bool {
	page := uint64(from) >> pageBits
	if b.leaf == nil {
		for i, sub := range b.subs {
			if start := first + uint64(i)<<shift; sub != nil && start+1<<shift > page && !sub.each(from, start, shift-branchBits, fn) { //nolint:gosec // an index
				return false
			}
		}
		return true
	}
	for i, p := range b.leaf {
		num := first + uint64(i) //nolint:gosec // an index
		if p == nil || num < page {
			continue
		}
		id, left := tables.InodeID(num)<<pageBits, p.used
		if num == page {
			left &= ^uint64(0) << (from % pageSize)
		}
		for ; left != 0; left &= left - 1 {
			at := id + tables.InodeID(bits.TrailingZeros64(left)) //nolint:gosec // at most 63
			if n, x := p.get(at); !fn(at, n, x) {
				return false
			}
		}
	}
	return true
}
