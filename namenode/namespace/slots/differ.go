package slots

import (
	"unsafe"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Pair is what two tables have under a number; nil: nothing.
type Pair[X any] struct {
	Old, New   *Node
	OldX, NewX *X
}

// Differ calls fn, in the order of numbers from one on, for all numbers of pages that two
// tables do not share, until it returns false or has looked at budget pages. So it is called
// for each inode that differs, and for some that do not. It returns the number from which on
// to continue; 0 if there is nothing more. What is good until the next change of the tables is
// also good that long.
func Differ[X any](a, b *Table[X], from tables.InodeID, budget int, fn func(tables.InodeID, Pair[X]) bool) (next tables.InodeID) {
	d := differ[X]{from: from, budget: budget, fn: fn}
	level := max(a.levels, b.levels)
	d.branches(side[X]{a.root, a.levels}, side[X]{b.root, b.levels}, level, 0)
	return d.next
}

// side is a branch of one of two tables; nil: it has nothing there.
type side[X any] struct {
	b     *branch[X]
	level uint
}

// sub is what the side has below child i of a branch of that level, which may be higher than the
// side.
func (s side[X]) sub(level uint, i int) side[X] {
	switch {
	case s.b == nil || s.level < level && i > 0:
		return side[X]{}
	case s.level < level:
		return s
	}
	return side[X]{s.b.subs[i], s.level - 1}
}

// page is a page of a branch of the lowest level.
func (s side[X]) page(i int) *page[X] {
	if s.b == nil {
		return nil
	}
	return s.b.leaf[i]
}

type differ[X any] struct {
	from, next tables.InodeID
	budget     int
	fn         func(tables.InodeID, Pair[X]) bool
}

// branches compares two branches whose first page would be first, and returns false at the end
// of the budget, or of what is wanted.
func (d *differ[X]) branches(a, b side[X], level uint, first uint64) bool {
	if a.b == b.b {
		return true
	}
	shift := (level - 1) * branchBits
	for i := range branchSize {
		start := first + uint64(i)<<shift //nolint:gosec // an index
		if start+1<<shift <= uint64(d.from)>>pageBits {
			continue
		}
		if level > 1 {
			if !d.branches(a.sub(level, i), b.sub(level, i), level-1, start) {
				return false
			}
		} else if p, q := a.page(i), b.page(i); p != q && !d.pages(p, q, tables.InodeID(start)<<pageBits) {
			return false
		}
	}
	return true
}

func (d *differ[X]) pages(p, q *page[X], first tables.InodeID) bool {
	if d.budget <= 0 {
		d.next = max(d.from, first)
		return false
	}
	d.budget--
	for i := range tables.InodeID(pageSize) {
		id := first + i
		if id < d.from {
			continue
		}
		var two Pair[X]
		if p != nil {
			two.Old, two.OldX = p.get(id)
		}
		if q != nil {
			two.New, two.NewX = q.get(id)
		}
		if (two.Old != nil || two.New != nil) && !d.fn(id, two) {
			d.next = id + 1
			return false
		}
	}
	return true
}

// Memory is about how many bytes a has in pages, branches, leaves and what size says of an X that
// b does not share. It takes the time of Differ.
func Memory[X any](a, b *Table[X], size func(*X) int64) (bytes int64) {
	const node = int64(unsafe.Sizeof(Node{}))
	page, renamed := ^tables.InodeID(0), false
	Differ(a, b, 0, int(^uint(0)>>1), func(id tables.InodeID, two Pair[X]) bool {
		if two.Old == nil {
			return true
		}
		if bytes += node; two.OldX != nil && two.OldX != two.NewX {
			bytes += size(two.OldX)
		}
		if at := id >> pageBits; at != page {
			page, renamed = at, false
			bytes += int64(branchSize) // of the page itself, and its part of the branches
		}
		if moved := two.New == nil || two.New.Parent != two.Old.Parent || two.New.Name != two.Old.Name; moved && !renamed {
			renamed = true
			bytes += int64(unsafe.Sizeof(leaf{})) + leafSize*8
		}
		return true
	})
	return bytes
}
