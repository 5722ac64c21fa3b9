package tables

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
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
	// MaxLeaseDirs is how many directories the end of a lease may concern: those in which
	// something is attached to it, and those that are attached themselves.
	MaxLeaseDirs = 4096
	// MaxLeaseTTL is the longest time to live, in milliseconds: a year.
	MaxLeaseTTL = 365 * 24 * 3600 * 1000
)

// Lease is a granted lease: it lives as long as its owner keeps it alive, and
// what is attached to it is deleted when it ends. When that is, only the active
// namenode knows (package leasemanager).
type Lease struct {
	ID    LeaseID
	TTL   int64 // milliseconds
	Since int64 // Unix milliseconds by the journal
	// Owner is who it was granted to; any process of that user may use it.
	Owner LeaseOwner
	// Name is another name of it, that no other living lease of its user has; it may be
	// empty. Calls name leases by id: a name is looked up once, so nothing changes when it
	// is given to another lease later.
	Name string
	// Ended is the record that ended it, 0 while it lives. An ended lease is kept
	// until its files are removed; its id is free at once.
	Ended uint64
	// Dead: what is attached left the tree when the lease ended. If an older kind of
	// record ended the lease it is false, and the files stay there until removed.
	Dead bool
	// Told is the last inode, in the order of numbers, whose deletion was reported with
	// the record of the end; 0: none.
	Told  InodeID
	Files int // attached: files, directories and links
	Dirs  int // how many its end concerns, see Place

	key uint64 // identifies it in these tables, even when its id belongs to a later lease
}

// LeaseOwner is who a lease was granted to.
type LeaseOwner struct {
	User   string
	Client string // client name
	Host   string
}

// Clone returns a copy that shares no memory with what it was decoded from.
func (o LeaseOwner) Clone() LeaseOwner {
	return LeaseOwner{strings.Clone(o.User), strings.Clone(o.Client), strings.Clone(o.Host)}
}

// Place is a directory that the end of a lease concerns.
type Place struct {
	lease    uint64 // its key
	Dir      InodeID
	Entries  int64 // how many of its entries are attached
	Attached bool  // it is attached itself
}

// Leases are the granted leases and what is attached to them.
type Leases struct {
	byKey  Set[*Lease] // replaced, never changed
	living Set[leaseName]
	names  Set[namedLease] // of living leases
	ended  Set[endedLease]
	files  Set[attachment] // by (lease, inode)
	byFile Set[attachment]
	places Set[Place]
	dead   Set[deadIn]
	last   uint64 // the last key that was given out
}

// leaseName is the id of a lease that lives.
type leaseName struct {
	id  LeaseID
	key uint64
}

// namedLease is the name of a lease that lives.
type namedLease struct {
	user, name string
	key        uint64
}

// attachment is an inode that is attached to a lease.
type attachment struct {
	lease uint64 // its key
	inode InodeID
}

// endedLease orders ended leases, which still have files, by when they ended.
type endedLease struct{ ended, key uint64 }

// deadIn is how many entries of a directory are attached to leases that are dead.
type deadIn struct {
	dir InodeID
	n   int64
}

// NewLeases returns an empty table.
func NewLeases() Leases {
	return Leases{
		byKey:  NewSet(func(a, b *Lease) bool { return a.key < b.key }),
		living: NewSet(func(a, b leaseName) bool { return a.id < b.id }),
		names: NewSet(func(a, b namedLease) bool {
			return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(a.name, b.name)) < 0
		}),
		ended: NewSet(func(a, b endedLease) bool { return a.ended < b.ended }),
		files: NewSet(func(a, b attachment) bool {
			return cmp.Or(cmp.Compare(a.lease, b.lease), cmp.Compare(a.inode, b.inode)) < 0
		}),
		byFile: NewSet(func(a, b attachment) bool { return a.inode < b.inode }),
		places: NewSet(func(a, b Place) bool {
			return cmp.Or(cmp.Compare(a.lease, b.lease), cmp.Compare(a.Dir, b.Dir)) < 0
		}),
		dead: NewSet(func(a, b deadIn) bool { return a.dir < b.dir }),
	}
}

