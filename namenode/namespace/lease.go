package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Why a granted lease ended.
const (
	LeaseExpired = "expired"
	LeaseRevoked = "revoked"
)

// attachTo attaches an entry to a living lease, and detaches it from another one first.
func (t applier) attachTo(id LeaseID, n *inode) {
	t.unattach(n)
	t.Grants.Attach(id, n.ID, n.Parent, n.Type == TypeDir)
	t.touch(Change{Kind: ChangeLease, Inode: InodeID(id)})
}

// unattach detaches an inode if it is attached.
func (t applier) unattach(n *inode) {
	if id := t.Grants.Detach(n.ID, n.Parent); id != 0 {
		t.touch(Change{Kind: ChangeLease, Inode: InodeID(id)})
	}
}

// deleteAttached deletes attached files. One whose directory was deleted is merely
// detached: its memory is freed with that.
func (t applier) deleteAttached(files []InodeID) (closed []ClosedFile) {
	for _, id := range files {
		n := t.get(id)
		if !t.reachable(n, nil) {
			t.unattach(n)
			continue
		}
		closed = append(closed, t.unlink(n)...) // free detaches it
	}
	return closed
}

// Lease returns a granted lease that has not ended.
func (t *Tree) Lease(c *Call, id LeaseID) (Lease, bool) {
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(id)})
	l := t.Grants.Get(id)
	if l == nil {
		return Lease{}, false
	}
	return *l, true
}

// NamedLease returns the id of the lease of a user that has a name and has not ended; 0 if
// there is none.
func (t *Tree) NamedLease(c *Call, user, name string) LeaseID {
	t.look(c, nameOf(user, name))
	if l := t.Grants.Named(user, name); l != nil {
		return l.ID
	}
	return 0
}

// nameOf is the name of a lease of a user as something that can change.
func nameOf(user, name string) Change {
	return Change{Kind: calls.ChangeLeaseName, Name: name + "\x00" + user} // a name has no NUL
}

func noLease(op string, id LeaseID) error {
	return fserror.New(fserror.NotFound, op, "", "there is no lease %x: it has ended, or never was", uint64(id)).Because(fserror.ReasonNoLease)
}

// CheckLease returns nil if a lease lives and the caller may use it. Errors:
// NotFound, Permission (another user's).
func (t *Tree) CheckLease(c *Call, id LeaseID) error { return view{t, c, ""}.checkLease(id) }

// checkRoom returns an error if a living lease concerns too many directories to have
// something attached in these, too; 0 is a directory that is yet to be made.
func (v view) checkRoom(id LeaseID, path string, dirs ...InodeID) error {
	if v.Grants.HasRoom(id, dirs...) {
		return nil
	}
	return v.errorf(fserror.NoSpace, path, "lease %x would concern more than %d directories, the most that it can; use another lease, or fewer directories", uint64(id), tables.MaxLeaseDirs)
}

func (v view) checkLease(id LeaseID) error {
	v.look(Change{Kind: ChangeLease, Inode: InodeID(id)})
	l := v.Grants.Get(id)
	switch {
	case l == nil:
		return noLease(v.op, id)
	case !v.c.MayUse(l.Owner.User):
		return v.errorf(fserror.Permission, "", "lease %x belongs to user %s; only that user and the superuser may use it", uint64(id), l.Owner.User)
	}
	return nil
}
