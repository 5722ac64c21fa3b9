package tables

import (
	"cmp"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

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
)

// Lease is a granted lease: it lives as long as its owner keeps it alive, and
// files that are attached to it are deleted when it ends. When that is, only
// the active namenode knows (package leasemanager).
type Lease struct {
	ID    LeaseID
	TTL   int64 // milliseconds
	Since int64 // Unix milliseconds by the journal
	// Owner is who it was granted to; any process of that user may use it.
	Owner LeaseOwner
	// Ended is the record that ended it, 0 while it lives. An ended lease is
	// there until its files are deleted.
	Ended uint64
	Files int // attached
}

// LeaseOwner is who a lease was granted to.
type LeaseOwner struct {
	User   string
	Client string // client name
	Host   string
}

// Leases are the granted leases and the files attached to them.
type Leases struct {
	byID   Set[*Lease] // replaced, never changed
	ended  Set[endedLease]
	files  Set[attachment] // by (lease, file)
	byFile Set[attachment]
}

// attachment is a file that is attached to a lease.
type attachment struct {
	lease LeaseID
	inode InodeID
}

// endedLease orders ended leases, which still have files, by when they ended.
type endedLease struct {
	ended uint64
	id    LeaseID
}

func lessAttachment(a, b attachment) bool {
	return cmp.Or(cmp.Compare(a.lease, b.lease), cmp.Compare(a.inode, b.inode)) < 0
}

// NewLeases returns an empty table.
func NewLeases() Leases {
	return Leases{
		byID:   NewSet(func(a, b *Lease) bool { return a.ID < b.ID }),
		ended:  NewSet(func(a, b endedLease) bool { return a.ended < b.ended }),
		files:  NewSet(lessAttachment),
		byFile: NewSet(func(a, b attachment) bool { return a.inode < b.inode }),
	}
}

// Clone returns a snapshot.
func (t *Leases) Clone() Leases {
	return Leases{byID: t.byID.Clone(), ended: t.ended.Clone(), files: t.files.Clone(), byFile: t.byFile.Clone()}
}

// Len is how many leases there are, those that have ended and still have files
// included.
func (t *Leases) Len() int { return t.byID.Len() }

// Attached is how many files are attached.
func (t *Leases) Attached() int { return t.files.Len() }

// Ended is how many ended leases still have files.
func (t *Leases) Ended() int { return t.ended.Len() }

// Get returns a lease, not to be changed; nil if there is none of this id.
func (t *Leases) Get(id LeaseID) *Lease {
	l, _ := t.byID.Get(&Lease{ID: id})
	return l
}

// Each calls fn for each lease that has not ended, in the order of ids, until it
// returns false.
func (t *Leases) Each(fn func(Lease) bool) {
	t.byID.Ascend(func(l *Lease) bool { return l.Ended != 0 || fn(*l) })
}

// EndedAfter returns, of the ended leases, the first one that ended after a record.
func (t *Leases) EndedAfter(txid uint64) (l Lease, ok bool) {
	t.ended.from(endedLease{ended: txid + 1}, func(e endedLease) bool {
		l, ok = *t.Get(e.id), true
		return false
	})
	return l, ok
}

// Of returns the lease that a file is attached to, 0 if none.
func (t *Leases) Of(file InodeID) LeaseID {
	if t.byFile.Len() == 0 {
		return 0
	}
	a, _ := t.byFile.Get(attachment{inode: file})
	return a.lease
}

// Files returns up to limit files attached to a lease whose numbers are greater
// than after, in the order of numbers.
func (t *Leases) Files(id LeaseID, after InodeID, limit int) (files []InodeID) {
	t.files.from(attachment{id, after + 1}, func(a attachment) bool {
		if a.lease != id || len(files) == limit {
			return false
		}
		files = append(files, a.inode)
		return true
	})
	return files
}

// Grant adds a lease.
func (t *Leases) Grant(l *Lease) { t.byID.ReplaceOrInsert(l) }

// End ends a lease. It is forgotten when it has no files any more.
func (t *Leases) End(id LeaseID, txid uint64) {
	l := *t.Get(id)
	l.Ended = txid
	t.ended.ReplaceOrInsert(endedLease{l.Ended, l.ID})
	t.count(&l, 0)
}

