package leasemanager

import (
	"hash/maphash"
	"iter"
	"sync"
	"time"

	"github.com/google/btree"
)

// Manager is the table of leases of one active namenode. See the package
// comment for its rules. All methods are safe for concurrent use.
type Manager struct {
	cfg        Config
	renewEvery time.Duration

	// mu guards everything below, but for what directory and lease say.
	mu       sync.RWMutex
	inodes   map[uint64]*file
	order    *btree.BTreeG[item] // leases that have files and are not ending
	ending   *btree.BTreeG[item] // leases that are ending
	ids      *btree.BTreeG[item] // both, by id
	nextID   uint64
	nextSeq  uint64
	pass     uint64
	floor    time.Duration // no stamp counts as earlier: the last activation or end of safe mode
	safeMode bool

	// Expire's walk through the order.
	cursor   item     // the last lease tried
	walked   bool     // the walk came to the end: the next starts anew
	portions []*lease // ending leases of which the next files are to be handed out

	sessions, connected, lapsing int
	expired, notEnded            uint64

	dir directory
}

// New returns an empty Manager.
func New(c Config) *Manager {
	if c.Soft <= 0 {
		c.Soft = DefaultSoft
	}
	if c.Hard <= 0 {
		c.Hard = DefaultHard
	}
	if c.Slice <= 0 {
		c.Slice = DefaultSlice
	}
	m := &Manager{cfg: c, renewEvery: min(c.Soft, c.Hard) / 2}
	m.dir.seed = maphash.MakeSeed()
	m.clear()
	return m
}

// clear forgets all files and leases.
func (m *Manager) clear() {
	m.inodes = make(map[uint64]*file)
	m.order = btree.NewG(32, byStamp)
	m.ending = btree.NewG(32, byStamp)
	m.ids = btree.NewG(32, byID)
	m.cursor, m.walked, m.portions = item{}, false, nil
	m.lapsing = 0
}

// Limits returns the soft and the hard limit, and the longest time between two
// renewals: half the soft limit (or the hard one, should that be smaller).
func (m *Manager) Limits() (soft, hard, renewEvery time.Duration) {
	return m.cfg.Soft, m.cfg.Hard, m.renewEvery
}

// limits of a lease. One that is granted will have its own.
func (m *Manager) limits(*lease) (soft, hard time.Duration) { return m.cfg.Soft, m.cfg.Hard }

// stamp is the moment from which the lease's limits count.
func (m *Manager) stamp(l *lease) time.Duration {
	return max(time.Duration(l.word.Load()>>stampShift), m.floor) //nolint:gosec // was a duration
}

// Connect notes that a stream of the session came. It takes nothing from
// anybody and renews nothing: a client whose renewals are lost counts its own
// deadline from the last one that was answered, however often it reconnects.
// Streams are not counted: of a session that comes back before its old stream is
// gone, the caller reports the end of the last one only.
func (m *Manager) Connect(h Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextSeq++
	s := m.add(h, m.nextSeq)
	if !s.stream {
		m.connected++
	}
	s.stream = true
	m.settle(s)
}

// Disconnect notes that the session's stream is gone. If it has no file, the
// session is forgotten.
func (m *Manager) Disconnect(id SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.dir.get(id)
	if l == nil || !l.s.stream {
		return
	}
	l.s.stream = false
	m.connected--
	m.settle(l.s)
}

// Open notes that h has the inode open for write under the epoch: the record is
// applied. Whoever had it before loses it and is told in its next renewal. It
// counts as a renewal of h's session. The same grant again changes nothing
// else; an epoch older than the one that is known changes nothing.
func (m *Manager) Open(h Holder, inode, epoch uint64) {
	now := m.cfg.Clock.Mono()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open(h, Ref{inode, epoch}, now, false)
}

