package slots

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

const leafSize = 128 // entries that a leaf has at most

// leaf has adjacent entries.
type leaf struct {
	gen  uint64
	ids  []tables.InodeID
	next int              // behind the entry that was added last
	sums [leafSize]uint16 // of their names, so that few names are looked at to find one
}

// leafItem is a leaf with a bound: its entries are not before it, those of the leaves
// before it are. The first leaf's is zero, and it stays if it is empty.
type leafItem struct {
	dir  tables.InodeID
	name string
	*leaf
}

func newLeaves() tables.Set[leafItem] {
	s := tables.NewSet(func(a, b leafItem) bool {
		if a.dir != b.dir {
			return a.dir < b.dir
		}
		return a.name < b.name
	})
	s.ReplaceOrInsert(leafItem{leaf: new(leaf)})
	return s
}

// key is the directory and the name of an entry, as a Node has them.
type key struct {
	dir  tables.InodeID
	name [Inline]byte
	size uint8
	rest string
}

func newKey(dir tables.InodeID, name string) key {
	k := key{dir: dir, size: uint8(len(name))} //nolint:gosec // a name has at most 255 bytes
	if copy(k.name[:], name) < len(name) {
		k.rest = name[Inline:]
	}
	return k
}

// keyOf is the key of an inode.
func (t *Table[X]) keyOf(n *Node, x *X) key {
	k := key{dir: n.Parent, name: n.Name, size: n.NameLen}
	if n.NameLen > Inline {
		k.rest = t.rest(x)
	}
	return k
}

// sum is a checksum of a key.
func (k *key) sum() uint16 {
	const odd = 0x9e3779b97f4a7c15
	h := uint64(k.dir)*odd ^ uint64(k.size)
	for i := 0; i < Inline; i += 8 {
		w := uint64(k.name[i]) | uint64(k.name[i+1])<<8 | uint64(k.name[i+2])<<16 | uint64(k.name[i+3])<<24 |
			uint64(k.name[i+4])<<32 | uint64(k.name[i+5])<<40 | uint64(k.name[i+6])<<48 | uint64(k.name[i+7])<<56
		h = (h ^ h>>29 ^ w) * odd
	}
	for i := range len(k.rest) {
		h = (h ^ h>>29 ^ uint64(k.rest[i])) * odd
	}
	return uint16(h >> 48)
}

// compare compares a key with that of an inode.
func (t *Table[X]) compare(k *key, id tables.InodeID) int {
	n, x := t.Get(id)
	if n == nil {
		return 1 // only in a tree that is damaged
	}
	if k.dir != n.Parent {
		return cmp.Compare(k.dir, n.Parent)
	}
	if c := bytes.Compare(k.name[:], n.Name[:]); c != 0 || k.size <= Inline && n.NameLen <= Inline {
		return c
	}
	if n.NameLen <= Inline {
		return 1
	}
	return strings.Compare(k.rest, t.rest(x))
}

// has reports whether an inode has a key.
func (t *Table[X]) has(id tables.InodeID, k *key) bool {
	n, x := t.Get(id)
	return n != nil && n.Parent == k.dir && n.NameLen == k.size && n.Name == k.name && (k.rest == "" || t.rest(x) == k.rest)
}

