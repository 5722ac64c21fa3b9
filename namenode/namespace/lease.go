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
func (t *Tree) attachTo(id LeaseID, inode InodeID, e *Entry) {
	t.unattach(inode, e)
	t.attached.ReplaceOrInsert(attachment{id, inode})
	t.attachments.ReplaceOrInsert(attachment{id, inode})
	t.setFiles(t.lease(id), 1)
	t.touch(e.TxID, Change{Kind: ChangeLease, Inode: InodeID(id)})
}

// unattach detaches a file if it is attached.
func (t *Tree) unattach(inode InodeID, e *Entry) {
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

func (t *Tree) grantLease(op *OpGrant, e *Entry) (Result, error) {
	switch {
	case op.ID == 0 || op.ID > MaxLeaseID:
		return Result{}, misfitf("%d is no id of a lease", uint64(op.ID))
	case op.TTL <= 0 || op.TTL > MaxLeaseTTL:
		return Result{}, misfitf("a lease cannot have a time to live of %d ms", op.TTL)
	case t.lease(op.ID) != nil:
		return Result{}, misfitf("there is a lease %x already", uint64(op.ID))
	case t.leases.Len() >= MaxLeases:
		return Result{}, misfitf("there are %d leases already", MaxLeases)
	}
	l := &Lease{ID: op.ID, TTL: op.TTL, Since: e.Time, Owner: Owner{
		User: cloneString(op.Owner.User), Client: cloneString(op.Owner.Client), Host: cloneString(op.Owner.Host),
	}}
	t.leases.ReplaceOrInsert(l)
	t.touch(e.TxID, Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	return Result{Lease: op.ID, Granted: l}, nil
}

// endLease ends a lease and deletes the first of its files.
func (t *Tree) endLease(op *OpEndLease, e *Entry) (Result, error) {
	l, err := t.liveLease(op.ID)
	if err != nil {
		return Result{}, err
	}
	c := *l
	c.Ended = e.TxID
	t.leases.ReplaceOrInsert(&c)
	t.ended.ReplaceOrInsert(endedLease{c.Ended, c.ID})
	t.forgetAge(AgeKey{Lease: op.ID})
	t.touch(e.TxID, Change{Kind: ChangeLease, Inode: InodeID(op.ID)})
	r := Result{Lease: op.ID, LeaseEnded: true, LeaseOwner: c.Owner.User, Reason: op.Reason}
	r.Closed = t.deleteAttached(endFiles, c.ID, e, &r.Deleted)
	if l := t.lease(op.ID); l != nil {
		t.setFiles(l, 0) // forgotten if there were none
	}
	return r, nil
}

// reap deletes files of a lease that has ended.
func (t *Tree) reap(op *OpReap, e *Entry) (Result, error) {
	if l := t.lease(op.ID); l == nil || l.Ended == 0 {
		return Result{}, misfitf("there is no lease %x that has ended", uint64(op.ID))
	}
	var r Result
	r.Closed = t.deleteAttached(int(op.Limit), op.ID, e, &r.Deleted)
	return r, nil
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
func (t *Tree) deleteAttached(limit int, id LeaseID, e *Entry, deleted *int) (closed []ClosedFile) {
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

func (t *Tree) attachFile(op *OpAttach, e *Entry) (Result, error) {
	n, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if !t.reachable(n, nil) {
		return Result{}, misfitf("file %d is deleted", n.id)
	}
	if _, err := t.liveLease(op.ID); err != nil {
		return Result{}, err
	}
	if err := t.attachable(n.id); err != nil {
		return Result{}, err
	}
	t.attachTo(op.ID, n.id, e)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
	r := fileResult(n)
	r.Lease = op.ID
	return r, nil
}

// attachable returns an error if a file is about to be deleted with its lease.
func (t *Tree) attachable(id InodeID) error {
	if old := t.attachedTo(id); old != 0 && t.lease(old).Ended != 0 {
		return misfitf("lease %x of file %d has ended", uint64(old), id)
	}
	return nil
}

func (t *Tree) detachFile(op *OpDetach, e *Entry) (Result, error) {
	n, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if t.attachedTo(n.id) == 0 {
		return Result{}, misfitf("file %d is attached to no lease", n.id)
	}
	if err := t.attachable(n.id); err != nil {
		return Result{}, err
	}
	t.unattach(n.id, e)
	t.touch(e.TxID, Change{Kind: ChangeAttr, Inode: n.id})
	return fileResult(n), nil
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

// PlanGrant checks a new lease. ttl is in milliseconds. Errors: Exists (the
// id), InvalidArgument (id or ttl cannot be), Retry (too many leases).
func (t *Tree) PlanGrant(c *Call, id LeaseID, ttl int64, owner Owner) (*OpGrant, error) {
	const op = "lease grant"
	t.look(c, Change{Kind: ChangeLease, Inode: InodeID(id)})
	switch {
	case id == 0 || id > MaxLeaseID:
		return nil, fserror.New(fserror.InvalidArgument, op, "", "a lease's id is from 1 to %x, not %x", uint64(MaxLeaseID), uint64(id))
	case ttl <= 0 || ttl > MaxLeaseTTL:
		return nil, fserror.New(fserror.InvalidArgument, op, "", "a time to live is from 1 ms to 365 days, not %d ms", ttl)
	case t.lease(id) != nil:
		return nil, fserror.New(fserror.Exists, op, "", "there is a lease %x already; choose another id, or none", uint64(id))
	case t.leases.Len() >= MaxLeases:
		return nil, fserror.With(tooMany("there are %d granted leases, the most there can be; revoke some", MaxLeases), op, "")
	}
	return &OpGrant{ID: id, TTL: ttl, Owner: owner}, nil
}

// PlanEndLease checks the end of a lease, why being LeaseRevoked or
// LeaseExpired. Errors: NotFound, Permission.
func (t *Tree) PlanEndLease(c *Call, id LeaseID, why string) (*OpEndLease, error) {
	if err := t.CheckLease(c, "lease revoke", id); err != nil {
		return nil, err
	}
	return &OpEndLease{ID: id, Reason: why}, nil
}

// PlanAttach checks the attaching of a file to a lease, away from another one
// if need be. It takes permission to delete the file, which the end of the
// lease will do; and since it does so wherever the file is by then, and whoever
// may delete it there, the file must be the caller's, if that is no superuser. A
// nil record without an error: it is attached to it already.
// Errors: NotFound, IsDirectory, Permission, InvalidArgument (a link).
func (t *Tree) PlanAttach(c *Call, id LeaseID, path string) (*OpAttach, error) {
	const op = "lease attach"
	if err := t.CheckLease(c, op, id); err != nil {
		return nil, fserror.With(err, op, path)
	}
	n, err := t.leaseFile(c, op, path)
	if err != nil || t.attachedTo(n.id) == id {
		return nil, err
	}
	if !t.mayAttach(c, n) {
		return nil, fserror.New(fserror.Permission, op, path, "user %s does not own it (owner %s); only its owner, or a superuser, may have it deleted with a lease", c.User, t.users.name(n.user))
	}
	return &OpAttach{ID: id, Inode: n.id}, nil
}

// mayAttach reports whether a caller may have a file deleted with a lease.
func (t *Tree) mayAttach(c *Call, n *inode) bool { return c.isSuper() || t.isOwner(c, n) }

// leaseFile returns a file that the caller may delete and whose lease, if it
// has one, has not ended.
func (t *Tree) leaseFile(c *Call, op, path string) (*inode, error) {
	at, err := t.find(c, op, path, false)
	if err != nil {
		return nil, err
	}
	n := at.node
	switch n.typ {
	case TypeDir:
		return nil, isDirectory(op, path)
	case TypeSymlink:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "it is a symbolic link; name the file itself")
	}
	if err := t.requireRemove(c, at.dir, n, op, path); err != nil {
		return nil, err
	}
	if t.attachable(n.id) != nil {
		return nil, fserror.New(fserror.NotFound, op, path, "lease %x of the file has ended, it is being deleted", uint64(t.attachedTo(n.id)))
	}
	return n, nil
}

// PlanDetach checks the detaching of a file from its lease. A nil record
// without an error: it is attached to none. Errors as for PlanAttach.
func (t *Tree) PlanDetach(c *Call, path string) (*OpDetach, error) {
	const op = "lease detach"
	n, err := t.leaseFile(c, op, path)
	if err != nil || t.attachedTo(n.id) == 0 {
		return nil, err
	}
	return &OpDetach{Inode: n.id}, nil
}
