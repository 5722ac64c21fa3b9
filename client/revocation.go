package client

import "github.com/leasefs/leasefs/internal/readcache"

// Revocation is what must not be kept any more (Config.OnRevoke).
type Revocation struct {
	// All: everything; the rest is empty.
	All bool
	// Inodes are those whose attributes, content or entries may change.
	Inodes []uint64
	// Names may be made, removed, or come to stand for something else.
	Names []RevokedName
	// Lease: a granted lease may end, which deletes what is attached to it, and all below.
	Lease bool

	delegations []uint64 // of directories
}

// RevokedName is a name in a directory.
type RevokedName struct {
	Dir  uint64 // inode
	Name string
}

func revocationOf(keys []readcache.Key, all bool) Revocation {
	r := Revocation{All: all}
	if all {
		return r
	}
	for _, k := range keys {
		switch k.Kind {
		case keyName:
			r.Names = append(r.Names, RevokedName{Dir: k.Inode, Name: k.Name})
		case keyLease:
			r.Lease = true
		case keyDelegation:
			r.delegations = append(r.delegations, k.Inode)
		default:
			r.Inodes = append(r.Inodes, k.Inode)
		}
	}
	return r
}

// revoked tells whoever wants to know.
func (a *answers) revoked(r Revocation) {
	if a.onRevoke != nil {
		a.onRevoke(r)
	}
}
