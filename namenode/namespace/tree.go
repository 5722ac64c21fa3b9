package namespace

import (
	"cmp"
	"maps"
	"slices"

	"github.com/google/btree"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Limits of a namespace.
const (
	// MaxOwners is how many different users, and how many groups, may own
	// something. Names are never forgotten.
	MaxOwners = 65535
	// MaxLinks is how many symbolic links one path may lead through, as in Linux.
	MaxLinks = 40
	// MaxTarget is how many bytes the target of a symbolic link may have.
	MaxTarget = 4096
	// MaxConcat is how many sources one concat may have.
	MaxConcat = 1000
)

// Tree is a namespace: the state that a journal describes. Methods that read
// may run at the same time; those that change (Apply, Clone, SetDurable,
// Track) need the tree alone. A clone may be read without any lock.
type Tree struct {
	// frozen: this is a clone, which nothing changes any more.
	frozen bool
	// gen grows with each clone taken; see pageItem and session.
	gen uint64

	pages       *btree.BTreeG[pageItem]
	dentries    *btree.BTreeG[*inode] // all inodes that have a parent
	open        *btree.BTreeG[InodeID]
	detached    *btree.BTreeG[InodeID]        // tops of detached subtrees
	blocks      *btree.BTreeG[blockstore.Key] // of all files, detached ones too
	garbage     *btree.BTreeG[garbageItem]    // by (time, key)
	garbageKeys *btree.BTreeG[garbageItem]    // the same by key
	sessions    *btree.BTreeG[sessionItem]
	idle        *btree.BTreeG[idleItem]   // the same by age
	leases      *btree.BTreeG[*Lease]     // granted ones; replaced, never changed
	ended       *btree.BTreeG[endedLease] // of them, those that have ended and still have files
	attachments *btree.BTreeG[attachment] // by (lease, file)
	attached    *btree.BTreeG[attachment] // the same by file
	ages        *btree.BTreeG[Age]
	caching     *btree.BTreeG[OpCaching] // sessions that may have read-cache leases
	numbers     *btree.BTreeG[numbers]   // inode numbers that are set aside for them
	xattrs      *btree.BTreeG[xattrItem]
	users       interner
	groups      interner

	txid       uint64
	time       int64 // Unix milliseconds, of the last record
	reigned    int64 // see Reigned
	term       uint64
	namespace  [16]byte
	superUser  string
	superGroup string
	safeMode   bool
	images     []OpImage // the last two published, older first
	reigns     []Reign   // those before this term's, the oldest first; replaced, never changed
	nonce      [16]byte  // of this term's reign
	topSeq     uint64    // of its committed blocks
	nextInode  InodeID
	counts     Counts // those that no B-tree counts

	// What follows is no state: it is neither in the image nor compared.

	uses    ownerUses             // by user number; nil in a clone
	holders map[SessionID]*Holder // to share what is equal
	track   *tracker              // nil: off
	events  bool                  // whether records make events
	// minAsOf is what every look at a clone counts as having seen, in txids.
	minAsOf uint64
}

// Counts are sizes of a tree.
type Counts struct {
	Inodes   int // files, directories (the root too) and links, detached ones included
	Files    int
	Dirs     int
	Symlinks int
	Blocks   int // of files, detached ones included; no garbage
	Open     int // files open for write
	// StoredBytes is what the blocks of files take in the block store.
	StoredBytes int64
	// TailBytes is the memory that tails take, spare capacity included.
	TailBytes int64
	// ClosedTailBytes is the part of TailBytes that files have which are not open.
	ClosedTailBytes int64
	Garbage         int // blocks to be deleted from the store
	// GarbageBytes is what they take there.
	GarbageBytes int64
	Detached     int // tops of deleted subtrees whose memory is still to be freed
	Sessions     int // sessions with call results
	Leases       int // granted, those included that have ended and still have files
	Attached     int // files attached to granted leases
	// XattrBytes is the memory that extended attributes take.
	XattrBytes int64
}

// New returns an empty namespace: a root directory that belongs to nobody. The
// first record must be an OpActivate.
func New() *Tree {
	t := newTree()
	t.nextInode = RootID + 1
	t.put(&inode{id: RootID, typ: TypeDir, mode: 0o755})
	t.counts.Dirs = 1
	return t
}

// newTree has not even a root.
func newTree() *Tree {
	t := &Tree{
		gen:         1,
		pages:       newBTree(lessPage),
		dentries:    newBTree(lessDentry),
		open:        newBTree(lessInodeID),
		detached:    newBTree(lessInodeID),
		blocks:      newBTree(blockstore.Key.Less),
		garbage:     newBTree(lessGarbage),
		garbageKeys: newBTree(lessGarbageKey),
		sessions:    newBTree(lessSession),
		idle:        newBTree(lessIdle),
		leases:      newBTree(lessLease),
		ended:       newBTree(lessEnded),
		attachments: newBTree(lessAttachment),
		attached:    newBTree(lessAttached),
		ages:        newBTree(lessAge),
		caching:     newBTree(lessCaching),
		numbers:     newBTree(lessNumbers),
		xattrs:      newBTree(lessXattr),
	}
	t.users.add("", t.gen)
	t.groups.add("", t.gen)
	return t
}

// Clone returns a snapshot of the tree as it is now, in constant time. It never
// changes and may be read by anyone without a lock; Apply on it fails. What the
// tree changes later it copies first, where the clone shares it.
func (t *Tree) Clone() *Tree {
	if t.frozen {
		return t
	}
	t.gen++
	c := *t
	c.frozen = true
	c.pages = t.pages.Clone()
	c.dentries = t.dentries.Clone()
	c.open = t.open.Clone()
	c.detached = t.detached.Clone()
	c.blocks = t.blocks.Clone()
	c.garbage = t.garbage.Clone()
	c.garbageKeys = t.garbageKeys.Clone()
	c.sessions = t.sessions.Clone()
	c.idle = t.idle.Clone()
	c.leases = t.leases.Clone()
	c.ended = t.ended.Clone()
	c.attachments = t.attachments.Clone()
	c.attached = t.attached.Clone()
	c.ages = t.ages.Clone()
	c.caching = t.caching.Clone()
	c.numbers = t.numbers.Clone()
	c.xattrs = t.xattrs.Clone()
	c.events = false
	c.holders, c.uses = nil, nil
	c.track = nil
	if t.track != nil {
		c.minAsOf = t.track.newest
	}
	return &c
}

// Last returns number and time (Unix milliseconds) of the last record applied.
func (t *Tree) Last() (txid uint64, timeMS int64) { return t.txid, t.time }

// Reigned is how many milliseconds all reigns so far have lasted, each from its
// activation to its last record. By it results are forgotten and garbage ages:
// between reigns, where the journal's time follows some machine's time of day,
// it stands still.
func (t *Tree) Reigned() int64 { return t.reigned }

// Term is that of the last activation, 0 before the first.
func (t *Tree) Term() uint64 { return t.term }

// NamespaceID is what the first activation set.
func (t *Tree) NamespaceID() [16]byte { return t.namespace }

// Superuser returns the superuser and the supergroup of the last activation.
func (t *Tree) Superuser() (user, group string) { return t.superUser, t.superGroup }

// SafeMode reports whether safe mode was entered by hand.
func (t *Tree) SafeMode() bool { return t.safeMode }

// InSafeMode is SafeMode for a call, which has then looked at it.
func (t *Tree) InSafeMode(c *Call) bool {
	t.look(c, safeModeChange)
	return t.safeMode
}

// Images returns the last two images published, the older first.
func (t *Tree) Images() []OpImage { return slices.Clone(t.images) }

// Counts returns the sizes of the tree, in constant time.
func (t *Tree) Counts() Counts {
	c := t.counts
	c.Inodes = c.Files + c.Dirs + c.Symlinks
	c.Blocks = t.blocks.Len()
	c.Open = t.open.Len()
	c.Garbage = t.garbage.Len()
	c.Detached = t.detached.Len()
	c.Sessions = t.sessions.Len()
	c.Leases = t.leases.Len()
	c.Attached = t.attached.Len()
	return c
}

// CountReachable is Counts of what has a path: of Inodes, Files, Dirs and Symlinks what
// was deleted and is still to be freed does not count. It takes the time of a walk of that.
// As Walk it is meant for clones.
func (t *Tree) CountReachable() Counts {
	c := t.Counts()
	var dirs []InodeID
	gone := func(n *inode) bool {
		c.Inodes--
		switch n.typ {
		case TypeFile:
			c.Files--
		case TypeSymlink:
			c.Symlinks--
		case TypeDir:
			c.Dirs--
			dirs = append(dirs, n.id)
		}
		return true
	}
	t.detached.Ascend(func(id InodeID) bool { return gone(t.get(id)) })
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		t.children(dir, "", gone)
	}
	return c
}