// Clone returns a snapshot.
func (t *Leases) Clone() Leases {
	return Leases{
		byKey: t.byKey.Clone(), living: t.living.Clone(), names: t.names.Clone(), ended: t.ended.Clone(), files: t.files.Clone(), byFile: t.byFile.Clone(),
		places: t.places.Clone(), dead: t.dead.Clone(), last: t.last,
	}
}

// Len is how many leases there are, those that have ended and still have files
// included.
func (t *Leases) Len() int { return t.byKey.Len() }

// Attached is how many inodes are attached.
func (t *Leases) Attached() int { return t.files.Len() }

// Ended is how many ended leases still have files.
func (t *Leases) Ended() int { return t.ended.Len() }

func (t *Leases) get(key uint64) *Lease {
	l, _ := t.byKey.Get(&Lease{key: key})
	return l
}

// Get returns a lease that lives, not to be changed; nil if there is none of this id.
func (t *Leases) Get(id LeaseID) *Lease {
	if name, ok := t.living.Get(leaseName{id: id}); ok {
		return t.get(name.key)
	}
	return nil
}

// Named returns the lease of a user that lives and has a name, not to be changed; nil if
// there is none.
func (t *Leases) Named(user, name string) *Lease {
	if n, ok := t.names.Get(namedLease{user: user, name: name}); ok {
		return t.get(n.key)
	}
	return nil
}

// Each calls fn for each lease that has not ended, in the order of ids, until it
// returns false.
func (t *Leases) Each(fn func(Lease) bool) {
	t.living.Ascend(func(name leaseName) bool { return fn(*t.get(name.key)) })
}

// EndedAfter returns, of the ended leases, the first one that ended after a record.
func (t *Leases) EndedAfter(txid uint64) (l Lease, ok bool) {
	t.ended.From(endedLease{ended: txid + 1}, func(e endedLease) bool {
		l, ok = *t.get(e.key), true
		return false
	})
	return l, ok
}

// FirstEnded returns the ended lease of an id, the one that ended first if there are
// several; nil if there is none.
func (t *Leases) FirstEnded(id LeaseID) (l *Lease) {
	t.ended.Ascend(func(e endedLease) bool {
		if x := t.get(e.key); x.ID == id {
			l = x
		}
		return l == nil
	})
	return l
}

// Of returns the lease that an inode is attached to, not to be changed; nil if none.
func (t *Leases) Of(inode InodeID) *Lease {
	if t.byFile.Len() == 0 {
		return nil
	}
	if a, ok := t.byFile.Get(attachment{inode: inode}); ok {
		return t.get(a.lease)
	}
	return nil
}

// IsDead reports whether an inode is attached to a lease that is dead.
func (t *Leases) IsDead(inode InodeID) bool {
	if t.dead.Len() == 0 {
		return false
	}
	l := t.Of(inode)
	return l != nil && l.Dead
}

// DeadIn is how many entries of a directory are dead.
func (t *Leases) DeadIn(dir InodeID) int64 {
	if t.dead.Len() == 0 {
		return 0
	}
	d, _ := t.dead.Get(deadIn{dir: dir})
	return d.n
}

// EachDead calls fn for all that is attached to leases that are dead.
func (t *Leases) EachDead(fn func(InodeID)) {
	t.ended.Ascend(func(e endedLease) bool {
		if l := t.get(e.key); l.Dead {
			t.each(l, 0, func(inode InodeID) bool {
				fn(inode)
				return true
			})
		}
		return true
	})
}

// Files returns up to limit inodes attached to a lease, that there is, whose numbers
// are greater than after, in the order of numbers.
func (t *Leases) Files(l *Lease, after InodeID, limit int) (files []InodeID) {
	t.each(l, after, func(inode InodeID) bool {
		if len(files) == limit {
			return false
		}
		files = append(files, inode)
		return true
	})
	return files
}

// GoesWithDir reports whether the deletion of an inode that is attached to a lease needs no report
// of its own, since that of a directory above it, attached to the same lease, comes before.
func (t *Leases) GoesWithDir(l *Lease, inode InodeID, where Where) bool {
	for dir, _, is := where(inode); is; dir, _, is = where(dir) {
		if dir < inode && t.Of(dir) == l {
			return true
		}
	}
	return false
}

