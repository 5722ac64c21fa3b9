package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/fserror"
)

// LeaseID names a lease that somebody was granted: from 1 to MaxLeaseID. It
// may be granted again once the lease has ended and its files are gone.
type LeaseID uint64

// Limits of granted leases.
const (
	// MaxLeaseID is the largest id: as in etcd, one that is positive in 64 bits.
	// Larger numbers are those of the leases that sessions have by themselves.
	MaxLeaseID = 1<<63 - 1
	// MaxLeases is how many granted leases there may be, those that have ended
	// and still have files included.
	MaxLeases = 1 << 21
	// MaxLeaseTTL is the longest time to live, in milliseconds: a year.
	MaxLeaseTTL = 365 * 24 * 3600 * 1000
	// endFiles is how many attached files the record that ends a lease deletes
	// by itself. The rest follows by OpReap.
	endFiles = 64
)

// Why a granted lease ended.
const (
	LeaseExpired = "expired"
	LeaseRevoked = "revoked"
)

// Lease is a granted lease: it lives as long as its owner keeps it alive, and
// files that are attached to it are deleted when it ends. When that is, only
// the active namenode knows (package leasemanager).
type Lease struct {
	ID    LeaseID
	TTL   int64 // milliseconds
	Since int64 // Unix milliseconds by the journal
	// Owner is who it was granted to; any process of that user may use it.
	Owner Owner
	// Ended is the record that ended it, 0 while it lives. An ended lease is
	// there until its files are deleted.
	Ended uint64
	Files int // attached
}

// Owner is who a lease was granted to.
type Owner struct {
	User   string
	Client string // client name
	Host   string
}

// attachment is a file that is attached to a lease.
type attachment struct {
	lease LeaseID
	inode InodeID
}

// endedLease orders ended leases by when they ended.
type endedLease struct {
	ended uint64
	id    LeaseID
}

func lessLease(a, b *Lease) bool { return a.ID < b.ID }

func lessAttachment(a, b attachment) bool {
	return cmp.Or(cmp.Compare(a.lease, b.lease), cmp.Compare(a.inode, b.inode)) < 0
}

func lessAttached(a, b attachment) bool { return a.inode < b.inode }

func lessEnded(a, b endedLease) bool { return a.ended < b.ended }

// lease returns a granted lease, nil if there is none of this id.
func (t *Tree) lease(id LeaseID) *Lease {
	l, _ := t.leases.Get(&Lease{ID: id})
	return l
}

// liveLease returns a lease that has not ended.
func (t *Tree) liveLease(id LeaseID) (*Lease, error) {
	l := t.lease(id)
	if l == nil || l.Ended != 0 {
		return nil, misfitf("there is no lease %x", uint64(id))
	}
	return l, nil
}

// attachedTo returns the lease that a file is attached to, 0 if none.
func (t *Tree) attachedTo(id InodeID) LeaseID {
	if t.attached.Len() == 0 {
		return 0
	}
	a, _ := t.attached.Get(attachment{inode: id})
	return a.lease
}

// setFiles replaces a lease by one with d files more, or forgets it if it has
// ended and has none left.
func (t *Tree) setFiles(l *Lease, d int) {
	c := *l
	c.Files += d
	if c.Ended != 0 && c.Files == 0 {
		t.leases.Delete(l)
		t.ended.Delete(endedLease{l.Ended, l.ID})
		return
	}
	t.leases.ReplaceOrInsert(&c)
}

// attachTo attaches a file to a living lease, instead of another one if it is.
func (t *Tree) attachTo(id LeaseID, inode InodeID, e stamp) {
	t.unattach(inode, e)
	t.attached.ReplaceOrInsert(attachment{id, inode})
	t.attachments.ReplaceOrInsert(attachment{id, inode})
	t.setFiles(t.lease(id), 1)
	t.touch(e.TxID, Change{Kind: ChangeLease, Inode: InodeID(id)})
}

