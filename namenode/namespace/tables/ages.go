package tables

import (
	"cmp"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// AgeKey names something whose age is journalled; exactly one field is set.
type AgeKey struct {
	Session SessionID // the lease of a session
	Inode   InodeID   // the lease of a file that its session lists no more
	Lease   LeaseID   // a granted lease
}

// Age is how long a lease was not renewed, as journalled.
type Age struct {
	AgeKey
	MS int64 // milliseconds; 0: it was renewed
}

// Good reports whether an age is of exactly one thing, and not below zero.
func (a *Age) Good() bool {
	n := 0
	for _, is := range []bool{a.Session != SessionID{}, a.Inode != 0, a.Lease != 0} {
		if is {
			n++
		}
	}
	return n == 1 && a.MS >= 0
}

// AgeSize is how many bytes the layout of an age takes at least.
const AgeSize = 16 + 1 + 1 + 1

// Code is the layout of an age.
func (a *Age) Code(c *codec.Coder) {
	c.Raw((*[16]byte)(&a.Session))
	c.U64((*uint64)(&a.Inode))
	c.U64((*uint64)(&a.Lease))
	c.I64(&a.MS)
}

// Ages are the ages of leases, none of which is 0.
type Ages struct{ set Set[Age] }

// NewAges returns an empty table.
func NewAges() Ages {
	return Ages{NewSet(func(a, b Age) bool {
		return cmp.Or(cmp.Compare(a.Lease, b.Lease), cmp.Compare(a.Inode, b.Inode), compareSessions(a.Session, b.Session)) < 0
	})}
}

// Clone returns a snapshot.
func (t *Ages) Clone() Ages { return Ages{t.set.Clone()} }

// Len is how many ages there are.
func (t *Ages) Len() int { return t.set.Len() }

// Get returns an age in milliseconds, 0 if there is none.
func (t *Ages) Get(k AgeKey) int64 {
	a, _ := t.set.Get(Age{AgeKey: k})
	return a.MS
}

// Each calls fn for each age, until it returns false.
func (t *Ages) Each(fn func(Age) bool) { t.set.Ascend(fn) }

// Put keeps an age; one of 0 is forgotten.
func (t *Ages) Put(a Age) {
	if a.MS == 0 {
		t.Forget(a.AgeKey)
		return
	}
	t.set.ReplaceOrInsert(a)
}

// Forget forgets the age, if there is one, of what is over.
func (t *Ages) Forget(k AgeKey) {
	if t.set.Len() > 0 {
		t.set.Delete(Age{AgeKey: k})
	}
}

// Code is the layout in an image. can says what can have an age.
func (t *Ages) Code(c *codec.Coder, can func(AgeKey) bool) {
	t.set.Code(c, func(a *Age) { a.Code(c) }, func(_, a Age) bool {
		t.set.ReplaceOrInsert(a)
		return a.fits(can)
	})
}

func (a Age) fits(can func(AgeKey) bool) bool { return a.MS != 0 && a.Good() && can(a.AgeKey) }

// Check finds ages of what can have none.
func (t *Ages) Check(problem Problem, can func(AgeKey) bool) {
	t.set.Ascend(func(a Age) bool {
		if !a.fits(can) {
			problem("age %d ms on an entry that cannot have one: %+v", a.MS, a.AgeKey)
		}
		return true
	})
}
