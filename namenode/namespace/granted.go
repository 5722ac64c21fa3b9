package namespace

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// granted are the granted leases.
type granted struct{ tables.Granted }

// liveLease returns a lease that has not ended.
func (t *granted) liveLease(id LeaseID) (*Lease, error) {
	l := t.Grants.Get(id)
	if l == nil {
		return nil, misfitf("there is no lease %x", uint64(id))
	}
	return l, nil
}

// attachable returns an error if a file is about to be deleted with its lease.
func (t *granted) attachable(id InodeID) error {
	if l := t.Grants.Of(id); l != nil && l.Ended != 0 {
		return misfitf("lease %x of inode %d has ended", uint64(l.ID), id)
	}
	return nil
}

// deadWith is the lease whose end deleted an inode; nil if that is no longer known, or
// the inode was deleted otherwise.
func (t *inodes) deadWith(n *inode) *Lease {
	for ; n != nil; n = t.get(n.Parent) {
		if l := t.Grants.Of(n.ID); l != nil && l.Dead {
			return l
		}
	}
	return nil
}
