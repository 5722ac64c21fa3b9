package tables

import (
	"fmt"

	"github.com/google/btree"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// degree of the B-trees: up to 63 items in a node.
const degree = 32

// Set is an ordered set: a B-tree that can be compared and written down.
type Set[T any] struct {
	*btree.BTreeG[T]
	less btree.LessFunc[T]
}

// NewSet returns an empty set in the order of less.
func NewSet[T any](less btree.LessFunc[T]) Set[T] { return Set[T]{btree.NewG(degree, less), less} }

// Clone returns a snapshot of the set.
func (s Set[T]) Clone() Set[T] { return Set[T]{s.BTreeG.Clone(), s.less} }

// From calls fn for the items from first on for as long as it returns true.
func (s Set[T]) From(first T, fn func(T) bool) {
	if s.Len() > 0 {
		s.AscendGreaterOrEqual(first, fn)
	}
}

// Code codes the items. add puts one that was read into the set, or returns false if
// it cannot be there; last is the one before.
func (s Set[T]) Code(c *codec.Coder, item func(*T), add func(last, x T) bool) {
	var x, last, none T
	if c.Writes() {
		c.Put(uint64(s.Len())) //nolint:gosec // a length
		s.Ascend(func(i T) bool {
			x = i
			item(&x)
			return c.Next()
		})
		return
	}
	for i := range c.Number(63) {
		x = none
		item(&x)
		if c.OK() && (i > 0 && !s.less(last, x) || !add(last, x)) {
			c.Fail(fmt.Sprintf("item %d is out of order, there twice, or does not fit the rest", i))
		}
		if !c.Next() {
			return
		}
		last = x
	}
}

// Problem is called by Check for each problem found.
type Problem func(format string, args ...any)
