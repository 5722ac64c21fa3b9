package leasemanager

import (
	"iter"
	"time"
)

// Manager is the table of leases of one active namenode. See the package
// comment for its rules. All methods are safe for concurrent use.
type Manager struct {
	// The parts: each knows none but those before it, and the lock of index guards
	// all of them. The last two do not know each other.
	*timing
	*index
	*ages
	*holders
	*writers
	*grantedLeases
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
	if c.AgeEvery <= 0 {
		c.AgeEvery = DefaultAgeEvery
	}
	if c.Opened == nil {
		c.Opened = func(string, int) {}
	}
	tm, x := &timing{cfg: c}, newIndex()
	ag, hs := &ages{timing: tm, index: x}, &holders{timing: tm, index: x}
	m := &Manager{
		tm, x, ag, hs,
		&writers{timing: tm, index: x, holders: hs, ages: ag, nextID: FirstSessionLease - 1},
		&grantedLeases{timing: tm, index: x, ages: ag},
	}
	m.clear()
	return m
}

// clear forgets all files and leases, but for the sessions that have a stream.
func (m *Manager) clear() {
	m.index.clear()
	m.ages.clear()
	m.writers.clear()
	m.resetSessions()
	m.grantedLeases.clear()
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
