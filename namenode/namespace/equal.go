package namespace

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Equal compares the states of two trees; if they differ it says in what
// first. What is no state (the memory that tails take, what is not durable) is
// not compared.
func (t *Tree) Equal(o *Tree) (bool, string) {
	d := t.difference(o)
	return d == "", d
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
	case t.namespace != o.namespace:
		return differ("namespace", t.namespace, o.namespace)
	case t.superUser != o.superUser || t.superGroup != o.superGroup:
		return differ("superuser", t.superUser+":"+t.superGroup, o.superUser+":"+o.superGroup)
	case t.safeMode != o.safeMode:
		return differ("safe mode", t.safeMode, o.safeMode)
	case !slices.Equal(t.images, o.images):
		return differ("images", t.images, o.images)
	case t.nextInode != o.nextInode:
		return differ("next inode", t.nextInode, o.nextInode)
	}
	if d := cmp.Or(t.reigns.Difference(&o.reigns), t.users.Difference("users", &o.users), t.groups.Difference("groups", &o.groups)); d != "" {
		return d
	}
	if a != b {
		return differ("counts", a, b)
	}
	diff := ""
	t.byID.Each(func(n *inode) bool {
		diff = inodeDifference(n, o.get(n.id))
		return diff == ""
	})
	return cmp.Or(
		diff,
		tables.Difference("open files", t.open, o.open),
		tables.Difference("deleted directories", t.detached, o.detached),
		tables.Difference("blocks", t.blocks, o.blocks),
		t.garbage.Difference(&o.garbage),
		t.results.Difference(&o.results),
		t.leases.Difference(&o.leases),
		t.ages.Difference(&o.ages),
		t.cachers.Difference(&o.cachers),
		t.xattrs.Difference(&o.xattrs),
	)
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