func (t *Leases) each(l *Lease, after InodeID, fn func(InodeID) bool) {
	t.files.From(attachment{l.key, after + 1}, func(a attachment) bool { return a.lease == l.key && fn(a.inode) })
}

// Places returns the directories that the end of a lease concerns, by number.
func (t *Leases) Places(l *Lease) (places []Place) {
	t.places.From(Place{lease: l.key}, func(p Place) bool {
		if p.lease == l.key {
			places = append(places, p)
		}
		return p.lease == l.key
	})
	return places
}

// HasRoom reports whether the end of a lease may concern these directories, too; 0 is
// one that is to be made. A lease that does not live has room.
func (t *Leases) HasRoom(id LeaseID, dirs ...InodeID) bool {
	l, more := t.Get(id), 0
	if l == nil {
		return true
	}
	for _, d := range dirs {
		if !t.places.Has(Place{lease: l.key, Dir: d}) {
			more++
		}
	}
	return more == 0 || l.Dirs+more <= MaxLeaseDirs
}

// Choose is MayGrant for a lease that no record has yet: its name, too, has to be one to choose.
func (t *Leases) Choose(l *Lease) error {
	if l.Name != "" {
		if err := CheckLeaseName(l.Name); err != nil {
			return err
		}
	}
	return t.MayGrant(l)
}

// MayGrant checks a new lease. Errors: InvalidArgument (its id, time to live or name cannot
// be), Exists (its id or name), Retry (too many leases).
func (t *Leases) MayGrant(l *Lease) error {
	if err := l.can(); err != nil {
		return err
	}
	named := t.Named(l.Owner.User, l.Name)
	switch {
	case t.Get(l.ID) != nil:
		return fserror.New(fserror.Exists, "", "", "there is a lease %x already; choose another id, or none", uint64(l.ID))
	case named != nil:
		return fserror.New(fserror.Exists, "", "", "user %s has a lease %q already, %x, granted to %s on host %s; choose another name, or revoke that lease", l.Owner.User, l.Name, uint64(named.ID), named.Owner.Client, named.Owner.Host)
	case t.Len() >= MaxLeases:
		return TooMany("there are %d granted leases, the most there can be, ended ones that are still being removed included; try again in a moment, or revoke some", MaxLeases)
	}
	return nil
}

// can checks a lease by itself.
func (l *Lease) can() error {
	switch {
	case l.ID == 0 || l.ID > MaxLeaseID:
		return fserror.New(fserror.InvalidArgument, "", "", "a lease's id is from 1 to %x, not %x", uint64(MaxLeaseID), uint64(l.ID))
	case l.TTL <= 0 || l.TTL > MaxLeaseTTL:
		return fserror.New(fserror.InvalidArgument, "", "", "a time to live is from 1 ms to 365 days, not %d ms", l.TTL)
	case l.Name != "":
		return canName(l.Name)
	}
	return nil
}

// MaxLeaseName is the length of the longest name of a lease, in bytes.
const MaxLeaseName = 255

// CheckLeaseName returns an error (InvalidArgument) unless a lease can get this name: 1 to
// 255 bytes of UTF-8 without a slash, a space or a control character, and with something
// that is no hexadecimal digit, so that it cannot be taken for an id.
func CheckLeaseName(name string) error {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return badName(name, plainNames)
	}
	return canName(name)
}

