package leasemanager

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"
)

// index is where leases and files are found.
type index struct {
	dir    directory
	grants directory // granted leases, see grantKey

	// mu guards all that the parts of a Manager have, but for what directory and
	// lease say. It is not in a cache line that a renewal reads.
	mu     sync.RWMutex
	inodes map[uint64]*file
	ids    *btree.BTreeG[item] // all leases that have an id
}

func newIndex() *index {
	x := new(index)
	x.dir.seed, x.grants.seed = maphash.MakeSeed(), maphash.MakeSeed()
	return x
}

// clear forgets files and leases; the directories are emptied by who fills them.
func (x *index) clear() {
	x.inodes = make(map[uint64]*file)
	x.ids = btree.NewG(32, byID)
}

// The flags in a lease's word; the stamp is above them.
const (
	// flagEnding: the end has begun, or the lease is out of use. No renewal
	// gets past it.
	flagEnding = 1 << iota
	// flagNews: Renew must look at the session: there is something to tell, a
	// set to ask for, or a file that no set has listed yet.
	flagNews
	// flagOthers: the session has leases besides this one; Touch must look.
	flagOthers
	// flagIdle: no files; the lease is in no order.
	flagIdle

	stampShift = iota
	flags      = 1<<stampShift - 1
)

// lease is a set of files that are renewed and end together, or a granted
// lease.
//
// Everything but the first five is guarded by index.mu; these are what a
// renewal needs, in one cache line.
type lease struct {
	word    atomic.Uint64 // stamp << stampShift | flags
	version atomic.Uint64 // of the session's set that was taken last
	session SessionID     // immutable; of a granted lease its id, see grantKey
	limit   atomic.Int64  // a session's own lease: its soft limit; a granted one: its TTL
	owes    atomic.Int64  // the largest age in ages.owed of it or of its files

	s     *session      // nil of a granted lease
	owner *Holder       // of a granted lease; immutable
	id    uint64        // of a lease that has files, is ending or is granted; else 0
	key   time.Duration // its stamp (a granted lease's deadline) in the tree that it is in
	born  time.Duration
	look  uint64  // the number of its entry in ages.looks; 0 if it has none
	files []*file // file.pos is the index
	kind  Kind
	out   bool // ending, and handed to the caller, who has to answer
}

// holder is who has the lease; not to be changed.
func (l *lease) holder() *Holder {
	if l.kind == KindGranted {
		return l.owner
	}
	return &l.s.holder
}

// stampOf is the stamp in a lease's word.
func stampOf(word uint64) time.Duration {
	return time.Duration(word >> stampShift) //nolint:gosec // was a duration
}

// renew stamps the lease unless it has one of the flags.
func (l *lease) renew(now time.Duration, refuse uint64) bool {
	stamp := uint64(max(now, 0)) << stampShift
	for {
		w := l.word.Load()
		if w&refuse != 0 {
			return false
		}
		if stamp <= w&^flags {
			return true // a later renewal was faster
		}
		if l.word.CompareAndSwap(w, stamp|w&flags) {
			return true
		}
	}
}

func (l *lease) has(flag uint64) bool { return l.word.Load()&flag != 0 }

func (l *lease) setFlag(flag uint64, on bool) {
	if on {
		l.word.Or(flag)
	} else {
		l.word.And(^flag)
	}
}

// file is one file open for write.
type file struct {
	inode, epoch uint64
	l            *lease
	pos          int           // in l.files
	granted      time.Duration // when it was opened
	seen         uint64        // the last pass of a set that listed it

	// While no set has listed the file it is in a queue of its session,
	// ordered by the time of entering.
	queued     bool
	entered    time.Duration
	prev, next *file
}

func (f *file) ref() Ref { return Ref{f.inode, f.epoch} }

// session is a client process that has a stream or a file.
type session struct {
	holder  Holder
	main    *lease // the session's own lease; it is what the directory has
	seq     uint64 // the order in which sessions came; 0 if known from the tree
	stream  bool
	met     bool // a stream or an open came since the activation
	files   int  // in all its leases
	others  int  // leases with files, or ending, besides main
	endings int  // leases that are ending

	// confirmed: the session's set of main.version was taken and held nothing
	// unknown, so that the version alone says it all.
	confirmed bool
	pass      uint64 // the pass of a set under way, or the last one
	first     *file  // the queue of files that no set has listed
	last      *file
	lost      *losses // nil if nothing is to be told
	forgotten bool
}

// losses are what a session has to be told.
type losses struct {
	list  []loss // oldest first
	index map[Ref]int
	seq   uint64 // of the last entry
	spilt bool   // losses were left out since the pass of a set began
}

type loss struct {
	Lost
	seq  uint64
	seen uint64 // the last pass of a set that listed it
}

// item is an entry of a tree of leases.
type item struct {
	stamp time.Duration
	id    uint64
	l     *lease
}

func byStamp(a, b item) bool {
	if a.stamp != b.stamp {
		return a.stamp < b.stamp
	}
	return a.id < b.id
}

func byID(a, b item) bool { return a.id < b.id }

// enqueue notes that no set has listed f.
func enqueue(f *file, now time.Duration) {
	if f.queued {
		return
	}
	s := f.l.s
	f.queued, f.entered = true, now
	f.prev, f.next = s.last, nil
	if s.last != nil {
		s.last.next = f
	} else {
		s.first = f
	}
	s.last = f
}

func dequeue(f *file) {
	if !f.queued {
		return
	}
	s := f.l.s
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		s.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		s.last = f.prev
	}
	f.queued, f.prev, f.next = false, nil, nil
}

// How much a session is told.
const (
	maxLost     = 4096   // kept for a session
	tellLost    = 1000   // in one answer
	tellUnknown = 50_000 // in one answer
)

// lose notes that the session has to be told of a loss.
func (s *session) lose(ref Ref, reason string, by *Holder, pass uint64) {
	if s.lost == nil {
		s.lost = &losses{index: make(map[Ref]int)}
	}
	n := s.lost
	if len(n.list) == maxLost {
		// The set will be asked for; if it lists this one, it is told then.
		n.spilt = true
		s.confirmed = false
		return
	}
	if by != nil {
		h := *by
		by = &h
	}
	n.seq++
	n.index[ref] = len(n.list)
	n.list = append(n.list, loss{Lost: Lost{Ref: ref, Reason: reason, By: by}, seq: n.seq, seen: pass})
}

// named returns the lease of the key; nil if there is none. A lapsing lease of
// several files (it was being ended, and was put back) has no key.
func (x *index) named(key AgeKey) *lease {
	switch {
	case key.Granted != 0:
		return x.grants.get(grantKey(key.Granted))
	case key.Inode != 0:
		if f := x.inodes[key.Inode]; f != nil && f.l.kind == KindLapsing && len(f.l.files) == 1 {
			return f.l
		}
		return nil
	}
	return x.dir.get(key.Session)
}

// breathe lets others have the lock.
func (x *index) breathe() {
	x.mu.Unlock()
	x.mu.Lock()
}
