package namespace

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

const (
	// MaxReserve is how many inode numbers one record sets aside at most.
	MaxReserve = 1 << 16
	// maxRanges is how many ranges of numbers a session has: with one more it
	// loses its oldest.
	maxRanges = 8
)

// numbers are inode numbers that are set aside for a session's files. Each is used
// once, also if its file is deleted.
type numbers struct {
	session SessionID
	first   InodeID
	count   uint32
	used    string // one bit a number, the lowest first; empty: none
}

// isUsed reports whether the i-th number was used.
func (n *numbers) isUsed(i InodeID) bool { return n.used != "" && n.used[i/8]&(1<<(i%8)) != 0 }

// use returns the numbers with the i-th used, too.
func (n numbers) use(i InodeID) numbers {
	used := make([]byte, n.bitmap())
	copy(used, n.used)
	used[i/8] |= 1 << (i % 8)
	n.used = string(used)
	return n
}

// bitmap is how many bytes used has, unless it is empty.
func (n *numbers) bitmap() int { return int(n.count+7) / 8 }

// goodUsed reports whether used can be: there is one form for each set.
func (n *numbers) goodUsed() bool {
	if n.used == "" {
		return true
	}
	return len(n.used) == n.bitmap() && strings.Trim(n.used, "\x00") != "" && (n.count%8 == 0 || n.used[len(n.used)-1]>>(n.count%8) == 0)
}

func lessNumbers(a, b numbers) bool {
	return cmp.Or(bytes.Compare(a.session[:], b.session[:]), cmp.Compare(a.first, b.first)) < 0
}

func (n *numbers) fields(c coder) {
	c.Raw((*[16]byte)(&n.session))
	c.inode(&n.first)
	c.U32(&n.count)
	c.Text(&n.used)
}

// numbersOf is what is set aside for a session, the oldest first.
func (t *Tree) numbersOf(id SessionID) (out []numbers) {
	t.numbers.AscendGreaterOrEqual(numbers{session: id}, func(n numbers) bool {
		if n.session != id {
			return false
		}
		out = append(out, n)
		return true
	})
	return out
}

// dropNumbers forgets what is set aside for a session that caches no more.
func (t *Tree) dropNumbers(id SessionID) {
	for _, n := range t.numbersOf(id) {
		t.numbers.Delete(n)
	}
}

// Reserved reports whether an inode number is set aside for a session, and was not
// used.
func (t *Tree) Reserved(id SessionID, inode InodeID) bool {
	n, found := t.rangeOf(id, inode)
	return found && !n.isUsed(inode-n.first)
}

// rangeOf returns the range of a session's that has a number.
func (t *Tree) rangeOf(id SessionID, inode InodeID) (out numbers, found bool) {
	t.numbers.DescendLessOrEqual(numbers{session: id, first: inode}, func(n numbers) bool {
		out, found = n, n.session == id && inode-n.first < InodeID(n.count)
		return false
	})
	return out, found
}

// sharedNumbers are the ranges that begin in one that begins before.
func (t *Tree) sharedNumbers() (out []numbers) {
	var all []numbers
	t.numbers.Ascend(func(n numbers) bool {
		all = append(all, n)
		return true
	})
	slices.SortFunc(all, func(a, b numbers) int { return cmp.Compare(a.first, b.first) })
	var end InodeID
	for _, n := range all {
		if n.first < end {
			out = append(out, n)
		}
		end = max(end, n.first+InodeID(n.count))
	}
	return out
}

// goodNumbers reports whether such numbers can be set aside.
func (t *Tree) goodNumbers(n numbers) bool {
	return n.goodUsed() && n.first > RootID && n.count > 0 && n.count <= MaxReserve && n.first < t.nextInode &&
		InodeID(n.count) <= t.nextInode-n.first && t.Caching(n.session) > 0
}