// canName is CheckLeaseName of what a record or an image has. It does not ask what kind of character
// one beyond ASCII is: each release of Unicode, and so of this program, may say otherwise, and all
// have to read the same.
func canName(name string) error {
	switch {
	case name == "" || len(name) > MaxLeaseName:
		return badName(name, "choose one of 1 to 255 bytes")
	case !utf8.ValidString(name):
		return badName(name, "choose one in valid UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f }):
		return badName(name, plainNames)
	case strings.Trim(name, "0123456789abcdefABCDEF") == "":
		return badName(name, "it could be an id; add a letter beyond f, a dash or a dot")
	}
	return nil
}

const plainNames = "choose one without slashes, spaces and control characters"

func badName(name, why string) error {
	return fserror.New(fserror.InvalidArgument, "", "", "%s cannot be the name of a lease: %s", strconv.Quote(name[:min(len(name), MaxLeaseName)]), why)
}

// Grant adds a lease, whose id and name no living lease has.
func (t *Leases) Grant(l *Lease) {
	t.last++
	l.key = t.last
	t.byKey.ReplaceOrInsert(l)
	if l.Ended == 0 {
		t.living.ReplaceOrInsert(leaseName{l.ID, l.key})
		if l.Name != "" {
			t.names.ReplaceOrInsert(namedLease{l.Owner.User, l.Name, l.key})
		}
	} else {
		t.ended.ReplaceOrInsert(endedLease{l.Ended, l.key})
	}
}

// EndLease ends a living lease. With dead, what is attached is dead from then on, and the
// deletion of the first told inodes is reported. A lease without files is forgotten.
func (t *Leases) EndLease(id LeaseID, txid uint64, dead bool, told int) {
	l := *t.Get(id)
	l.Ended, l.Dead = txid, dead
	if first := t.Files(&l, 0, told); len(first) > 0 {
		l.Told = first[len(first)-1]
	}
	t.living.Delete(leaseName{id: id})
	if l.Name != "" {
		t.names.Delete(namedLease{user: l.Owner.User, name: l.Name})
	}
	t.ended.ReplaceOrInsert(endedLease{l.Ended, l.key})
	if dead {
		for _, p := range t.Places(&l) {
			t.addDead(p.Dir, p.Entries)
		}
	}
	t.count(&l, 0)
}

func (t *Leases) addDead(dir InodeID, d int64) {
	n := t.DeadIn(dir) + d
	if n == 0 {
		t.dead.Delete(deadIn{dir: dir})
		return
	}
	t.dead.ReplaceOrInsert(deadIn{dir, n})
}

// count replaces a lease by one with d files more, or forgets it if it has ended
// and has none left.
func (t *Leases) count(l *Lease, d int) {
	c := *l
	c.Files += d
	if c.Ended != 0 && c.Files == 0 {
		t.byKey.Delete(l)
		t.ended.Delete(endedLease{ended: l.Ended})
		return
	}
	t.byKey.ReplaceOrInsert(&c)
}

// Attach attaches an inode in a directory, which is attached to no lease, to a living lease.
func (t *Leases) Attach(id LeaseID, inode, dir InodeID, isDir bool) {
	l := *t.Get(id)
	t.attach(&l, inode, dir, isDir)
	t.byKey.ReplaceOrInsert(&l)
}

// attach changes l.
func (t *Leases) attach(l *Lease, inode, dir InodeID, isDir bool) {
	a := attachment{l.key, inode}
	t.files.ReplaceOrInsert(a)
	t.byFile.ReplaceOrInsert(a)
	l.Files++
	t.place(l, dir, func(p *Place) { p.Entries++ })
	if isDir {
		t.place(l, inode, func(p *Place) { p.Attached = true })
	}
}

// place changes what a lease has in a directory. The lease is a copy that may be changed.
func (t *Leases) place(l *Lease, dir InodeID, change func(*Place)) {
	p, had := t.places.Get(Place{lease: l.key, Dir: dir})
	if !had {
		p = Place{lease: l.key, Dir: dir}
		l.Dirs++
	}
	before := p.Entries
	change(&p)
	if l.Dead && p.Entries != before {
		t.addDead(dir, p.Entries-before)
	}
	if p.Entries == 0 && !p.Attached {
		t.places.Delete(p)
		l.Dirs--
		return
	}
	t.places.ReplaceOrInsert(p)
}

// Detach detaches an inode of a directory, and returns the lease that it was attached
// to; 0 if it was attached to none.
func (t *Leases) Detach(inode, dir InodeID) LeaseID {
	old := t.Of(inode)
	if old == nil {
		return 0
	}
	l, a := *old, attachment{old.key, inode}
	t.files.Delete(a)
	t.byFile.Delete(a)
	t.place(&l, dir, func(p *Place) { p.Entries-- })
	if t.places.Has(Place{lease: l.key, Dir: inode}) {
		t.place(&l, inode, func(p *Place) { p.Attached = false })
	}
	t.count(&l, -1)
	return l.ID
}

// Move notes that an inode was moved from one directory to another.
func (t *Leases) Move(inode, from, to InodeID) {
	old := t.Of(inode)
	if old == nil || from == to {
		return
	}
	l := *old
	t.place(&l, from, func(p *Place) { p.Entries-- })
	t.place(&l, to, func(p *Place) { p.Entries++ })
	t.byKey.ReplaceOrInsert(&l)
}

// Where returns the directory of an inode that can be attached, and whether the inode is
// a directory itself.
type Where func(InodeID) (dir InodeID, isDir, can bool)

// Code is the layout in an image of record txid: the leases that live by id, then
// those that have ended by when; each with what is attached. Without named it is that of
// images of version 8, in which leases have no names.
func (t *Leases) Code(c *codec.Coder, txid uint64, named bool, where Where) {
	if c.Writes() {
		c.Put(uint64(t.Len())) //nolint:gosec // a length
		each := func(key uint64) bool {
			l := *t.get(key)
			l.code(c, named)
			c.Put(uint64(l.Files)) //nolint:gosec // a count
			last := InodeID(0)
			t.each(&l, 0, func(inode InodeID) bool {
				c.Put(uint64(inode - last))
				last = inode
				return c.Next()
			})
			return c.Next()
		}
		t.living.Ascend(func(name leaseName) bool { return each(name.key) })
		t.ended.Ascend(func(e endedLease) bool { return each(e.key) })
		return
	}
	last := new(Lease)
	for n := c.Number(63); n > 0 && c.Next(); n-- {
		l := new(Lease)
		l.code(c, named)
		if !t.fits(l, last, txid) {
			c.Fail("a lease cannot be, or is out of order")
			return
		}
		t.Grant(l)
		inode := InodeID(0)
		for files := c.Number(63); files > 0 && c.Next(); files-- {
			step := c.Number(64)
			inode += InodeID(step)
			if step == 0 || inode < InodeID(step) || !t.load(l, inode, where) {
				c.Fail("what is attached to a lease cannot be, or is out of order")
			}
		}
		if l.Ended != 0 && l.Files == 0 {
			c.Fail("a lease has ended and has no files")
		}
		last = l
	}
}

// CodeOld reads what images of version 7 have: all leases, then all that is attached.
func (t *Leases) CodeOld(c *codec.Coder, txid uint64, where Where) {
	last := LeaseID(0)
	byID := make(map[LeaseID]*Lease)
	for n := c.Number(63); n > 0 && c.Next(); n-- {
		l := new(Lease)
		l.codeOld(c)
		if l.ID <= last || !t.fits(l, new(Lease), txid) {
			c.Fail("a lease cannot be, or is out of order")
			return
		}
		t.Grant(l)
		byID[l.ID], last = l, l.ID
	}
	before := struct {
		lease LeaseID
		inode InodeID
	}{}
	for n := c.Number(63); n > 0 && c.Next(); n-- {
		a := before
		c.U64((*uint64)(&a.lease))
		c.U64((*uint64)(&a.inode))
		l := byID[a.lease]
		if cmp.Or(cmp.Compare(before.lease, a.lease), cmp.Compare(before.inode, a.inode)) >= 0 || l == nil || !t.load(l, a.inode, where) {
			c.Fail("what is attached to a lease cannot be, or is out of order")
		}
		before = a
	}
	t.ended.Ascend(func(e endedLease) bool {
		if t.get(e.key).Files == 0 {
			c.Fail("a lease has ended and has no files")
		}
		return c.OK()
	})
}

// fits reports whether a lease that was read can come after another one.
func (t *Leases) fits(l, last *Lease, txid uint64) bool {
	ordered := last.Ended == 0 && (l.Ended != 0 || l.ID > last.ID) || last.Ended != 0 && l.Ended > last.Ended
	return ordered && l.can() == nil && (l.Ended != 0 || t.Named(l.Owner.User, l.Name) == nil) && l.Ended <= txid &&
		(l.Ended == 0 || !t.ended.Has(endedLease{ended: l.Ended})) && (l.Ended != 0 || !l.Dead && l.Told == 0)
}

// load attaches what was read to a lease that nobody else has seen yet; false if the
// image contradicts itself.
func (t *Leases) load(l *Lease, inode InodeID, where Where) bool {
	dir, isDir, can := where(inode)
	if !can || t.byFile.Has(attachment{inode: inode}) {
		return false
	}
	t.attach(l, inode, dir, isDir)
	return true
}

func (l *Lease) code(c *codec.Coder, named bool) {
	l.codeOld(c)
	c.Bool(&l.Dead)
	c.U64((*uint64)(&l.Told))
	if named {
		c.Text(&l.Name)
	}
}

func (l *Lease) codeOld(c *codec.Coder) {
	c.U64((*uint64)(&l.ID))
	c.I64(&l.TTL)
	c.I64(&l.Since)
	c.U64(&l.Ended)
	l.Owner.Code(c)
}

// Code is the layout of an owner.
func (o *LeaseOwner) Code(c *codec.Coder) {
	c.Text(&o.User)
	c.Text(&o.Client)
	c.Text(&o.Host)
}

// Check finds where the parts disagree.
func (t *Leases) Check(problem Problem, where Where) {
	files, ended, named := make(map[uint64]int), 0, 0
	places, dead := make(map[[2]uint64]Place), make(map[InodeID]int64)
	t.files.Ascend(func(a attachment) bool {
		l := t.get(a.lease)
		dir, isDir, can := where(a.inode)
		if b, ok := t.byFile.Get(attachment{inode: a.inode}); !ok || a != b || !can || l == nil {
			problem("inode %d is attached to a lease, but one of them does not fit", a.inode)
			return true
		}
		files[a.lease]++
		change := func(dir InodeID, entries int64, attached bool) {
			k := [2]uint64{a.lease, uint64(dir)}
			places[k] = Place{a.lease, dir, places[k].Entries + entries, places[k].Attached || attached}
		}
		change(dir, 1, false)
		if isDir {
			change(a.inode, 0, true)
		}
		if l.Dead {
			dead[dir]++
		}
		return true
	})
	if t.files.Len() != t.byFile.Len() || t.places.Len() != len(places) || t.dead.Len() != len(dead) {
		problem("%d inodes are attached by lease, %d by inode; %d places and %d of what is dead, should be %d and %d",
			t.files.Len(), t.byFile.Len(), t.places.Len(), t.dead.Len(), len(places), len(dead))
	}
	dirs := make(map[uint64]int)
	for k, p := range places {
		dirs[p.lease]++
		if have, ok := t.places.Get(p); !ok || have != p {
			problem("directory %d has %+v attached to a lease, counted are %+v", k[1], p, have)
		}
	}
	for dir, n := range dead {
		if t.DeadIn(dir) != n {
			problem("directory %d has %d dead entries, counted are %d", dir, n, t.DeadIn(dir))
		}
	}
	t.byKey.Ascend(func(l *Lease) bool {
		name, lives := t.living.Get(leaseName{id: l.ID})
		lives = lives && name.key == l.key
		if lives != (l.Ended == 0) {
			problem("lease %x ended with record %d, but its id says otherwise", uint64(l.ID), l.Ended)
		}
		if l.Ended == 0 && l.Name != "" {
			if named++; t.Named(l.Owner.User, l.Name) != l {
				problem("lease %x has the name %q, which leads elsewhere", uint64(l.ID), l.Name)
			}
		}
		if l.Ended != 0 {
			ended++
			if e, ok := t.ended.Get(endedLease{ended: l.Ended}); l.Files == 0 || !ok || e.key != l.key {
				problem("lease %x has ended and is not in the order of the end, or has no files", uint64(l.ID))
			}
		}
		if l.Files != files[l.key] || l.Dirs != dirs[l.key] {
			problem("lease %x has %d files in %d directories, but counts %d in %d", uint64(l.ID), files[l.key], dirs[l.key], l.Files, l.Dirs)
		}
		return true
	})
	if ended != t.ended.Len() || t.byKey.Len() != ended+t.living.Len() || named != t.names.Len() {
		problem("%d leases of %d have ended, %d are in the order of the end, %d live; %d have names, %d names are known",
			ended, t.byKey.Len(), t.ended.Len(), t.living.Len(), named, t.names.Len())
	}
}
