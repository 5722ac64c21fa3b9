package posixacl

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// The names of the extended attributes in which Linux shows the ACLs of a file.
const (
	XattrAccess  = "system.posix_acl_access"
	XattrDefault = "system.posix_acl_default"
)

// Linux's form: a version, then entries of tag, permissions and number, little-endian.
const (
	linuxVersion = 2
	linuxHead    = 4
	linuxEntry   = 8
	noID         = math.MaxUint32
)

var linuxTags = [...]uint16{Owner: 0x01, User: 0x02, OwningGroup: 0x04, Group: 0x08, Mask: 0x10, Other: 0x20}

// EncodeLinux writes an access ACL, or the default part as one (Part), as Linux has it. uid and gid are
// the numbers of names; an entry for which they return false is left out.
func (a ACL) EncodeLinux(uid, gid func(name string) (uint32, bool)) []byte {
	type item struct {
		Entry
		id uint32
	}
	items := make([]item, 0, len(a))
	for _, e := range a {
		i, ok := item{e, noID}, true
		switch e.Tag {
		case User:
			i.id, ok = uid(e.Name)
		case Group:
			i.id, ok = gid(e.Name)
		}
		if ok {
			items = append(items, i)
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.id, b.id)) })
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, linuxHead+linuxEntry*len(items)), linuxVersion)
	for _, i := range items {
		b = binary.LittleEndian.AppendUint16(b, linuxTags[i.Tag])
		b = binary.LittleEndian.AppendUint16(b, uint16(i.Perm))
		b = binary.LittleEndian.AppendUint32(b, i.id)
	}
	return b
}

// DecodeLinux reads what Linux wrote as an access ACL, in order but not checked. user and group are the names of
// numbers; "" refuses one. Nothing at all, and a head alone, are an empty list. Errors are
// of kind InvalidArgument.
func DecodeLinux(b []byte, user, group func(id uint32) string) (ACL, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) < linuxHead || binary.LittleEndian.Uint32(b) != linuxVersion || (len(b)-linuxHead)%linuxEntry != 0 {
		return nil, invalid("its %d bytes are not in Linux's form, version %d", len(b), linuxVersion)
	}
	b = b[linuxHead:]
	if n := len(b) / linuxEntry; n > MaxEntries {
		return nil, invalid("it would have %d entries; the limit is %d", n, MaxEntries)
	}
	var out ACL
	for ; len(b) > 0; b = b[linuxEntry:] {
		tag := slices.Index(linuxTags[:], binary.LittleEndian.Uint16(b))
		perm, id := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])
		if tag < int(Owner) || perm > 7 {
			return nil, invalid("an entry has Linux's tag %#x and permissions %#o", binary.LittleEndian.Uint16(b), perm)
		}
		e := Entry{Tag: Tag(tag), Perm: uint8(perm)} //nolint:gosec // both are small
		if e.Tag.named() {
			name := user
			if e.Tag == Group {
				name = group
			}
			if e.Name = name(id); e.Name == "" {
				return nil, invalid("the number %d, which it has as a user or group, stands for nobody here", id)
			}
		}
		out = append(out, e)
	}
	return sort(out), nil
}
