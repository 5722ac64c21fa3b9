package tables

// pageBits: a page has 64 numbers, which makes it 512 bytes exactly.
const pageBits = 6

// Pages is a table by inode number, in pages of 64.
type Pages[T any] struct {
	gen   uint64 // grows with each clone
	pages Set[pageItem[T]]
	// last is the page that was changed last, if it may be changed.
	last pageItem[T]
}

// pageItem is one page; nil where there is nothing. One whose generation is not the
// table's may be shared with a clone: it is copied before it is changed.
type pageItem[T any] struct {
	num   uint64 // number >> pageBits
	gen   uint64
	slots *[1 << pageBits]*T
}

// NewPages returns an empty table.
func NewPages[T any]() Pages[T] {
	return Pages[T]{gen: 1, pages: NewSet(func(a, b pageItem[T]) bool { return a.num < b.num })}
}

// Clone returns a snapshot.
func (t *Pages[T]) Clone() Pages[T] {
	t.gen++
	t.last = pageItem[T]{}
	return Pages[T]{gen: t.gen, pages: t.pages.Clone()}
}

// Get returns what has a number, nil if there is nothing.
func (t *Pages[T]) Get(id InodeID) *T {
	it, ok := t.pages.Get(pageItem[T]{num: uint64(id) >> pageBits})
	if !ok {
		return nil
	}
	return it.slots[id&(1<<pageBits-1)]
}

// Put gives x a number, and returns what had it.
func (t *Pages[T]) Put(id InodeID, x *T) (old *T) {
	s := &t.page(id)[id&(1<<pageBits-1)]
	old, *s = *s, x
	return old
}

// page returns the page of a number for change, making or copying it.
func (t *Pages[T]) page(id InodeID) *[1 << pageBits]*T {
	num := uint64(id) >> pageBits
	if t.last.slots != nil && t.last.num == num {
		return t.last.slots
	}
	it, ok := t.pages.Get(pageItem[T]{num: num})
	if !ok || it.gen != t.gen {
		slots := new([1 << pageBits]*T)
		if ok {
			*slots = *it.slots
		}
		it = pageItem[T]{num: num, gen: t.gen, slots: slots}
		t.pages.ReplaceOrInsert(it)
	}
	t.last = it
	return it.slots
}

// Drop takes a number out.
func (t *Pages[T]) Drop(id InodeID) {
	t.Put(id, nil)
	for _, x := range t.last.slots {
		if x != nil {
			return
		}
	}
	t.pages.Delete(t.last)
	t.last = pageItem[T]{}
}

// Each calls fn for all in the order of numbers, until it returns false.
func (t *Pages[T]) Each(fn func(*T) bool) {
	t.pages.Ascend(func(it pageItem[T]) bool {
		for _, x := range it.slots {
			if x != nil && !fn(x) {
				return false
			}
		}
		return true
	})
}
