package acl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// MaxMemory is how many bytes of memory all different ACLs may take together.
const MaxMemory = 64 << 20

// shared is an ACL in use.
type shared struct {
	*ACL
	uses int64  // by inodes, and by default ACLs whose heirs get it
	by   uint16 // the user whose file had it first, to whose account it goes
}

// Of is what one inode has; nil: no such.
type Of struct {
	Inode           tables.InodeID
	Access, Default *ACL
}

// Table has the ACLs of inodes. Each different ACL is there once.
type Table struct {
	lists   tables.Set[shared]
	of      tables.Set[Of]
	version *byte // another one after each change of what inodes have
}

// Count is told how many more bytes of memory, or less, go to the account of a user.
type Count func(user uint16, bytes int64)

// NewTable returns an empty table.
func NewTable() Table {
	return Table{
		lists: tables.NewSet(func(a, b shared) bool { return a.key < b.key }),
		of:    tables.NewSet(func(a, b Of) bool { return a.Inode < b.Inode }),
	}
}

// Clone returns a snapshot.
func (t *Table) Clone() Table { return Table{t.lists.Clone(), t.of.Clone(), t.version} }

// Len is how many inodes have ACLs.
func (t *Table) Len() int { return t.of.Len() }

// Lists is how many different ACLs there are.
func (t *Table) Lists() int { return t.lists.Len() }

// Get returns what an inode has.
func (t *Table) Get(id tables.InodeID) (access, byDefault *ACL) {
	o, _ := t.of.Get(Of{Inode: id})
	return o.Access, o.Default
}

// Plan is what a mode and ACLs an inode would have after a change, and how much more memory
// that would take; -1 if nothing changes. Errors: InvalidArgument.
func (t *Table) Plan(id tables.InodeID, mode uint16, isDir bool, change posixacl.Change) (after uint16, l Lists, more int64, err error) {
	access, byDefault := t.Get(id)
	old := Join(mode, access, byDefault)
	list, err := old.Apply(change)
	if err != nil {
		return 0, l, 0, err
	}
	bits, l := Split(list)
	switch {
	case len(l.Default) > 0 && !isDir:
		return 0, l, 0, fserror.New(fserror.InvalidArgument, "", "", "only a directory has a default ACL")
	case slices.Equal(old, list):
		return mode, l, -1, nil
	}
	return mode&^0o777 | bits, l, t.missing(l), nil
}

// missing is how much more memory lists would take.
func (t *Table) missing(l Lists) (bytes int64) {
	for _, a := range []*ACL{newAccess(l.Access), newDefault(l.Default)} {
		for ; a != nil; a = a.inherit {
			if _, ok := t.lists.Get(shared{ACL: a}); !ok {
				bytes += a.size
			}
		}
	}
	return bytes
}

// newAccess is what is not in the table yet, as far as is known; nil for an empty list.
func newAccess(entries posixacl.ACL) *ACL { return newACL("a", entries) }

func newDefault(entries posixacl.ACL) *ACL {
	a := newACL("d", entries)
	if a != nil {
		a.bits = entries.Mode()
		a.inherit = newAccess(rest(entries))
	}
	return a
}

func newACL(kind string, entries posixacl.ACL) *ACL {
	if len(entries) == 0 {
		return nil
	}
	c := codec.Encoder([]byte(kind))
	codeEntries(c, &entries)
	a := &ACL{key: string(c.Written()), size: overhead + perEntry*int64(len(entries))}
	a.size += int64(len(a.key))
	for _, e := range entries {
		a.size += int64(len(e.Name))
		e.Name = strings.Clone(e.Name)
		a.entries = append(a.entries, e)
	}
	a.entries = slices.Clip(a.entries)
	return a
}

// share returns the one of the table that is like a, with one more use.
func (t *Table) share(a *ACL, by uint16, count Count) *ACL {
	if a == nil {
		return nil
	}
	s, ok := t.lists.Get(shared{ACL: a})
	if !ok {
		s = shared{ACL: a, by: by}
		a.inherit = t.share(a.inherit, by, count)
		count(by, a.size)
	}
	s.uses++
	t.lists.ReplaceOrInsert(s)
	return s.ACL
}

// release takes one use of an ACL away.
func (t *Table) release(a *ACL, count Count) {
	if a == nil {
		return
	}
	s, ok := t.lists.Get(shared{ACL: a})
	if !ok {
		return // only in a tree that is damaged
	}
	if s.uses--; s.uses > 0 {
		t.lists.ReplaceOrInsert(s)
		return
	}
	t.lists.Delete(s)
	t.release(s.inherit, count)
	count(s.by, -s.size)
}

// Put gives an inode of a user what lists say, instead of what it has. It reports whether it
// has any ACL then.
func (t *Table) Put(id tables.InodeID, l Lists, by uint16, count Count) bool {
	return t.put(Of{id, t.share(newAccess(l.Access), by, count), t.share(newDefault(l.Default), by, count)}, count)
}

// Give gives an inode ACLs that others have or had, instead of what it has.
func (t *Table) Give(o Of, by uint16, count Count) bool {
	o.Access, o.Default = t.share(o.Access, by, count), t.share(o.Default, by, count)
	return t.put(o, count)
}

func (t *Table) put(o Of, count Count) bool {
	t.version = new(byte)
	old, _ := t.of.Get(o)
	has := o.Access != nil || o.Default != nil
	if has {
		t.of.ReplaceOrInsert(o)
	} else {
		t.of.Delete(o)
	}
	t.release(old.Access, count)
	t.release(old.Default, count)
	return has
}

