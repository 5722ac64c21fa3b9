package namespace

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// granted are the granted leases.
type granted struct{ leases tables.Leases }

// liveLease returns a lease that has not ended.
func (t *granted) liveLease(id LeaseID) (*Lease, error) {
	l := t.leases.Get(id)
	if l == nil {
		return nil, misfitf("there is no lease %x", uint64(id))
	}
	return l, nil
}

// attachable returns an error if a file is about to be deleted with its lease.
func (t *granted) attachable(id InodeID) error {
	if l := t.leases.Of(id); l != nil && l.Ended != 0 {
		return misfitf("lease %x of inode %d has ended", uint64(l.ID), id)
	}
	return nil
}

// Leases calls fn for each granted lease that has not ended, in the order of
// ids, until it returns false.
func (t *granted) Leases(fn func(Lease) bool) { t.leases.Each(fn) }

// LeaseFiles returns up to limit inodes attached to a lease that has not ended, whose
// numbers are greater than after, in the order of numbers.
func (t *granted) LeaseFiles(id LeaseID, after InodeID, limit int) (files []InodeID) {
	if l := t.leases.Get(id); l != nil {
		files = t.leases.Files(l, after, limit)
	}
	return files
}

// deadWith is the lease whose end deleted an inode; nil if that is no longer known, or
// the inode was deleted otherwise.
func (t *inodes) deadWith(n *inode) *Lease {
	for ; n != nil; n = t.get(n.Parent) {
		if l := t.leases.Of(n.ID); l != nil && l.Dead {
			return l
		}
	}
	return nil
}

// leaseOf is the lease that an inode is attached to, 0 if none.
func (t *granted) leaseOf(id InodeID) LeaseID {
	if l := t.leases.Of(id); l != nil {
		return l.ID
	}
	return 0
}

// EndedLeases is how many ended leases still have files to be removed.
func (t *granted) EndedLeases() int { return t.leases.Ended() }

// EndedLease returns, of those leases, the first one that ended after a record.
func (t *granted) EndedLease(after uint64) (l Lease, ok bool) { return t.leases.EndedAfter(after) }
