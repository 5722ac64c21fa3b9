// Package acl has the access control lists of inodes: each different one once, however many
// inodes have it, and what they allow.
//
// The mode of an inode says of its access ACL what owner, mask and others may; an [ACL] is
// the rest. So chmod changes no ACL, and all that is made in a directory with a default ACL
// shares the one that it inherits. See docs/adr/0030-acls.md.
package acl

import (
	"slices"

	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// ACL is one list without what a mode says of it. It is shared, and never changed.
type ACL struct {
	key string
	// entries are, of an access ACL, the owning group and who is named; of a default ACL,
	// all.
	entries posixacl.ACL
	size    int64

	// Of a default ACL: the bits that the mode of something made in the directory can
	// have, and the access ACL that it gets; nil: none, the mode says all.
	bits    uint16
	inherit *ACL
}

// Memory is how many bytes of memory the ACL takes.
func (a *ACL) Memory() int64 { return a.size }

// overhead is how many bytes of memory an ACL takes besides its entries and names.
const overhead, perEntry = 200, 40

// rest is an access ACL without what the mode says. It is nil if the mode says all.
func rest(access posixacl.ACL) (out posixacl.ACL) {
	if !access.Extended() {
		return nil
	}
	for _, e := range access {
		if e.Tag == posixacl.User || e.Tag == posixacl.Group || e.Tag == posixacl.OwningGroup {
			out = append(out, e)
		}
	}
	return out
}

// Lists are the two ACLs of an inode, as a record has them.
type Lists struct {
	// Access has the owning group and who is named; the mode has the rest. Default has all.
	// Empty: there is none.
	Access, Default posixacl.ACL
}

// Split is a list as a mode and the rest.
func Split(a posixacl.ACL) (mode uint16, l Lists) {
	access := a.Part(false)
	return access.Mode(), Lists{Access: rest(access), Default: a.Part(true)}
}

// Join is the reverse.
func Join(mode uint16, access, byDefault *ACL) posixacl.ACL {
	out := posixacl.FromMode(mode)
	if access != nil {
		out = append(out[:0], posixacl.Entry{Tag: posixacl.Owner, Perm: uint8(mode >> 6 & 7)})
		out = append(out, access.entries...)
		out = append(out, posixacl.Entry{Tag: posixacl.Mask, Perm: uint8(mode >> 3 & 7)}, posixacl.Entry{Tag: posixacl.Other, Perm: uint8(mode & 7)})
		slices.SortFunc(out, posixacl.Compare)
	}
	if byDefault != nil {
		out = append(out, byDefault.entries.AsDefault()...)
	}
	return out
}

// Check returns an error unless the lists are what Split makes of a list.
func (l Lists) Check() error {
	full := posixacl.FromMode(0)
	if len(l.Access) > 0 {
		full = append(slices.Clone(l.Access), posixacl.Entry{Tag: posixacl.Owner}, posixacl.Entry{Tag: posixacl.Mask}, posixacl.Entry{Tag: posixacl.Other})
		slices.SortFunc(full, posixacl.Compare)
	}
	for _, e := range slices.Concat(l.Access, l.Default) {
		if e.Default {
			return errDefault
		}
	}
	return append(full, l.Default.AsDefault()...).Check()
}

type misfit string

func (m misfit) Error() string { return string(m) }

const errDefault = misfit("an entry of an ACL is marked as one of a default ACL, which it is by its place")

// Code is the layout in records and images.
func (l *Lists) Code(c *codec.Coder) {
	codeEntries(c, &l.Access)
	codeEntries(c, &l.Default)
}

func codeEntries(c *codec.Coder, a *posixacl.ACL) {
	codec.List(c, (*[]posixacl.Entry)(a), 3, func(e *posixacl.Entry) {
		c.U8((*uint8)(&e.Tag))
		c.Text(&e.Name)
		c.U8(&e.Perm)
	})
}

// Allowed reports whether a user who does not own an inode may do all of want with it, by
// acl(5): a user who is named has that entry's rights, under the mask; else who is in the
// owning group or groups that are named has those of one entry, under the mask; else others'
// rights count.
func (a *ACL) Allowed(user string, groups []string, group string, mode, want uint16) bool {
	mask := mode >> 3 & 7
	isMember, granted := false, false
	for _, e := range a.entries {
		perm := uint16(e.Perm)
		name := e.Name
		switch e.Tag {
		case posixacl.User:
			if e.Name == user {
				return perm&mask&want == want
			}
			continue
		case posixacl.OwningGroup:
			name = group
		}
		if slices.Contains(groups, name) {
			isMember = true
			granted = granted || perm&want == want
		}
	}
	if isMember {
		return granted && mask&want == want
	}
	return mode&want == want
}

// Inherit is what something gets that is made with a mode in a directory with this default ACL.
func (a *ACL) Inherit(mode uint16) (uint16, *ACL) {
	return mode & (a.bits | ^uint16(0o777)), a.inherit
}

// Note is what an error that names a mode says of an access ACL, nil if there is none.
func (a *ACL) Note() string {
	if a == nil {
		return ""
	}
	return ", and an ACL"
}

// String is what a mode does not say, for people.
func (a *ACL) String() string {
	if a == nil {
		return "none"
	}
	return a.entries.String()
}
