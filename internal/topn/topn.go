// Package topn keeps the first few of many values, in little memory.
package topn

import (
	"container/heap"
	"slices"
)

// First keeps the first n of the values that it is given, by their order. It is not
// safe for concurrent use.
type First[T any] struct {
	n    int
	kept last[T]
}

// New returns a First of n values, at least one. compare is as for slices.SortFunc, and
// must not be 0 for any two values.
func New[T any](n int, compare func(a, b T) int) *First[T] {
	return &First[T]{n: max(n, 1), kept: last[T]{compare: compare}}
}

// Add takes a value in, and drops the last one if there are too many.
func (f *First[T]) Add(v T) {
	switch {
	case len(f.kept.list) < f.n:
		heap.Push(&f.kept, v)
	case f.kept.compare(v, f.kept.list[0]) < 0:
		f.kept.list[0] = v
		heap.Fix(&f.kept, 0)
	}
}

// Sorted returns what is kept, in order, and keeps nothing any more.
func (f *First[T]) Sorted() []T {
	list := f.kept.list
	f.kept.list = nil
	slices.SortFunc(list, f.kept.compare)
	return list
}

// last is a heap whose top is the last value in order.
type last[T any] struct {
	list    []T
	compare func(a, b T) int
}

func (l *last[T]) Len() int           { return len(l.list) }
func (l *last[T]) Less(i, j int) bool { return l.compare(l.list[i], l.list[j]) > 0 }
func (l *last[T]) Swap(i, j int)      { l.list[i], l.list[j] = l.list[j], l.list[i] }
func (l *last[T]) Push(v any)         { l.list = append(l.list, v.(T)) } //nolint:errcheck,forcetypeassert // of First only
func (l *last[T]) Pop() any {
	v := l.list[len(l.list)-1]
	l.list = l.list[:len(l.list)-1]
	return v
}
