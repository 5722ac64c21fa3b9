package namespace

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/google/btree"
)

// Equal compares the states of two trees; if they differ it says in what
// first. What is no state (the memory that tails take, what is not durable) is
// not compared.
func (t *Tree) Equal(o *Tree) (bool, string) {
	if d := t.difference(o); d != "" {
		return false, d
	}
	return true, ""
}

func (t *Tree) difference(o *Tree) string {
	differ := func(what string, a, b any) string { return fmt.Sprintf("%s: %v and %v", what, a, b) }
	a, b := t.Counts(), o.Counts()
	a.TailBytes, b.TailBytes = 0, 0
	a.ClosedTailBytes, b.ClosedTailBytes = 0, 0
	switch {
	case t.txid != o.txid || t.time != o.time:
		return differ("last record", [2]int64{int64(t.txid), t.time}, [2]int64{int64(o.txid), o.time}) //nolint:gosec // to print
	case t.reigned != o.reigned:
		return differ("time of reigns", t.reigned, o.reigned)
	case t.term != o.term:
		return differ("term", t.term, o.term)
	case t.namespace != o.namespace:
		return differ("namespace", t.namespace, o.namespace)
	case t.superUser != o.superUser || t.superGroup != o.superGroup:
		return differ("superuser", t.superUser+":"+t.superGroup, o.superUser+":"+o.superGroup)
	case t.safeMode != o.safeMode:
		return differ("safe mode", t.safeMode, o.safeMode)
	case !slices.Equal(t.images, o.images):
		return differ("images", t.images, o.images)
	case !slices.Equal(t.Reigns(), o.Reigns()):
		return differ("reigns", t.Reigns(), o.Reigns())
	case t.nextInode != o.nextInode:
		return differ("next inode", t.nextInode, o.nextInode)
	case !slices.Equal(t.users.names, o.users.names):
		return differ("users", t.users.names, o.users.names)
	case !slices.Equal(t.groups.names, o.groups.names):
		return differ("groups", t.groups.names, o.groups.names)
	case a != b:
		return differ("counts", a, b)
	}
	diff := ""
	t.eachInode(func(n *inode) bool {
		diff = inodeDifference(n, o.get(n.id))
		return diff == ""
	})
	return cmp.Or(
		diff,
		itemDifference("open files", t.open, o.open, equal),
		itemDifference("deleted directories", t.detached, o.detached, equal),
		itemDifference("blocks", t.blocks, o.blocks, equal),
		itemDifference("garbage", t.garbage, o.garbage, equal),
		itemDifference("age of sessions", t.idle, o.idle, equal),
		itemDifference("attached files", t.attachments, o.attachments, equal),
		itemDifference("ages of leases", t.ages, o.ages, equal),
		itemDifference("sessions that may cache", t.caching, o.caching, equal),
		itemDifference("inode numbers set aside", t.numbers, o.numbers, equal),
		itemDifference("extended attributes", t.xattrs, o.xattrs, equal),
		itemDifference("granted leases", t.leases, o.leases, func(x, y *Lease) bool { return *x == *y }),
		t.sessionDifference(o),
	)
}

func equal[T comparable](x, y T) bool { return x == y }

// itemDifference compares two B-trees.
func itemDifference[T any](what string, a, b *btree.BTreeG[T], equal func(x, y T) bool) (diff string) {
	if a.Len() != b.Len() {
		return fmt.Sprintf("%s: %d and %d", what, a.Len(), b.Len())
	}
	a.Ascend(func(x T) bool {
		if y, ok := b.Get(x); !ok || !equal(x, y) {
			diff = fmt.Sprintf("%s: %+v and %+v", what, x, y)
		}
		return diff == ""
	})
	return diff
}

func (t *Tree) sessionDifference(o *Tree) (diff string) {
	t.sessions.Ascend(func(s sessionItem) bool {
		p := o.session(s.id)
		if p == nil || p.last != s.last || p.acked != s.acked || !slices.Equal(p.results, s.results) {
			diff = fmt.Sprintf("session %x: %+v and %+v", s.id, s.session, p)
		}
		return diff == ""
	})
	return diff
}

// inodeDifference compares two inodes of the same number.
func inodeDifference(a, b *inode) string {
	if b == nil {
		return fmt.Sprintf("inode %d: is in one only", a.id)
	}
	x, y := *a, *b
	x.ext, y.ext = nil, nil
	if x != y {
		return fmt.Sprintf("inode %d: %+v and %+v", a.id, x, y)
	}
	p, q := new(ext), new(ext)
	if a.ext != nil {
		p = a.ext
	}
	if b.ext != nil {
		q = b.ext
	}
	switch {
	case a.nameString() != b.nameString() || p.n != q.n || p.cut != q.cut:
		return fmt.Sprintf("inode %d: %q %d %d and %q %d %d", a.id, a.nameString(), p.n, p.cut, b.nameString(), q.n, q.cut)
	case !slices.Equal(p.blocks, q.blocks):
		return fmt.Sprintf("inode %d: blocks %v and %v", a.id, p.blocks, q.blocks)
	case !bytes.Equal(p.tail, q.tail):
		return fmt.Sprintf("inode %d: tails of %d and %d bytes differ", a.id, len(p.tail), len(q.tail))
	case (p.open == nil) != (q.open == nil):
		return fmt.Sprintf("inode %d: is open in one only", a.id)
	case p.open != nil:
		g, h := *p.open.grant, *q.open.grant
		holders := *g.holder == *h.holder
		g.holder, h.holder = nil, nil
		u, v := *p.open, *q.open
		u.grant, v.grant = nil, nil
		if !holders || g != h || u != v {
			return fmt.Sprintf("inode %d: is open as %+v %+v and %+v %+v", a.id, a.openFile(), u, b.openFile(), v)
		}
	}
	return ""
}
