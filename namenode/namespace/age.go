package namespace

import (
	"bytes"
	"cmp"
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

func lessAge(a, b Age) bool {
	return cmp.Or(cmp.Compare(a.Lease, b.Lease), cmp.Compare(a.Inode, b.Inode), bytes.Compare(a.Session[:], b.Session[:])) < 0
}

// names reports whether a key names exactly one thing.
func (k AgeKey) names() bool {
	n := 0
	for _, is := range []bool{k.Session != SessionID{}, k.Inode != 0, k.Lease != 0} {
		if is {
			n++
		}
	}
	return n == 1
}

// canAge reports whether there is a lease that can have an age: of a file that
// is open, or a granted one that lives. Which sessions there are the tree does
// not know.
func (t *Tree) canAge(k AgeKey) bool {
	switch {
	case k.Inode != 0:
		return t.open.Has(k.Inode)
	case k.Lease != 0:
		_, err := t.liveLease(k.Lease)
		return err == nil
	}
	return true
}

// forgetAge is called when what had an age is over.
func (t *Tree) forgetAge(k AgeKey) {
	if t.ages.Len() > 0 {
		t.ages.Delete(Age{AgeKey: k})
	}
}

// WriterOf returns the file that a record of its writer is about: bytes that it
// brings, or the close. Ask before the record is applied. The namenode's own records, a
// block that it makes of a tail among them, are no writer's; nor is the commit of a
// block that makes the file no longer, since the two look alike.
//
// Such a record is a renewal: live, the namenode renews the session when it applies
// the record; and the tree forgets the session's age, so that a namenode that takes
// over counts its limits from then.
func (t *Tree) WriterOf(op Op) (f OpenFile, ok bool) {
	if w, is := op.(interface{ written() InodeID }); is {
		return t.OpenFile(w.written())
	}
	return f, false
}

// Age returns a journalled age in milliseconds, 0 if there is none.
func (t *Tree) Age(k AgeKey) int64 {
	a, _ := t.ages.Get(Age{AgeKey: k})
	return a.MS
}

// Ages calls fn for each journalled age, until it returns false.
func (t *Tree) Ages(fn func(Age) bool) { t.ages.Ascend(fn) }
