package posixacl

import (
	"cmp"
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
)

// MaxEntries is how many entries an access ACL may have, and how many a default ACL, as
// in HDFS. Those that each list has count too.
const MaxEntries = 32

// Tag is whom an entry is for. The order is that of a list.
type Tag uint8

// The tags.
const (
	Owner       Tag = iota + 1 // the user who owns the file
	User                       // a user by name
	OwningGroup                // the group of the file
	Group                      // a group by name
	Mask                       // at most this for User, OwningGroup and Group
	Other                      // everybody else
)

// named reports whether an entry with the tag has a name.
func (t Tag) named() bool { return t == User || t == Group }

// Entry is one entry of a list.
type Entry struct {
	// Default: it is for what is made in the directory, and not for the directory.
	Default bool
	Tag     Tag
	Name    string // of User and Group
	Perm    uint8  // 4: read, 2: write, 1: execute, or search
}

// sameAs reports whether two entries are about the same.
func (e Entry) sameAs(o Entry) bool {
	return e.Default == o.Default && e.Tag == o.Tag && e.Name == o.Name
}

// Compare is the order of entries in a list: those of the access ACL first, then by tag
// and name. Permissions do not count.
func Compare(a, b Entry) int {
	if a.Default != b.Default {
		if b.Default {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Name, b.Name))
}

// ACL is an access ACL and, of a directory that has one, a default ACL. It is in the order
// of Compare unless something else is said.
type ACL []Entry

// FromMode is the ACL that says what the nine permission bits of a mode say.
func FromMode(mode uint16) ACL {
	return ACL{
		{Tag: Owner, Perm: uint8(mode >> 6 & 7)},
		{Tag: OwningGroup, Perm: uint8(mode >> 3 & 7)},
		{Tag: Other, Perm: uint8(mode & 7)},
	}
}

// Mode is the permission bits that go with the access ACL: those of the group are the mask,
// if there is one.
func (a ACL) Mode() (mode uint16) {
	group, masked := uint16(0), false
	for _, e := range a {
		switch {
		case e.Default:
		case e.Tag == Owner:
			mode |= uint16(e.Perm) << 6
		case e.Tag == OwningGroup && !masked:
			group = uint16(e.Perm) << 3
		case e.Tag == Mask:
			group, masked = uint16(e.Perm)<<3, true
		case e.Tag == Other:
			mode |= uint16(e.Perm)
		}
	}
	return mode | group
}

// Part is the access ACL alone, or the default ACL as if it were one.
func (a ACL) Part(ofDefault bool) (part ACL) {
	for _, e := range a {
		if e.Default == ofDefault {
			e.Default = false
			part = append(part, e)
		}
	}
	return part
}

// AsDefault is an access ACL as the default ACL of a directory.
func (a ACL) AsDefault() ACL {
	out := slices.Clone(a)
	for i := range out {
		out[i].Default = true
	}
	return out
}

// Extended reports whether a list says more than a mode can: it has entries by name, a mask
// or a default ACL.
func (a ACL) Extended() bool { return len(a) > 3 }

// Get returns the entry about something.
func (a ACL) Get(ofDefault bool, tag Tag, name string) (Entry, bool) {
	want := Entry{Default: ofDefault, Tag: tag, Name: name}
	for _, e := range a {
		if e.sameAs(want) {
			return e, true
		}
	}
	return want, false
}

// Check returns an error of kind InvalidArgument unless the list is one: in order, with all
// that it has to have, and within MaxEntries.
func (a ACL) Check() error {
	for i, e := range a {
		if err := e.check(); err != nil {
			return err
		}
		if i > 0 && Compare(a[i-1], e) >= 0 {
			return invalid("it says twice what %s is", e.who())
		}
	}
	if err := a.Part(false).checkPart("access"); err != nil {
		return err
	}
	if d := a.Part(true); len(d) > 0 {
		return d.checkPart("default")
	}
	return nil
}

func (e Entry) check() error {
	switch {
	case e.Tag < Owner || e.Tag > Other || e.Perm > 7:
		return invalid("an entry has tag %d and permissions %#o, which mean nothing", e.Tag, e.Perm)
	case e.Tag.named() && e.Name == "":
		return invalid("an entry is for a user or group by name, but has no name")
	case !e.Tag.named() && e.Name != "":
		return invalid("an entry has the name %q, but is not for a user or group by name", e.Name)
	}
	return nil
}

func (a ACL) checkPart(which string) error {
	var has [Other + 1]bool
	named := false
	for _, e := range a {
		has[e.Tag] = true
		named = named || e.Tag.named()
	}
	switch {
	case len(a) > MaxEntries:
		return invalid("the %s ACL would have %d entries; the limit is %d. Give rights to a group instead of to each user", which, len(a), MaxEntries)
	case !has[Owner] || !has[OwningGroup] || !has[Other]:
		return invalid("the %s ACL has to have user::, group:: and other::", which)
	case named && !has[Mask]:
		return invalid("the %s ACL has entries for users or groups by name, and these need a mask::", which)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fserror.New(fserror.InvalidArgument, "", "", "the ACL cannot be: "+format, args...)
}

// sort brings entries into order.
func sort(a ACL) ACL {
	slices.SortStableFunc(a, Compare)
	return a
}