// unattach detaches a file if it is attached.
func (t *Tree) unattach(inode InodeID, e stamp) {
	if t.attached.Len() == 0 {
		return
	}
	a, had := t.attached.Delete(attachment{inode: inode})
	if !had {
		return
	}
	t.attachments.Delete(a)
	t.setFiles(t.lease(a.lease), -1)
	t.touch(e.TxID, Change{Kind: ChangeLease, Inode: InodeID(a.lease)})
}

// toDelete returns up to limit files of a lease, those made first before others.
func (t *Tree) toDelete(limit int, id LeaseID) (files []InodeID) {
	t.attachments.AscendGreaterOrEqual(attachment{lease: id}, func(a attachment) bool {
		if a.lease != id || len(files) == limit {
			return false
		}
		files = append(files, a.inode)
		return true
	})
	return files
}

// deleteAttached deletes up to limit files of a lease. One whose directory was
// deleted is merely detached: its memory is freed with that.
func (t *Tree) deleteAttached(limit int, id LeaseID, e stamp, deleted *int) (closed []ClosedFile) {
	for _, inode := range t.toDelete(limit, id) {
		*deleted++
		n := t.get(inode)
		if n == nil || !t.reachable(n, nil) {
			t.unattach(inode, e)
			continue
		}
		closed = append(closed, t.unlink(n, e)...) // free detaches it
	}
	return closed
}

// attachable returns an error if a file is about to be deleted with its lease.
func (t *Tree) attachable(id InodeID) error {
	if old := t.attachedTo(id); old != 0 && t.lease(old).Ended != 0 {
		return misfitf("lease %x of file %d has ended", uint64(old), id)
	}
	return nil
}

// Lease returns a granted lease, ended ones that still have files included.
func (t *Tree) Lease(c *Call, id LeaseID) (Lease, bool) {
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(id)})
	l := t.lease(id)
	if l == nil {
		return Lease{}, false
	}
	return *l, true
}

// Leases calls fn for each granted lease that has not ended, in the order of
// ids, until it returns false.
func (t *Tree) Leases(fn func(Lease) bool) {
	t.leases.Ascend(func(l *Lease) bool { return l.Ended != 0 || fn(*l) })
}

// LeaseFiles returns up to limit files attached to a lease whose numbers are
// greater than after, in the order of numbers.
func (t *Tree) LeaseFiles(id LeaseID, after InodeID, limit int) (files []InodeID) {
	t.attachments.AscendGreaterOrEqual(attachment{id, after + 1}, func(a attachment) bool {
		if a.lease != id || len(files) == limit {
			return false
		}
		files = append(files, a.inode)
		return true
	})
	return files
}

// EndedLeases is how many ended leases still have files to be deleted.
func (t *Tree) EndedLeases() int { return t.ended.Len() }

// EndedLease returns, of those leases, the first one that ended after a record.
func (t *Tree) EndedLease(after uint64) (l Lease, ok bool) {
	t.ended.AscendGreaterOrEqual(endedLease{ended: after + 1}, func(e endedLease) bool {
		l, ok = *t.lease(e.id), true
		return false
	})
	return l, ok
}

func noLease(op string, id LeaseID) error {
	err := fserror.New(fserror.NotFound, op, "", "there is no lease %x: it has ended, or never was; leasefs lease ls lists those that live", uint64(id))
	return err
}

// CheckLease returns nil if a lease lives and the caller may use it. Errors:
// NotFound, Permission (another user's).
func (t *Tree) CheckLease(c *Call, op string, id LeaseID) error {
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(id)})
	l := t.lease(id)
	switch {
	case l == nil || l.Ended != 0:
		return noLease(op, id)
	case !c.isSuper() && l.Owner.User != c.User:
		return fserror.New(fserror.Permission, op, "", "lease %x belongs to user %s; only that user and the superuser may use it", uint64(id), l.Owner.User)
	}
	return nil
}