// countType keeps the counters of inodes by type.
func (t *Tree) countType(typ Type, d int) {
	switch typ {
	case TypeFile:
		t.counts.Files += d
	case TypeDir:
		t.counts.Dirs += d
	case TypeSymlink:
		t.counts.Symlinks += d
	}
}

// interner numbers the names of users or groups, in the order in which records
// bring them; number 0 is the empty name.
type interner struct {
	names []string // append-only: clones share a prefix
	index map[string]uint16
	gen   uint64 // of the map, as of a page
}

// fits reports whether name has a number or can get one.
func (in *interner) fits(name string) bool {
	if _, ok := in.index[name]; ok {
		return true
	}
	return len(in.names) <= MaxOwners
}

// add returns the number of a name that fits.
func (in *interner) add(name string, gen uint64) uint16 {
	if i, ok := in.index[name]; ok {
		return i
	}
	if in.gen != gen {
		in.index, in.gen = maps.Clone(in.index), gen
	}
	if in.index == nil {
		in.index = make(map[string]uint16)
	}
	i := uint16(len(in.names)) //nolint:gosec // at most MaxOwners, see fits
	in.names = append(in.names, cloneString(name))
	in.index[in.names[i]] = i
	return i
}

// name returns the name of a number.
func (in *interner) name(i uint16) string { return in.names[i] }

