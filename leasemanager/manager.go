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
	cfg Config

	// mu guards everything below, but for what directory and lease say.
	mu       sync.RWMutex
	inodes   map[uint64]*file
	order    order               // leases that have files and are not ending
	ending   *btree.BTreeG[item] // leases that are ending
	ids      *btree.BTreeG[item] // both, and granted ones, by id
	portions []*lease            // ending leases of which the next files are to be handed out
	nextID   uint64
	nextSeq  uint64
	pass     uint64
	safeMode bool
	// No stamp counts as earlier than the floor: the last end of safe mode.
	// activated is the last activation.
	floor, activated time.Duration

	deadlines order               // granted leases that are not ending, by deadline
	over      *btree.BTreeG[item] // granted leases that are ending

	looks    *btree.BTreeG[look] // when to look at the age of which lease
	told     map[AgeKey]*told    // the ages that are journalled
	lookedAt uint64              // the number of the last entry of looks
	// owed are the ages that a successor may find in the journal.
	owed map[AgeKey]time.Duration

	sessions, connected, lapsing int
	expired, notEnded            uint64
	grantedExpired               uint64

	dir    directory
	grants directory // granted leases, see grantKey
}

// origin is what the times in here are ahead of the clock's, so that a lease can
// have a stamp from before the clock's beginning.
const origin = 365 * 24 * time.Hour

func (m *Manager) now() time.Duration { return m.cfg.Clock.Mono() + origin }

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
	if c.AgeEvery <= 0 {
		c.AgeEvery = DefaultAgeEvery
	}
	m := &Manager{cfg: c, nextID: FirstSessionLease - 1}
	m.dir.seed, m.grants.seed = maphash.MakeSeed(), maphash.MakeSeed()
	m.clear()
	return m
}

// clear forgets all files and leases.
func (m *Manager) clear() {
	m.inodes = make(map[uint64]*file)
	m.order, m.deadlines = newOrder(), newOrder()
	m.ending, m.over = btree.NewG(32, byStamp), btree.NewG(32, byStamp)
	m.ids = btree.NewG(32, byID)
	m.portions = nil
	m.lapsing = 0
	m.looks = btree.NewG(32, byDue)
	m.told = make(map[AgeKey]*told)
	m.owed = make(map[AgeKey]time.Duration)
}

// Limits returns the soft and the hard limit, and the longest time between two
// renewals: half the soft limit (or the hard one, should that be smaller). A
// session with a TTL has its own soft limit.
func (m *Manager) Limits() (soft, hard, renewEvery time.Duration) {
	return m.cfg.Soft, m.cfg.Hard, m.period(m.cfg.Soft)
}

// limits of a lease. The hard limit is the same for all that are not granted:
// their order relies on it.
func (m *Manager) limits(l *lease) (soft, hard time.Duration) {
	if l.kind == KindGranted {
		ttl := time.Duration(l.limit.Load())
		return ttl, ttl
	}
	return time.Duration(l.s.main.limit.Load()), m.cfg.Hard
}

// softOf is the soft limit of the holder's session.
func (m *Manager) softOf(h Holder) time.Duration {
	if h.TTL <= 0 {
		return m.cfg.Soft
	}
	return min(h.TTL, m.cfg.Hard)
}

// period is the longest time between two renewals under a soft limit.
func (m *Manager) period(soft time.Duration) time.Duration { return min(soft, m.cfg.Hard) / 2 }

// stamp is the moment from which the lease's limits count.
func (m *Manager) stamp(l *lease) time.Duration {
	return max(stampOf(l.word.Load()), m.floor)
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
	s.stream, s.met = true, true
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
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open(h, Ref{inode, epoch}, now, now, false)
}

