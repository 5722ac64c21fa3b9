package leasemanager

import (
	"time"

	"github.com/google/btree"
)

// UserOf returns whose session it is; false if it has neither a stream nor a file.
func (w *writers) UserOf(id SessionID) (user string, known bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	l := w.dir.get(id)
	if l == nil || l.s == nil {
		return "", false
	}
	return l.s.holder.User, true
}

// State returns how the lease of the inode stands; false if nobody has it open.
func (w *writers) State(inode uint64) (State, bool) {
	now := w.now()
	w.mu.RLock()
	defer w.mu.RUnlock()
	f := w.inodes[inode]
	if f == nil {
		return State{}, false
	}
	return w.fileState(f, now), true
}

func (tm *timing) fileState(f *file, now time.Duration) State {
	st := tm.state(f.l, now)
	st.Epoch = f.epoch
	st.Since = max(now-f.granted, 0)
	return st
}

func (tm *timing) state(l *lease, now time.Duration) State {
	soft, hard := tm.limits(l)
	stamp := tm.stamp(l)
	idle := max(now-stamp, 0)
	st := State{
		LeaseID:     l.id,
		Kind:        l.kind,
		Holder:      *l.holder(),
		Since:       max(now-l.born, 0),
		Idle:        idle,
		HardExpired: idle > hard && !tm.safeMode,
		Ending:      l.has(flagEnding),
		Files:       len(l.files),
	}
	if l.kind == KindGranted {
		st.MissedRenewal = idle > soft/2
		st.SoftExpired = st.HardExpired
		return st
	}
	// After an activation each holder has a renewal period to come back.
	every := tm.period(soft)
	softIdle := now - max(stamp, tm.activated+every-soft)
	st.Connected = l.s.stream
	st.MissedRenewal = now-max(stamp, tm.activated-every/2) > every+every/2
	st.SoftExpired = softIdle > soft && !tm.safeMode
	if !st.SoftExpired {
		// Strictly later than the limit, so never 0 while it is not takeable;
		// in safe mode at least the limit, which counts from its end.
		st.TakeableIn = soft - max(softIdle, 0) + 1
		if tm.safeMode {
			st.TakeableIn = soft + 1
		}
	}
	return st
}

// MayTake says whether by may open the inode for write. It takes nothing: that
// is Open, after the record. The State is that of the lease that has the inode,
// zero if the verdict is Free.
func (w *writers) MayTake(inode uint64, by Holder) (Verdict, State) {
	now := w.now()
	w.mu.RLock()
	defer w.mu.RUnlock()
	f := w.inodes[inode]
	if f == nil {
		return Free, State{}
	}
	st := w.fileState(f, now)
	return w.verdict(f, st, by, now), st
}

func (w *writers) verdict(f *file, st State, by Holder, now time.Duration) Verdict {
	own := st.Holder.Session == by.Session
	switch {
	case own && (f.l.kind != KindLapsing || !st.SoftExpired):
		return SameSession
	case w.safeMode:
		return Held
	case st.SoftExpired || st.Ending:
		return Takeable
	case st.Holder.sameClient(by) && (w.gone(f.l.s, now) || st.MissedRenewal) && !w.older(by.Session, f.l.s):
		return Takeable
	}
	return Held
}

// comeBack is how long sessions have after an activation to open their streams
// again: live ones do within a second or so.
const comeBack = 5 * time.Second

// gone reports whether the session's stream has gone. One of which nothing was
// heard since the activation has a moment to come back: a restart of the namenode
// must not cost a live holder its files.
func (tm *timing) gone(s *session, now time.Duration) bool {
	if s.stream {
		return false
	}
	soft, _ := tm.limits(s.main)
	return s.met || now-tm.activated > min(comeBack, tm.period(soft))
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// Moment is the present moment, for Filter.At, so that several lists can show the state at
// one moment. Leases that were renewed after it count as not idle.
func (m *Manager) Moment() time.Duration { return m.now() }

// List returns leases in the order of their ids (granted ones first), a page at
// a time, and the
// Filter.After of the next page: 0 at the end. A lease that is there all the
// while is listed exactly once, whatever else changes between pages. Leases that
// do not match are passed over without holding up others; so a page is short
// only at the end.
func (m *Manager) List(f Filter) (infos []Info, next uint64) {
	now := m.now()
	if f.At > 0 {
		now = min(now, f.At)
	}
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
	first := f.After
	if f.Of != nil && !f.Of(KindGranted) {
		first = max(first, FirstSessionLease-1) // they are all before
	}
	for after, more := first, true; more; {
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
	if l.kind != KindGranted && len(l.files) == 0 {
		return Info{}, false // its last file is closed; only Ended is missing
	}
	if f.Of != nil && !f.Of(l.kind) {
		return Info{}, false
	}
	h := l.holder()
	if f.Client != "" && h.Client != f.Client || f.Match != nil && !f.Match(*h) {
		return Info{}, false
	}
	st := m.state(l, now)
	if f.SoftExpired && !st.SoftExpired {
		return Info{}, false
	}
	info := Info{State: st, ID: l.id}
	if l.kind == KindGranted {
		info.TTL, info.Remaining = time.Duration(l.limit.Load()), m.remaining(l, now)
	}
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
	now := m.now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	return Stats{
		Leases:         m.order.Len() + m.ending.Len(),
		Connected:      m.connected,
		OldestOverdue:  m.overdue(&m.order, m.ending, now-m.cfg.Hard, m.stamp),
		Expired:        m.expired,
		Renewals:       m.dir.renewals(),
		GrantedExpired: m.grantedExpired,
		GrantedOverdue: m.overdue(&m.deadlines, m.over, now, m.deadline),
	}
}

// overdue returns how long the oldest lease is late whose stamp or deadline is
// before due.
func (m *Manager) overdue(o *order, ending *btree.BTreeG[item], due time.Duration, stamp func(*lease) time.Duration) (oldest time.Duration) {
	if it, ok := ending.Min(); ok {
		oldest = max(due-it.stamp, 0)
	}
	if m.safeMode {
		return oldest
	}
	looked := 0
	o.Ascend(func(it item) bool {
		looked++
		if it.stamp >= due || looked > maxCount {
			return false
		}
		oldest = max(oldest, due-stamp(it.l))
		return true
	})
	return oldest
}