// cloneString copies a string that may be a small part of a large one.
func cloneString(s string) string { return string([]byte(s)) }

// KnowsUser reports whether a user owns something, or has owned something.
func (t *Tree) KnowsUser(user string) bool {
	_, ok := t.users.index[user]
	return ok
}

// Users is how many users own something or have owned something, at most MaxOwners.
func (t *Tree) Users() int { return max(len(t.users.names)-1, 0) }

// checkOwners says whether the names of a user and a group can be recorded for c;
// nil: for a record.
func (t *Tree) checkOwners(c *Call, op, path, user, group string) error {
	switch {
	case c != nil && c.NoNewUser && !t.KnowsUser(user):
		return fserror.New(fserror.NoSpace, op, path, "the namespace knows %d users of %d, and the room that is left is for addresses that have brought few new ones (%s would be one)", t.Users(), MaxOwners, user)
	case !t.users.fits(user):
		return fserror.New(fserror.NoSpace, op, path, "the namespace knows %d users already and can take no new one (%s)", MaxOwners, user)
	case !t.groups.fits(group):
		return fserror.New(fserror.NoSpace, op, path, "the namespace knows %d groups already and can take no new one (%s)", MaxOwners, group)
	}
	return nil
}

// shareHolder returns a holder equal to h that open files of one session share.
func (t *Tree) shareHolder(h Holder) *Holder {
	if s := t.holders[h.Session]; s != nil && *s == h {
		return s
	}
	if t.holders == nil || len(t.holders) >= 1<<16 {
		t.holders = make(map[SessionID]*Holder)
	}
	h.User, h.Client, h.Host = cloneString(h.User), cloneString(h.Client), cloneString(h.Host)
	t.holders[h.Session] = &h
	return &h
}

// compareKeys orders keys as blockstore.Key.Less does.
func compareKeys(a, b blockstore.Key) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Seq, b.Seq))
}
