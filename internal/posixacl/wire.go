package posixacl

import pb "github.com/leasefs/leasefs/proto/leasefs/v1"

// Wire is the list as it travels.
func (a ACL) Wire() []*pb.AclEntry {
	out := make([]*pb.AclEntry, len(a))
	for i, e := range a {
		out[i] = &pb.AclEntry{Default: e.Default, Tag: pb.AclTag(e.Tag), Name: e.Name, Perm: uint32(e.Perm)}
	}
	return out
}

// FromWire is the reverse; nothing is checked.
func FromWire(entries []*pb.AclEntry) ACL {
	out := make(ACL, len(entries))
	for i, e := range entries {
		out[i] = Entry{Default: e.GetDefault(), Tag: Tag(small(e.GetTag())), Name: e.GetName(), Perm: small(e.GetPerm())}
	}
	return out
}

// small is a number of the wire; 255, which means nothing, for one that is too large.
func small[T ~int32 | ~uint32](n T) uint8 {
	if n < 0 || n > 255 {
		return 255
	}
	return uint8(n)
}
