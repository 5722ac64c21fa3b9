package acl

import (
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// same reports whether two inodes have equal ACLs.
func same(a, b Of) bool { return equal(a.Access, b.Access) && equal(a.Default, b.Default) }

func equal(a, b *ACL) bool { return a == b || a != nil && b != nil && a.key == b.key }

// DifferOf reports whether what an inode has in two tables, one of which came from the other,
// differs.
func (t *Table) DifferOf(o *Table, id tables.InodeID) bool {
	if t.version == o.version {
		return false
	}
	a, _ := t.of.Get(Of{Inode: id})
	b, _ := o.of.Get(Of{Inode: id})
	return !same(a, b)
}

// CodeChange codes how what inodes below a number have differs from a newer table, for the inodes
// that each calls its argument with, until that returns false; with true for one of which the newer
// table is taken to have none. One that is read is a clone of the newer one, and good for Get
// and Forget alone. It returns the inodes that it has read.
func (t *Table) CodeChange(c *codec.Coder, newer *Table, below tables.InodeID, each func(func(id tables.InodeID, only bool) bool)) (inodes []tables.InodeID) {
	one := func(o *Of) {
		c.U64((*uint64)(&o.Inode))
		if o.Inode != 0 {
			codeACL(c, &o.Access, false)
			codeACL(c, &o.Default, true)
		}
	}
	if c.Writes() {
		each(func(id tables.InodeID, only bool) bool {
			o, has := t.of.Get(Of{Inode: id})
			if only && has || !only && t.DifferOf(newer, id) {
				o.Inode = id
				one(&o)
			}
			return c.Next()
		})
		one(new(Of))
		return nil
	}
	for c.Next() {
		var o Of
		if one(&o); o.Inode == 0 || !c.OK() {
			break
		}
		if o.Inode >= below {
			c.Fail("an inode with an ACL cannot be")
		}
		if o.Access == nil && o.Default == nil {
			t.Forget(o.Inode)
		} else {
			t.version = new(byte)
			t.of.ReplaceOrInsert(o)
		}
		inodes = append(inodes, o.Inode)
	}
	return inodes
}

// Forget takes what an inode has away, and counts nothing.
func (t *Table) Forget(id tables.InodeID) {
	if _, had := t.of.Delete(Of{Inode: id}); had {
		t.version = new(byte)
	}
}

// codeACL codes an ACL that is in no table; nil: none.
func codeACL(c *codec.Coder, a **ACL, byDefault bool) {
	var entries posixacl.ACL
	if *a != nil {
		entries = (*a).entries
	}
	codeEntries(c, &entries)
	if c.Writes() || !c.OK() || len(entries) == 0 {
		return
	}
	l, build := Lists{Access: entries}, newAccess
	if byDefault {
		l, build = Lists{Default: entries}, newDefault
	}
	if err := l.Check(); err != nil {
		c.Fail("an ACL cannot be: " + err.Error())
		return
	}
	*a = build(entries)
}
