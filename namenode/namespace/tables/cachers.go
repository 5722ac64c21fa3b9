package tables

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

const (
	// MaxReserve is how many inode numbers one record sets aside at most.
	MaxReserve = 1 << 16
	// MaxRanges is how many ranges of numbers a session has: with one more it
	// loses its oldest.
	MaxRanges = 8
)

// Cachers are the sessions that may have read-cache leases, and the inode numbers
// that are set aside for files of theirs.
type Cachers struct {
	terms  Set[cacher]
	ranges Set[numbers]
}

type cacher struct {
	session SessionID
	term    int64 // milliseconds that a lease of its lasts at most
}

// numbers are inode numbers that are set aside for a session's files. Each is used
// once, also if its file is deleted.
type numbers struct {
	session SessionID
	first   InodeID
	count   uint32
	used    string // one bit a number, the lowest first; empty: none
}

// NewCachers returns an empty table.
func NewCachers() Cachers {
	return Cachers{
		terms: NewSet(func(a, b cacher) bool { return compareSessions(a.session, b.session) < 0 }),
		ranges: NewSet(func(a, b numbers) bool {
			return cmp.Or(compareSessions(a.session, b.session), cmp.Compare(a.first, b.first)) < 0
		}),
	}
}

// Clone returns a snapshot.
func (t *Cachers) Clone() Cachers { return Cachers{t.terms.Clone(), t.ranges.Clone()} }

// Term returns the term of the read-cache leases that a session may have, in
// milliseconds; 0 if it may have none.
func (t *Cachers) Term(id SessionID) int64 {
	c, _ := t.terms.Get(cacher{session: id})
	return c.term
}

// All returns all sessions, and the longest of their terms in milliseconds.
func (t *Cachers) All() (ids []SessionID, term int64) {
	t.terms.Ascend(func(c cacher) bool {
		ids = append(ids, c.session)
		term = max(term, c.term)
		return true
	})
	return ids, term
}

// Put sets the term of a session; with 0 it may have no leases any more, and loses
// its numbers.
func (t *Cachers) Put(id SessionID, term int64) {
	if term > 0 {
		t.terms.ReplaceOrInsert(cacher{id, term})
		return
	}
	t.terms.Delete(cacher{session: id})
	for _, n := range t.of(id) {
		t.ranges.Delete(n)
	}
}

// of is what is set aside for a session, the oldest first.
func (t *Cachers) of(id SessionID) (out []numbers) {
	t.ranges.From(numbers{session: id}, func(n numbers) bool {
		if n.session != id {
			return false
		}
		out = append(out, n)
		return true
	})
	return out
}

// SetAside sets count numbers aside for a session, from first on.
func (t *Cachers) SetAside(id SessionID, first InodeID, count uint32) {
	if have := t.of(id); len(have) == MaxRanges {
		t.ranges.Delete(have[0])
	}
	t.ranges.ReplaceOrInsert(numbers{session: id, first: first, count: count})
}

// Spent reports whether the last range that was set aside for a session is used up, but for a quarter of
// its numbers, or there is none.
func (t *Cachers) Spent(id SessionID) bool {
	have := t.of(id)
	if len(have) == 0 {
		return true
	}
	last, used := have[len(have)-1], 0
	for _, b := range []byte(last.used) {
		used += bits.OnesCount8(b)
	}
	return uint32(used) >= last.count-last.count/4 //nolint:gosec // at most count
}

// Ranges is how many ranges of numbers are set aside.
func (t *Cachers) Ranges() int { return t.ranges.Len() }

// find returns the range of a session's that has a number.
func (t *Cachers) find(id SessionID, inode InodeID) (out numbers, found bool) {
	t.ranges.DescendLessOrEqual(numbers{session: id, first: inode}, func(n numbers) bool {
		out, found = n, n.session == id && inode-n.first < InodeID(n.count)
		return false
	})
	return out, found
}

// Reserved reports whether a number is set aside for a session, and was not used.
func (t *Cachers) Reserved(id SessionID, inode InodeID) bool {
	n, found := t.find(id, inode)
	return found && !n.isUsed(inode-n.first)
}

// Use notes that a number which is reserved is used.
func (t *Cachers) Use(id SessionID, inode InodeID) {
	if n, found := t.find(id, inode); found {
		t.ranges.ReplaceOrInsert(n.use(inode - n.first))
	}
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

// good reports whether such numbers can be set aside, next being the number that
// comes next.
func (t *Cachers) good(n numbers, next InodeID) bool {
	return n.goodUsed() && n.first > 1 && n.count > 0 && n.count <= MaxReserve && n.first < next &&
		InodeID(n.count) <= next-n.first && t.Term(n.session) > 0
}

// shared are the ranges that begin in one that begins before.
func (t *Cachers) shared() (out []numbers) {
	var all []numbers
	t.ranges.Ascend(func(n numbers) bool {
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

// CodeTerms is the layout of the sessions in an image.
func (t *Cachers) CodeTerms(c *codec.Coder) {
	t.terms.Code(c, func(x *cacher) {
		c.Raw((*[16]byte)(&x.session))
		c.I64(&x.term)
	}, func(_, x cacher) bool {
		t.terms.ReplaceOrInsert(x)
		return x.term > 0 && x.session != SessionID{}
	})
}

// CodeNumbers is the layout of their numbers in an image.
func (t *Cachers) CodeNumbers(c *codec.Coder, next InodeID) {
	t.ranges.Code(c, func(n *numbers) {
		c.Raw((*[16]byte)(&n.session))
		c.U64((*uint64)(&n.first))
		c.U32(&n.count)
		c.Text(&n.used)
	}, func(last, n numbers) bool {
		t.ranges.ReplaceOrInsert(n)
		return t.good(n, next) && (n.session != last.session || n.first-last.first >= InodeID(last.count))
	})
	if !c.Writes() && c.OK() && len(t.shared()) > 0 {
		c.Fail("one is set aside for two sessions")
	}
}

// Check finds what cannot be.
func (t *Cachers) Check(problem Problem, next InodeID) {
	t.terms.Ascend(func(x cacher) bool {
		if x.term <= 0 || x.session == (SessionID{}) {
			problem("session %x may cache for %d ms", x.session, x.term)
		}
		return true
	})
	t.ranges.Ascend(func(n numbers) bool {
		if !t.good(n, next) || len(t.of(n.session)) > MaxRanges {
			problem("inode numbers %d to %d cannot be set aside for session %x", n.first, n.first+InodeID(n.count)-1, n.session)
		}
		return true
	})
	for _, n := range t.shared() {
		problem("inode number %d, set aside for session %x, is another session's, too", n.first, n.session)
	}
}