// Drop takes from an inode what it has.
func (t *Table) Drop(id tables.InodeID, count Count) { t.put(Of{Inode: id}, count) }

// Code is the layout in an image: the different ACLs with those to whose account they go,
// then the inodes that have some. put is told of each inode that was read, and returns
// false if it cannot have them.
func (t *Table) Code(c *codec.Coder, users int, put func(Of) bool, count Count) {
	var all []*ACL
	t.codeLists(c, users, &all)
	number := make(map[*ACL]uint64, len(all))
	for i, a := range all {
		number[a] = uint64(i) + 1
	}
	codeOne := func(a **ACL, kind byte) {
		n := number[*a]
		c.U64(&n)
		if c.Writes() || n == 0 {
			return
		}
		if n > uint64(len(all)) || all[n-1].key[0] != kind {
			c.Fail(fmt.Sprintf("an inode has ACL %d, which is none", n))
			return
		}
		*a = all[n-1]
	}
	item := func(o *Of) {
		c.U64((*uint64)(&o.Inode))
		codeOne(&o.Access, 'a')
		codeOne(&o.Default, 'd')
	}
	if c.Writes() {
		c.Put(uint64(t.of.Len())) //nolint:gosec // a length
		t.of.Ascend(func(o Of) bool {
			item(&o)
			return c.Next()
		})
		return
	}
	last := tables.InodeID(0)
	for range c.Number(63) {
		var o Of
		if item(&o); !c.OK() {
			return
		}
		if o.Inode <= last || o.Access == nil && o.Default == nil || !put(o) {
			c.Fail(fmt.Sprintf("inode %d cannot have an ACL here", o.Inode))
			return
		}
		t.of.ReplaceOrInsert(o)
		for _, a := range []*ACL{o.Access, o.Default} {
			t.use(a)
		}
		if last = o.Inode; !c.Next() {
			return
		}
	}
	t.lists.Ascend(func(s shared) bool {
		if s.uses == 0 {
			c.Fail("an ACL is of no inode")
		}
		count(s.by, s.size)
		return c.OK()
	})
}

// use counts one more use of an ACL that was read from an image.
func (t *Table) use(a *ACL) {
	if a != nil {
		s, _ := t.lists.Get(shared{ACL: a})
		s.uses++
		t.lists.ReplaceOrInsert(s)
	}
}

// codeLists codes the different ACLs in the order of their keys, access ACLs first.
func (t *Table) codeLists(c *codec.Coder, users int, all *[]*ACL) {
	one := func(s *shared) {
		kind := uint8('a')
		var entries posixacl.ACL
		if c.Writes() {
			kind, entries = s.key[0], s.entries
		}
		c.U8(&kind)
		codeEntries(c, &entries)
		c.U16(&s.by)
		if c.Writes() || !c.OK() {
			return
		}
		l, build := Lists{Access: entries}, newAccess
		if kind == 'd' {
			l, build = Lists{Default: entries}, newDefault
		}
		if err := l.Check(); err != nil || kind != 'a' && kind != 'd' || len(entries) == 0 || int(s.by) >= users {
			c.Fail(fmt.Sprintf("an ACL of kind %d, user %d: %v", kind, s.by, err))
			return
		}
		s.ACL = build(entries)
	}
	if c.Writes() {
		c.Put(uint64(t.lists.Len())) //nolint:gosec // a length
		t.lists.Ascend(func(s shared) bool {
			one(&s)
			*all = append(*all, s.ACL)
			return c.Next()
		})
		return
	}
	last := ""
	for range c.Number(63) {
		var s shared
		if one(&s); !c.OK() {
			return
		}
		if s.key <= last {
			c.Fail("ACLs are not in order")
			return
		}
		last = s.key
		if s.inherit != nil {
			in, ok := t.lists.Get(shared{ACL: s.inherit})
			if !ok {
				c.Fail("a default ACL lacks the ACL that its heirs get")
				return
			}
			in.uses++
			t.lists.ReplaceOrInsert(in)
			s.inherit = in.ACL
		}
		t.lists.ReplaceOrInsert(s)
		if *all = append(*all, s.ACL); !c.Next() {
			return
		}
	}
}

// Check compares the parts of the table with each other. has tells whether an inode is
// marked as one that has ACLs, and whether it is a directory; count is as of the tree.
func (t *Table) Check(problem tables.Problem, has func(tables.InodeID) (marked, isDir bool), count Count) {
	uses := make(map[*ACL]int64)
	t.of.Ascend(func(o Of) bool {
		marked, isDir := has(o.Inode)
		if !marked || o.Default != nil && !isDir || o.Access == nil && o.Default == nil {
			problem("inode %d has an ACL and is not marked as having one, or cannot have it", o.Inode)
		}
		for _, a := range []*ACL{o.Access, o.Default} {
			if a != nil {
				uses[a]++
			}
		}
		return true
	})
	t.lists.Ascend(func(s shared) bool {
		if s.inherit != nil {
			uses[s.inherit]++
		}
		count(s.by, s.size)
		return true
	})
	t.lists.Ascend(func(s shared) bool {
		if s.uses != uses[s.ACL] || s.uses == 0 {
			problem("the ACL %s is counted for %d uses, but has %d", s.entries, s.uses, uses[s.ACL])
		}
		delete(uses, s.ACL)
		return true
	})
	if len(uses) > 0 {
		problem("%d ACLs are not in the table", len(uses))
	}
}
