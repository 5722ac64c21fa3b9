package namespace

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// granted are the granted leases.
type granted struct{ leases tables.Leases }

// liveLease returns a lease that has not ended.
func (t *granted) liveLease(id LeaseID) (*Lease, error) {
	l := t.leases.Get(id)
	if l == nil || l.Ended != 0 {
		return nil, misfitf("there is no lease %x", uint64(id))
	}
	return l, nil
}

// attachable returns an error if a file is about to be deleted with its lease.
func (t *granted) attachable(id InodeID) error {
	if old := t.leases.Of(id); old != 0 && t.leases.Get(old).Ended != 0 {
		return misfitf("lease %x of file %d has ended", uint64(old), id)
	}
	return nil
}

// Leases calls fn for each granted lease that has not ended, in the order of
// ids, until it returns false.
func (t *granted) Leases(fn func(Lease) bool) { t.leases.Each(fn) }

// LeaseFiles returns up to limit files attached to a lease whose numbers are
// greater than after, in the order of numbers.
func (t *granted) LeaseFiles(id LeaseID, after InodeID, limit int) (files []InodeID) {
	return t.leases.Files(id, after, limit)
}

// EndedLeases is how many ended leases still have files to be deleted.
func (t *granted) EndedLeases() int { return t.leases.Ended() }

// EndedLease returns, of those leases, the first one that ended after a record.
func (t *granted) EndedLease(after uint64) (l Lease, ok bool) { return t.leases.EndedAfter(after) }
