package leasemanager

import "time"

// State returns how the lease of the inode stands; false if nobody has it open.
func (m *Manager) State(inode uint64) (State, bool) {
	now := m.cfg.Clock.Mono()
	m.mu.RLock()
	defer m.mu.RUnlock()
	f := m.inodes[inode]
	if f == nil {
		return State{}, false
	}
	return m.fileState(f, now), true
}

func (m *Manager) fileState(f *file, now time.Duration) State {
	st := m.state(f.l, now)
	st.Epoch = f.epoch
	st.Since = max(now-f.granted, 0)
	return st
}

func (m *Manager) state(l *lease, now time.Duration) State {
	s := l.s
	soft, hard := m.limits(l)
	idle := max(now-m.stamp(l), 0)
	st := State{
		LeaseID:       l.id,
		Kind:          l.kind,
		Holder:        s.holder,
		Since:         max(now-l.born, 0),
		Idle:          idle,
		Connected:     s.stream,
		MissedRenewal: idle > m.renewEvery+m.renewEvery/2,
		SoftExpired:   idle > soft && !m.safeMode,
		HardExpired:   idle > hard && !m.safeMode,
		Ending:        l.has(flagEnding),
		Files:         len(l.files),
	}
	if !st.SoftExpired {
		// Strictly later than the limit, so never 0 while it is not takeable;
		// in safe mode at least the limit, which counts from its end.
		st.TakeableIn = soft - idle + 1
		if m.safeMode {
			st.TakeableIn = soft + 1
		}
	}
	return st
}

// MayTake says whether by may open the inode for write. It takes nothing: that
// is Open, after the record. The State is that of the lease that has the inode,
// zero if the verdict is Free.
func (m *Manager) MayTake(inode uint64, by Holder) (Verdict, State) {
	now := m.cfg.Clock.Mono()
	m.mu.RLock()
	defer m.mu.RUnlock()
	f := m.inodes[inode]
	if f == nil {
		return Free, State{}
	}
	st := m.fileState(f, now)
	return m.verdict(f, st, by), st
}

func (m *Manager) verdict(f *file, st State, by Holder) Verdict {
	own := st.Holder.Session == by.Session
	switch {
	case own && (f.l.kind != KindLapsing || !st.SoftExpired):
		return SameSession
	case m.safeMode:
		return Held
	case st.SoftExpired || st.Ending:
		return Takeable
	case st.Holder.sameClient(by) && (!st.Connected || st.MissedRenewal) && !m.older(by.Session, f.l.s):
		return Takeable
	}
	return Held
}

// older reports whether the session is known to have come before s. Of sessions
// known from the tree alone the order is not known.
func (m *Manager) older(id SessionID, s *session) bool {
	l := m.dir.get(id)
	return l != nil && l.s.seq < s.seq
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// List returns leases in the order of their ids, a page at a time, and the
// Filter.After of the next page: 0 at the end. A lease that is there all the
// while is listed exactly once, whatever else changes between pages. Leases that
// do not match are passed over without holding up others; so a page is short
// only at the end.
func (m *Manager) List(f Filter) (infos []Info, next uint64) {
	now := m.cfg.Clock.Mono()
	limit := f.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	limit = min(limit, maxPage)
	if f.LeaseID != 0 {
		m.mu.RLock()
		defer m.mu.RUnlock()
		it, ok := m.ids.Get(item{id: f.LeaseID})
		if ok && it.id > f.After {
			if info, ok := m.info(it.l, f, now); ok {
				infos = append(infos, info)
			}
		}
		return infos, 0
	}
	for after, more := f.After, true; more; {
		infos, after, more = m.listSome(infos, after, limit, f, now)
		if more && len(infos) == limit {
			return infos, after
		}
	}
	return infos, 0
}

// listSome adds to a page what a few leases after the id give. It returns the
// last id it looked at, and whether there are leases behind it.
func (m *Manager) listSome(infos []Info, after uint64, limit int, f Filter, now time.Duration) ([]Info, uint64, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	more, looked := false, 0
	m.ids.AscendGreaterOrEqual(item{id: after + 1}, func(it item) bool {
		if looked == portion || len(infos) == limit {
			more = true
			return false
		}
		looked++
		after = it.id
		if info, ok := m.info(it.l, f, now); ok {
			infos = append(infos, info)
		}
		return true
	})
	return infos, after, more
}

func (m *Manager) info(l *lease, f Filter, now time.Duration) (Info, bool) {
	h := &l.s.holder
	if f.Client != "" && h.Client != f.Client || f.Session != nil && h.Session != *f.Session {
		return Info{}, false
	}
	st := m.state(l, now)
	if f.SoftExpired && !st.SoftExpired {
		return Info{}, false
	}
	info := Info{State: st, ID: l.id}
	if n := min(f.MaxFiles, len(l.files)); n > 0 {
		info.Refs = make([]Ref, 0, n)
		for _, f := range l.files[:n] {
			info.Refs = append(info.Refs, f.ref())
		}
	}
	return info, true
}

// maxCount is how many leases Stats looks at.
const maxCount = 1000

// Stats returns figures; it costs a look at up to 1,000 leases.
func (m *Manager) Stats() Stats {
	now := m.cfg.Clock.Mono()
	m.mu.RLock()
	defer m.mu.RUnlock()
	st := Stats{
		Leases:    m.ids.Len(),
		Ending:    m.ending.Len(),
		Lapsing:   m.lapsing,
		Sessions:  m.sessions,
		Connected: m.connected,
		Files:     len(m.inodes),
		Expired:   m.expired,
		NotEnded:  m.notEnded,
		Renewals:  m.dir.renewals(),
		Suspended: m.safeMode,
	}
	overdue := func(it item, stamp time.Duration) time.Duration {
		_, hard := m.limits(it.l)
		return now - stamp - hard
	}
	if it, ok := m.ending.Min(); ok {
		st.OldestOverdue = max(overdue(it, it.stamp), 0)
	}
	looked := 0
	m.order.Ascend(func(it item) bool {
		looked++
		if overdue(it, it.stamp) <= 0 || looked > maxCount {
			return false
		}
		if d := overdue(it, m.stamp(it.l)); d > 0 {
			st.WouldExpire++
			if !m.safeMode {
				st.OldestOverdue = max(st.OldestOverdue, d)
			}
		}
		return true
	})
	return st
}
