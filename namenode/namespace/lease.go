package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// endFiles is how many attached files the record that ends a lease deletes
// by itself. The rest follows by OpReap.
const endFiles = 64

// Why a granted lease ended.
const (
	LeaseExpired = "expired"
	LeaseRevoked = "revoked"
)

// attachTo attaches a file to a living lease, instead of another one if it is.
func (t applier) attachTo(id LeaseID, inode InodeID) {
	t.unattach(inode)
	t.leases.Attach(id, inode)
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(id)})
}

// unattach detaches a file if it is attached.
func (t applier) unattach(inode InodeID) {
	if id := t.leases.Detach(inode); id != 0 {
		t.touch(Change{Kind: ChangeLease, Inode: InodeID(id)})
	}
}

// deleteAttached deletes up to limit files of a lease. One whose directory was
// deleted is merely detached: its memory is freed with that.
func (t applier) deleteAttached(limit int, id LeaseID, deleted *int) (closed []ClosedFile) {
	for _, inode := range t.leases.Files(id, 0, limit) {
		*deleted++
		n := t.get(inode)
		if n == nil || !t.reachable(n, nil) {
			t.unattach(inode)
			continue
		}
		closed = append(closed, t.unlink(n)...) // free detaches it
	}
	return closed
}

// Lease returns a granted lease, ended ones that still have files included.
func (t *Tree) Lease(c *Call, id LeaseID) (Lease, bool) {
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(id)})
	l := t.leases.Get(id)
	if l == nil {
		return Lease{}, false
	}
	return *l, true
}

func noLease(op string, id LeaseID) error {
	return fserror.New(fserror.NotFound, op, "", "there is no lease %x: it has ended, or never was", uint64(id)).Because(fserror.ReasonNoLease)
}

// CheckLease returns nil if a lease lives and the caller may use it. Errors:
// NotFound, Permission (another user's).
func (t *Tree) CheckLease(c *Call, id LeaseID) error { return view{t, c, ""}.checkLease(id) }

func (v view) checkLease(id LeaseID) error {
	v.look(Change{Kind: ChangeLease, Inode: InodeID(id)})
	l := v.leases.Get(id)
	switch {
	case l == nil || l.Ended != 0:
		return noLease(v.op, id)
	case !v.c.IsSuper() && l.Owner.User != v.c.User:
		return v.errorf(fserror.Permission, "", "lease %x belongs to user %s; only that user and the superuser may use it", uint64(id), l.Owner.User)
	}
	return nil
}
