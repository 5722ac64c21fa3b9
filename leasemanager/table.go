package leasemanager

import (
	"sync/atomic"
	"time"
)

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
// Everything but the first five is guarded by Manager.mu; these are what a
// renewal needs, in one cache line.
type lease struct {
	word    atomic.Uint64 // stamp << stampShift | flags
	version atomic.Uint64 // of the session's set that was taken last
	session SessionID     // immutable; of a granted lease its id, see grantKey
	limit   atomic.Int64  // a session's own lease: its soft limit; a granted one: its TTL
	owes    atomic.Int64  // the largest age in Manager.owed of it or of its files

	s     *session      // nil of a granted lease
	owner *Holder       // of a granted lease; immutable
	id    uint64        // of a lease that has files, is ending or is granted; else 0
	key   time.Duration // its stamp (a granted lease's deadline) in the tree that it is in
	born  time.Duration
	look  uint64  // the number of its entry in Manager.looks; 0 if it has none
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

// attach adds f to l, which enters the order if it had no files.
func (m *Manager) attach(f *file, l *lease) {
	f.l, f.pos = l, len(l.files)
	l.files = append(l.files, f)
	l.s.files++
	if len(m.owed) > 0 {
		m.inherit(l, f)
	}
	if len(l.files) == 1 {
		m.nextID++
		l.id = m.nextID
		l.born = f.granted
		l.key = m.stamp(l)
		m.order.ReplaceOrInsert(item{l.key, l.id, l})
		m.ids.ReplaceOrInsert(item{l.key, l.id, l})
		if l != l.s.main {
			l.s.others++
			m.lapsing++
		}
		m.watch(l)
	}
}

// detach takes f out of its lease, which leaves the order if it has no files
// then. The session may be without files after it: see settle.
func (m *Manager) detach(f *file) {
	l := f.l
	dequeue(f)
	end := len(l.files) - 1
	l.files[f.pos] = l.files[end]
	l.files[f.pos].pos = f.pos
	l.files[end] = nil
	l.files = l.files[:end]
	if c := cap(l.files); c > 1024 && end < c/4 {
		l.files = append(make([]*file, 0, c/2), l.files...)
	}
	l.s.files--
	f.l = nil
	if end > 0 {
		return
	}
	l.files = nil
	if l.has(flagEnding) {
		if !l.out {
			m.finish(l)
		}
		return
	}
	m.order.Delete(item{stamp: l.key, id: l.id})
	m.ids.Delete(item{id: l.id})
	l.id = 0
	if l != l.s.main {
		l.s.others--
		m.lapsing--
	}
}

// finish forgets a lease that was ending and has no files.
func (m *Manager) finish(l *lease) {
	s := l.s
	m.ending.Delete(item{stamp: l.key, id: l.id})
	m.ids.Delete(item{id: l.id})
	l.id, l.out = 0, false
	m.expired++
	s.endings--
	if l == s.main {
		m.setMain(s)
	} else {
		s.others--
		if l.kind == KindLapsing {
			m.lapsing--
		}
	}
}

// setMain gives the session a lease of its own, without files.
func (m *Manager) setMain(s *session) {
	l := &lease{session: s.holder.Session, s: s, kind: KindSession}
	l.word.Store(flagIdle)
	l.limit.Store(int64(m.softOf(s.holder)))
	if s.main != nil {
		l.version.Store(s.main.version.Load())
		l.look, s.main.look = s.main.look, 0
	}
	s.main = l
	m.dir.put(l)
}

// live returns the lease that files of the session are to be added to: a new
// one if its lease is ending.
func (m *Manager) live(s *session) *lease {
	if old := s.main; old.has(flagEnding) {
		old.kind = KindLapsing // if it is put back, renewals do not reach it
		s.others++
		m.lapsing++
		m.setMain(s)
	}
	return s.main
}

// add returns the session of h, making it if it is not known.
func (m *Manager) add(h Holder, seq uint64) *session {
	if l := m.dir.get(h.Session); l != nil {
		l.s.holder = h
		l.limit.Store(int64(m.softOf(h)))
		return l.s
	}
	s := &session{holder: h, seq: seq}
	m.setMain(s)
	m.sessions++
	return s
}

// settle is called when a session may have changed: it brings its lease's flags
// up to date, or forgets it if it has neither a stream nor a file.
func (m *Manager) settle(s *session) {
	if !s.stream && s.files == 0 && s.endings == 0 {
		if s.forgotten {
			return
		}
		s.forgotten = true
		s.main.word.Or(flagEnding) // for renewals that have looked it up before
		m.dir.remove(s.holder.Session)
		m.sessions--
		return
	}
	l := s.main
	l.setFlag(flagNews, !s.confirmed || s.first != nil || s.lost != nil || s.endings > 0)
	l.setFlag(flagOthers, s.others > 0)
	l.setFlag(flagIdle, len(l.files) == 0)
}

// move takes f from its lease to another of the same session.
func (m *Manager) move(f *file, to *lease) {
	m.detach(f)
	m.attach(f, to)
}

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