// count replaces a lease by one with d files more, or forgets it if it has ended
// and has none left.
func (t *Leases) count(l *Lease, d int) {
	c := *l
	c.Files += d
	if c.Ended != 0 && c.Files == 0 {
		t.byID.Delete(l)
		t.ended.Delete(endedLease{l.Ended, l.ID})
		return
	}
	t.byID.ReplaceOrInsert(&c)
}

// Attach attaches a file, which is attached to none, to a lease that lives.
func (t *Leases) Attach(id LeaseID, file InodeID) {
	t.attach(attachment{id, file})
	t.count(t.Get(id), 1)
}

func (t *Leases) attach(a attachment) {
	t.files.ReplaceOrInsert(a)
	t.byFile.ReplaceOrInsert(a)
}

// Detach detaches a file, and returns the lease that it was attached to; 0 if it was
// attached to none.
func (t *Leases) Detach(file InodeID) LeaseID {
	if t.byFile.Len() == 0 {
		return 0
	}
	a, had := t.byFile.Delete(attachment{inode: file})
	if had {
		t.files.Delete(a)
		t.count(t.Get(a.lease), -1)
	}
	return a.lease
}

// Code is the layout in an image of record txid. isFile says what can be attached.
func (t *Leases) Code(c *codec.Coder, txid uint64, isFile func(InodeID) bool) {
	t.byID.code(c, func(l **Lease) {
		if !c.Writes() {
			*l = new(Lease)
		}
		c.U64((*uint64)(&(*l).ID))
		c.I64(&(*l).TTL)
		c.I64(&(*l).Since)
		c.U64(&(*l).Ended)
		(*l).Owner.Code(c)
	}, func(_, l *Lease) bool {
		fits := l.ID > 0 && l.ID <= MaxLeaseID && l.TTL > 0 && l.TTL <= MaxLeaseTTL && l.Ended <= txid && !t.ended.Has(endedLease{ended: l.Ended})
		t.byID.ReplaceOrInsert(l)
		if l.Ended != 0 {
			t.ended.ReplaceOrInsert(endedLease{l.Ended, l.ID})
		}
		return fits
	})
	t.files.code(c, func(a *attachment) {
		c.U64((*uint64)(&a.lease))
		c.U64((*uint64)(&a.inode))
	}, func(_, a attachment) bool {
		l := t.Get(a.lease)
		if l == nil || !isFile(a.inode) || t.byFile.Has(a) {
			return false
		}
		t.attach(a)
		l.Files++ // nobody else has seen it yet
		return true
	})
	if c.Writes() || !c.OK() {
		return
	}
	t.ended.Ascend(func(e endedLease) bool {
		if t.Get(e.id).Files == 0 {
			c.Fail("a lease has ended and has no files")
		}
		return c.OK()
	})
}

// Code is the layout of an owner.
func (o *LeaseOwner) Code(c *codec.Coder) {
	c.Text(&o.User)
	c.Text(&o.Client)
	c.Text(&o.Host)
}

// Check finds where the parts disagree.
func (t *Leases) Check(problem Problem, isFile func(InodeID) bool) {
	files := make(map[LeaseID]int)
	t.files.Ascend(func(a attachment) bool {
		files[a.lease]++
		if b, ok := t.byFile.Get(a); !ok || a != b || !isFile(a.inode) || t.Get(a.lease) == nil {
			problem("inode %d is attached to lease %x, but one of them does not fit", a.inode, uint64(a.lease))
		}
		return true
	})
	if t.files.Len() != t.byFile.Len() {
		problem("%d files are attached by lease, %d by file", t.files.Len(), t.byFile.Len())
	}
	ended := 0
	t.byID.Ascend(func(l *Lease) bool {
		if l.Ended != 0 {
			ended++
			if l.Files == 0 || !t.ended.Has(endedLease{l.Ended, l.ID}) {
				problem("lease %x has ended and is not in the order of the end, or has no files", uint64(l.ID))
			}
		}
		if l.Files != files[l.ID] {
			problem("lease %x has %d files, but counts %d", uint64(l.ID), files[l.ID], l.Files)
		}
		return true
	})
	if ended != t.ended.Len() {
		problem("%d leases have ended, %d are in the order of the end", ended, t.ended.Len())
	}
}
