package leasemanager

import "time"

// portion is how many files are looked at before the lock is released and taken
// again.
const portion = 1024

// Renew renews the session's lease, whatever the number of its files, and tells
// what became of them. It never creates a lease. A version that is confirmed,
// with nothing to tell: constant time, no allocation, no lock but a shard's.
func (m *Manager) Renew(r Renewal) RenewResult {
	now := m.now()
	sh, hash := m.dir.hash(r.Session)
	sh.renewals.Add(1)
	l := sh.find(&r.Session, hash)
	if l != nil && !r.HasSet && r.Version == l.version.Load() && l.renew(now, flagEnding|flagNews|flagIdle) {
		res := m.result(time.Duration(l.limit.Load()))
		m.promise(l, &res)
		return res
	}
	return m.renewSlow(now, r)
}

// result is the answer to a session with the soft limit, with nothing to tell:
// to renew after the renewal period, less up to a fifth.
func (m *Manager) result(soft time.Duration) RenewResult {
	next := m.period(soft)
	if m.cfg.Jitter != nil {
		next -= time.Duration(m.cfg.Jitter() * float64(next/5))
	}
	return RenewResult{Next: next, Soft: soft, Hard: m.cfg.Hard}
}

// promise lowers the limits in the answer to a renewal of the lease while the
// journal has an age of it: to what a successor that finds that age would give.
// It asks for an early renewal, which finds them whole again. The lease's stamp
// is to be set before.
func (m *Manager) promise(l *lease, res *RenewResult) {
	owed := time.Duration(l.owes.Load())
	if owed == 0 {
		return
	}
	period := m.period(res.Soft)
	res.Next = min(res.Next, period/10)
	res.Hard = m.graceOf(KindSession, res.Soft, 0).left(owed, res.Hard)
	res.Soft = max(res.Soft-owed, period)
}

// hurry is for an answer that leaves more to be told.
func (m *Manager) hurry(res *RenewResult) {
	res.Next = min(m.period(res.Soft)/10, time.Second)
}

func (m *Manager) renewSlow(now time.Duration, r Renewal) RenewResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.dir.get(r.Session)
	if l == nil {
		res := m.result(m.cfg.Soft)
		m.renewUnknown(r, &res)
		return res
	}
	s := l.s
	res := m.result(time.Duration(l.limit.Load()))
	res.Ending = s.endings > 0
	if !l.has(flagEnding) && !m.renewKnown(now, s, r, &res) {
		res.WantSet = true
	}
	m.settle(s)
	m.tell(s, &res)
	if res.Ending || res.WantSet {
		m.hurry(&res)
	}
	m.promise(s.main, &res)
	return res
}

// renewUnknown answers a session of which nothing is known.
func (m *Manager) renewUnknown(r Renewal, res *RenewResult) {
	res.UnknownSession = true
	for i, ref := range r.Open {
		if i%portion == portion-1 {
			m.breathe()
		}
		f := m.inodes[ref.Inode]
		switch {
		case f != nil && f.epoch > ref.Epoch && len(res.Lost) < tellLost:
			by := f.l.s.holder
			res.Lost = append(res.Lost, Lost{Ref: ref, Reason: ReasonTakenOver, By: &by})
		case len(res.Unknown) < tellUnknown:
			res.Unknown = append(res.Unknown, ref)
		}
	}
}

// renewKnown stamps the session's lease and takes its set. It returns false if
// it had to give up half-way.
func (m *Manager) renewKnown(now time.Duration, s *session, r Renewal, res *RenewResult) bool {
	l := s.main
	old := m.stamp(l)
	if len(l.files) > 0 {
		l.renew(now, 0)
	}
	switch {
	case !r.HasSet && (!s.confirmed || r.Version != l.version.Load()):
		// A session without files and version has nothing to send.
		res.WantSet = len(l.files) > 0 || s.lost != nil || r.Version != 0
		return true
	case r.HasSet && r.Version < l.version.Load():
		return true // overtaken by a later one
	case r.HasSet:
		if !m.takeSet(now, old, s, r, res) {
			return false
		}
	}
	return m.lapse(now, old, m.period(res.Soft), s)
}