func (m *Manager) open(h Holder, ref Ref, now, stamp time.Duration, rebuild bool) {
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
	s.met = s.met || !rebuild
	defer m.settle(s)
	if f != nil && f.l.s == s && f.epoch == ref.Epoch {
		if f.l.has(flagEnding) {
			return
		}
		m.stampMain(s, stamp)
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
	m.attach(f, m.stampMain(s, stamp))
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
	delete(m.told, AgeKey{Inode: inode}) // the tree forgets it by itself
	delete(m.owed, AgeKey{Inode: inode})
	m.detach(f)
	m.settle(s)
}

// Touch renews the session because a record of its writer of the inode is about to
// be applied. A file that had become a lease of its own comes back to the session.
// It returns false, and renews nothing, if the session has no files or the lease in
// question is ending. Whether the session still has this inode, under which epoch,
// is on the inode: Touch does not look.
func (m *Manager) Touch(id SessionID, inode uint64) bool {
	now := m.now()
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
// takeable. Renewals, opens and closes continue, and so does the end of leases that
// were handed out before.
func (m *Manager) Suspend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.safeMode = true
}

// Resume ends safe mode. All limits count from now. Without Suspend before, it
// does nothing.
func (m *Manager) Resume() {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.safeMode {
		m.safeMode = false
		m.floor = max(m.floor, now)
	}
}

// Rebuild replaces all leases by what the tree has: the files that are open, and
// the leases that were granted (nil: none). It is an activation: each session's
// set of files is asked for in its next renewal. Sessions that have a stream
// stay. Safe mode stays as it was. No lease handed out by Expire or
// ExpireGranted before may be answered after.
//
// age returns the journalled age of a lease, 0 if there is none; nil if there is
// none at all. A lease continues with its age, but at least a renewal period (of a
// granted lease: a third of its TTL) remains until its hard limit. Activations in a
// row share that: of a lease that is past its limit already, what is left of it
// remains, and a tenth of it in any case. A lease without an age counts from now. A file with an age of its own inode gets a
// lease of its own. All of them are taken for journalled: see CheckAges.
//
// The arguments must not call the Manager.
func (m *Manager) Rebuild(files iter.Seq2[Holder, Ref], granted iter.Seq[Granted], age func(AgeKey) time.Duration) {
	now := m.now()
	if age == nil {
		age = func(AgeKey) time.Duration { return 0 }
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor, m.activated = 0, now
	m.clear()
	m.resetSessions()
	m.grants.all(func(l *lease) { l.word.Or(flagEnding) }) // as in resetSessions
	m.grants.clear()
	for h, ref := range files {
		grace := m.graceOf(KindSession, m.softOf(h), m.cfg.Hard)
		m.open(h, ref, now, m.recall(AgeKey{Session: h.Session}, age, now, m.cfg.Hard, grace), true)
		key := AgeKey{Inode: ref.Inode}
		stamp := m.recall(key, age, now, m.cfg.Hard, grace)
		if _, own := m.told[key]; own {
			f := m.inodes[ref.Inode]
			m.lapseFile(f, stamp)
			m.settle(f.l.s)
		}
	}
	if granted != nil {
		for g := range granted {
			stamp := m.recall(AgeKey{Granted: g.ID}, age, now, g.TTL, m.graceOf(KindGranted, 0, g.TTL))
			m.grant(g.Holder, g.ID, g.TTL, now, stamp)
		}
	}
	for key := range m.told {
		m.lookSoon(key, now)
	}
}

// recall returns the stamp of a lease that may have a journalled age, of which so
// much counts that the lease lives on for what grace.left says.
func (m *Manager) recall(key AgeKey, age func(AgeKey) time.Duration, now, limit time.Duration, grace grace) time.Duration {
	if t := m.told[key]; t != nil {
		return t.stamp // the session of a file before
	}
	a := age(key)
	if a <= 0 {
		return now
	}
	counts := limit - grace.left(a, limit)
	stamp := max(now-counts, 0)
	m.told[key] = &told{age: a, stamp: stamp, beyond: a - counts}
	m.owed[key] = a
	return stamp
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
		n := &session{holder: s.holder, seq: s.seq, stream: s.stream, met: true}
		m.setMain(n)
		m.settle(n)
	}
}
