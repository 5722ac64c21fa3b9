package tables

// Granted are the granted leases, as others than their tree may see them.
type Granted struct{ Grants Leases }

// Leases calls fn for each granted lease that has not ended, in the order of
// ids, until it returns false.
func (t *Granted) Leases(fn func(Lease) bool) { t.Grants.Each(fn) }

// LeaseFiles returns up to limit inodes attached to a lease that has not ended, whose
// numbers are greater than after, in the order of numbers.
func (t *Granted) LeaseFiles(id LeaseID, after InodeID, limit int) (files []InodeID) {
	if l := t.Grants.Get(id); l != nil {
		files = t.Grants.Files(l, after, limit)
	}
	return files
}

// LeaseOf is the lease that an inode is attached to, 0 if none.
func (t *Granted) LeaseOf(id InodeID) LeaseID {
	if l := t.Grants.Of(id); l != nil {
		return l.ID
	}
	return 0
}

// EndedLeases is how many ended leases still have files to be removed.
func (t *Granted) EndedLeases() int { return t.Grants.Ended() }

// EndedLease returns, of those leases, the first one that ended after a record.
func (t *Granted) EndedLease(after uint64) (l Lease, ok bool) { return t.Grants.EndedAfter(after) }