// takeSet compares the session's set with what it has. It returns false if it
// was overtaken by another set, or by the end of the lease.
func (m *Manager) takeSet(now, old time.Duration, s *session, r Renewal, res *RenewResult) bool {
	l := s.main
	every := m.period(res.Soft)
	m.pass++
	s.pass = m.pass
	s.confirmed = false // until it is whole
	l.version.Store(r.Version)
	m.settle(s)
	before := uint64(0) // losses up to this one may be dropped if not listed
	if s.lost != nil {
		before, s.lost.spilt = s.lost.seq, false
	}

	for i, ref := range r.Open {
		if i%portion == portion-1 && !m.pause(s, l) {
			return false
		}
		m.takeRef(now, s, ref, res)
	}
	// From the end: what moves to a lower index meanwhile was seen already.
	for i, n := len(l.files)-1, 1; i >= 0; i, n = i-1, n+1 {
		if n%portion == 0 && !m.pause(s, l) {
			return false
		}
		if i >= len(l.files) {
			i = len(l.files)
			continue
		}
		f := l.files[i]
		switch {
		case f.seen == s.pass || f.queued:
		case now-f.granted > every:
			m.lapseFile(f, old)
		default:
			enqueue(f, now)
		}
	}

	s.confirmed = len(res.Unknown) == 0 && (s.lost == nil || !s.lost.spilt)
	s.dropTold(before)
	return true
}

// takeRef takes one entry of a set.
func (m *Manager) takeRef(now time.Duration, s *session, ref Ref, res *RenewResult) {
	f := m.inodes[ref.Inode]
	if f != nil && f.l.s == s && f.epoch == ref.Epoch {
		if f.l != s.main && !f.l.has(flagEnding) {
			s.main.renew(now, 0)
			m.move(f, s.main)
		}
		dequeue(f)
		f.seen = s.pass
		return
	}
	if s.lost != nil {
		if i, ok := s.lost.index[ref]; ok {
			s.lost.list[i].seen = s.pass
			return
		}
	}
	if f != nil && f.l.s != s && f.epoch > ref.Epoch {
		s.lose(ref, ReasonTakenOver, &f.l.s.holder, s.pass)
		return
	}
	if len(res.Unknown) < tellUnknown {
		res.Unknown = append(res.Unknown, ref)
	}
}

// dropTold drops the losses up to the given one that the last set has not.
func (s *session) dropTold(before uint64) {
	if s.lost == nil {
		return
	}
	keep := s.lost.list[:0]
	clear(s.lost.index)
	for _, n := range s.lost.list {
		if n.seen == s.pass || n.seq > before {
			s.lost.index[n.Ref] = len(keep)
			keep = append(keep, n)
		}
	}
	s.lost.list = keep
	if len(keep) == 0 {
		s.lost = nil
	}
}

// lapse gives leases of their own to the files that no set has listed for more
// than a renewal period. It returns false if it had to give up half-way.
func (m *Manager) lapse(now, old, every time.Duration, s *session) bool {
	l := s.main
	for n := 1; s.first != nil && now-s.first.entered > every; n++ {
		if n%portion == 0 {
			if !m.pause(s, l) {
				return false
			}
			continue
		}
		if f := s.first; f.l == l {
			m.lapseFile(f, old)
		} else {
			dequeue(f) // of a lease that is ending, or was
		}
	}
	return true
}

// lapseFile moves f to a lease of its own with an old stamp.
func (m *Manager) lapseFile(f *file, stamp time.Duration) {
	l := &lease{session: f.l.session, s: f.l.s, kind: KindLapsing}
	l.renew(stamp, 0)
	m.move(f, l)
}

// tell adds to the answer what the session has lost; of more than an answer holds, it
// asks for another set.
func (m *Manager) tell(s *session, res *RenewResult) {
	if len(res.Unknown) == tellUnknown {
		res.WantSet = true
	}
	if s.lost == nil {
		return
	}
	list := s.lost.list
	if len(list) > tellLost || s.lost.spilt {
		list = list[:min(len(list), tellLost)]
		res.WantSet = true
	}
	for i := range list {
		res.Lost = append(res.Lost, list[i].Lost)
	}
}

// breathe lets others have the lock.
func (m *Manager) breathe() {
	m.mu.Unlock()
	m.mu.Lock()
}

// pause is breathe within the pass of a set of s. It returns false if the pass
// has to be given up: another set came, or the lease is not the same any more.
func (m *Manager) pause(s *session, l *lease) bool {
	pass := s.pass
	m.settle(s)
	m.breathe()
	return !s.forgotten && s.pass == pass && s.main == l && !l.has(flagEnding)
}