func (m *Manager) open(h Holder, ref Ref, now time.Duration, rebuild bool) {
	f := m.inodes[ref.Inode]
	if f != nil && ref.Epoch < f.epoch {
		return
	}
	var seq uint64
	if !rebuild {
		m.nextSeq++
		seq = m.nextSeq
	}
	s := m.add(h, seq)
	defer m.settle(s)
	if f != nil && f.l.s == s && f.epoch == ref.Epoch {
		if f.l.has(flagEnding) {
			return
		}
		m.stampMain(s, now)
		if f.l != s.main {
			m.move(f, s.main)
		}
		return
	}
	if f != nil {
		if old := f.l.s; old != s {
			old.lose(f.ref(), ReasonTakenOver, &h, 0)
			defer m.settle(old)
		}
		m.detach(f)
	} else {
		f = &file{inode: ref.Inode}
		m.inodes[ref.Inode] = f
	}
	f.epoch, f.granted, f.seen = ref.Epoch, now, 0
	m.attach(f, m.stampMain(s, now))
	enqueue(f, now)
}

// stampMain renews the lease that the session's files are added to.
func (m *Manager) stampMain(s *session, now time.Duration) *lease {
	l := m.live(s)
	l.renew(now, 0)
	return l
}

// Close notes that the grant of the inode under the epoch is over: the record
// that ended it is applied. Unless the holder itself closed it (reason "closed",
// by nil or the holder), its session is told in its renewals that it lost the
// file, why, and by whom. An inode that is not known, or under another epoch,
// changes nothing.
func (m *Manager) Close(inode, epoch uint64, reason string, by *Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.inodes[inode]
	if f == nil || f.epoch != epoch {
		return
	}
	s := f.l.s
	if reason != ReasonClosed || by != nil && by.Session != s.holder.Session {
		s.lose(f.ref(), reason, by, 0)
	}
	delete(m.inodes, inode)
	m.detach(f)
	m.settle(s)
}

// Touch renews the session because a call of its writer of the inode came. A
// file that had become a lease of its own comes back to the session. It returns
// false, and renews nothing, if the session has no files or the lease in
// question is ending. Whether the session still has this inode, under which
// epoch, is on the inode: Touch does not look.
func (m *Manager) Touch(id SessionID, inode uint64) bool {
	now := m.cfg.Clock.Mono()
	l := m.dir.get(id)
	if l == nil {
		return false
	}
	if l.renew(now, flagEnding|flagOthers|flagIdle) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l = m.dir.get(id); l == nil {
		return false
	}
	s := l.s
	if f := m.inodes[inode]; f != nil && f.l.s == s && f.l != s.main {
		if f.l.has(flagEnding) {
			return false
		}
		m.move(f, m.stampMain(s, now))
		m.settle(s)
		return true
	}
	return l.renew(now, flagEnding|flagIdle)
}

// Suspend begins safe mode: nothing is past a limit, nothing expires, nothing is
// takeable. Renewals, opens and closes go on, and so does the end of leases that
// were handed out before.
func (m *Manager) Suspend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.safeMode = true
}

// Resume ends safe mode. All limits count from now. Without Suspend before, it
// does nothing.
func (m *Manager) Resume() {
	now := m.cfg.Clock.Mono()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.safeMode {
		m.safeMode = false
		m.floor = max(m.floor, now)
	}
}

// Rebuild replaces all leases by those of the files that are open in the tree:
// at activation. All limits count from now, and each session's set of files is
// asked for in its next renewal. Sessions that have a stream stay. Safe mode
// stays as it was. No lease handed out by Expire before may be answered after.
// The sequence must not call the Manager.
func (m *Manager) Rebuild(files iter.Seq2[Holder, Ref]) {
	now := m.cfg.Clock.Mono()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = max(m.floor, now)
	m.clear()
	m.resetSessions()
	for h, ref := range files {
		m.open(h, ref, now, true)
	}
}

// resetSessions leaves only sessions with a stream, as if they had just come.
func (m *Manager) resetSessions() {
	var old []*session
	m.dir.all(func(l *lease) { old = append(old, l.s) })
	for _, s := range old {
		s.main.word.Or(flagEnding) // for renewals that have looked it up before
		s.forgotten = true
		if !s.stream {
			m.dir.remove(s.holder.Session)
			m.sessions--
			continue
		}
		n := &session{holder: s.holder, seq: s.seq, stream: s.stream}
		m.setMain(n)
		m.settle(n)
	}
}