// search is where the first entry of a leaf is that is not before a key.
func (t *Table[X]) search(l *leaf, k *key) int {
	low, high := 0, len(l.ids)
	for low < high {
		if mid := (low + high) / 2; t.compare(k, l.ids[mid]) > 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// nameOf is the name of an inode that is there.
func (t *Table[X]) nameOf(id tables.InodeID) (dir tables.InodeID, name string) {
	n, x := t.Get(id)
	if n.NameLen > Inline {
		return n.Parent, string(n.Name[:]) + t.rest(x)
	}
	return n.Parent, string(n.Name[:n.NameLen])
}

// leafFor returns the leaf that has an entry, if any has.
func (t *Table[X]) leafFor(dir tables.InodeID, name string) (it leafItem) {
	t.leaves.DescendLessOrEqual(leafItem{dir: dir, name: name}, func(i leafItem) bool {
		it = i
		return false
	})
	return it
}

// own makes a leaf one that may be changed.
func (t *Table[X]) own(it leafItem) leafItem {
	if l := it.leaf; l.gen != t.gen {
		it.leaf = &leaf{gen: t.gen, ids: slices.Clone(l.ids), next: l.next, sums: l.sums}
		t.leaves.ReplaceOrInsert(it)
	}
	return it
}

// insert puts an entry at a position of a leaf that has room.
func (l *leaf) insert(at int, id tables.InodeID, sum uint16) {
	l.ids = slices.Insert(room(l.ids, 8, leafSize), at, id)
	copy(l.sums[at+1:], l.sums[at:])
	l.sums[at] = sum
	l.next = at + 1
}

// move puts entries of another leaf behind those of l.
func (l *leaf) move(from *leaf, at int) {
	copy(l.sums[len(l.ids):], from.sums[at:len(from.ids)])
	l.ids = append(slices.Clip(l.ids), from.ids[at:]...)
}

// Link makes an inode that was put the entry of its directory and name. Nothing else
// may have that name.
func (t *Table[X]) Link(dir tables.InodeID, name string, id tables.InodeID) {
	t.end = nil
	k := newKey(dir, name)
	it := t.own(t.leafFor(dir, name))
	l := it.leaf
	pos := t.search(l, &k)
	if len(l.ids) == leafSize {
		// Names that come in order, as many do, leave full leaves behind.
		at := leafSize / 2
		if pos == l.next {
			at = max(at, pos)
		}
		right := leafItem{leaf: &leaf{gen: t.gen}}
		right.move(l, at)
		if at < leafSize {
			right.dir, right.name = t.nameOf(l.ids[at])
		} else {
			right.dir, right.name = dir, strings.Clone(name)
		}
		l.ids, l.next = l.ids[:at], -1
		t.leaves.ReplaceOrInsert(right)
		if pos > at || at == leafSize {
			l, pos = right.leaf, pos-at
		}
	}
	l.insert(pos, id, k.sum())
	t.entries++
}

// linkLast is Link for an entry that comes after all others.
func (t *Table[X]) linkLast(id tables.InodeID, n *Node, x *X) {
	k := t.keyOf(n, x)
	if t.end == nil {
		it, _ := t.leaves.Max()
		t.end = t.own(it).leaf
	}
	if len(t.end.ids) == leafSize {
		t.end = &leaf{gen: t.gen}
		dir, name := t.nameOf(id)
		t.leaves.ReplaceOrInsert(leafItem{dir, name, t.end})
	}
	if t.end.ids == nil && t.first == pageSize {
		t.end.ids = make([]tables.InodeID, 0, leafSize)
	}
	t.end.insert(len(t.end.ids), id, k.sum())
	t.entries++
}

// Unlink takes an entry out of its directory, and reports whether it was there. The inode
// stays.
func (t *Table[X]) Unlink(dir tables.InodeID, name string, id tables.InodeID) bool {
	t.end = nil
	it := t.leafFor(dir, name)
	at := slices.Index(it.ids, id)
	if at < 0 {
		return false
	}
	it = t.own(it)
	l := it.leaf
	copy(l.sums[at:], l.sums[at+1:])
	l.ids, l.next = slices.Delete(l.ids, at, at+1), at
	t.entries--
	if len(l.ids) <= leafSize/4 {
		t.join(it)
	}
	return true
}

// join puts a leaf that has few entries together with the one before it or the one after
// it, if it is empty or both have at most half of what a leaf can have; else its memory
// shrinks.
func (t *Table[X]) join(it leafItem) {
	var before, after leafItem
	t.leaves.DescendLessOrEqual(it, func(i leafItem) bool {
		before = i
		return i.leaf == it.leaf
	})
	t.leaves.AscendGreaterOrEqual(it, func(i leafItem) bool {
		after = i
		return i.leaf == it.leaf
	})
	for _, two := range [][2]leafItem{{before, it}, {it, after}} {
		if two[0].leaf == two[1].leaf || len(it.ids) > 0 && len(two[0].ids)+len(two[1].ids) > leafSize/2 {
			continue
		}
		t.own(two[0]).move(two[1].leaf, 0)
		t.leaves.Delete(two[1])
		return
	}
	it.ids = fit(it.ids)
}

// Find returns the number of the entry that has a name in a directory, 0 if none has.
func (t *Table[X]) Find(dir tables.InodeID, name string) tables.InodeID {
	k := newKey(dir, name)
	l, want := t.leafFor(dir, name).leaf, k.sum()
	for i, sum := range l.sums[:len(l.ids)] {
		if sum == want && t.has(l.ids[i], &k) {
			return l.ids[i]
		}
	}
	return 0
}

// Ascend calls fn for the numbers of entries in the order of directories and names, from
// those that are not before a name in a directory, until it returns false.
func (t *Table[X]) Ascend(dir tables.InodeID, name string, fn func(tables.InodeID) bool) {
	k := newKey(dir, name)
	it := t.leafFor(dir, name)
	from := t.search(it.leaf, &k)
	t.leaves.AscendGreaterOrEqual(it, func(i leafItem) bool {
		for _, id := range i.ids[from:] {
			if !fn(id) {
				return false
			}
		}
		from = 0
		return true
	})
}
