package leasemanager

import "time"

// portion is how many files are looked at before the lock is released and taken
// again.
const portion = 1024

// Renew renews the session's lease, whatever the number of its files, and tells
// what became of them. It never creates a lease. A version that is confirmed,
// with nothing to tell: constant time, no allocation, no lock but a shard's.
func (w *writers) Renew(r Renewal) RenewResult {
	now := w.now()
	sh, hash := w.dir.hash(r.Session)
	sh.renewals.Add(1)
	l := sh.find(&r.Session, hash)
	if l != nil && !r.HasSet && r.Version == l.version.Load() && l.renew(now, flagEnding|flagNews|flagIdle) {
		res := w.result(time.Duration(l.limit.Load()))
		w.promise(l, &res)
		return res
	}
	return w.renewSlow(now, r)
}

func (w *writers) renewSlow(now time.Duration, r Renewal) RenewResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.dir.get(r.Session)
	if l == nil {
		res := w.result(w.cfg.Soft)
		w.renewUnknown(r, &res)
		return res
	}
	s := l.s
	res := w.result(time.Duration(l.limit.Load()))
	res.Ending = s.endings > 0
	if !l.has(flagEnding) && !w.renewKnown(now, s, r, &res) {
		res.WantSet = true
	}
	w.settle(s)
	s.tell(&res)
	if res.Ending || res.WantSet {
		w.hurry(&res)
	}
	w.promise(s.main, &res)
	return res
}

// renewUnknown answers a session of which nothing is known.
func (w *writers) renewUnknown(r Renewal, res *RenewResult) {
	res.UnknownSession = true
	for i, ref := range r.Open {
		if i%portion == portion-1 {
			w.breathe()
		}
		f := w.inodes[ref.Inode]
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
func (w *writers) renewKnown(now time.Duration, s *session, r Renewal, res *RenewResult) bool {
	l := s.main
	old := w.stamp(l)
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
		if !w.takeSet(now, old, s, r, res) {
			return false
		}
	}
	return w.lapse(now, old, w.period(res.Soft), s)
}

// takeSet compares the session's set with what it has. It returns false if it
// was overtaken by another set, or by the end of the lease.
func (w *writers) takeSet(now, old time.Duration, s *session, r Renewal, res *RenewResult) bool {
	l := s.main
	every := w.period(res.Soft)
	w.pass++
	s.pass = w.pass
	s.confirmed = false // until it is whole
	l.version.Store(r.Version)
	w.settle(s)
	before := uint64(0) // losses up to this one may be dropped if not listed
	if s.lost != nil {
		before, s.lost.spilt = s.lost.seq, false
	}

	for i, ref := range r.Open {
		if i%portion == portion-1 && !w.pause(s, l) {
			return false
		}
		w.takeRef(now, s, ref, res)
	}
	// From the end: what moves to a lower index meanwhile was seen already.
	for i, n := len(l.files)-1, 1; i >= 0; i, n = i-1, n+1 {
		if n%portion == 0 && !w.pause(s, l) {
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
			w.lapseFile(f, old)
		default:
			enqueue(f, now)
		}
	}

	s.confirmed = len(res.Unknown) == 0 && (s.lost == nil || !s.lost.spilt)
	s.dropTold(before)
	return true
}

// takeRef takes one entry of a set.
func (w *writers) takeRef(now time.Duration, s *session, ref Ref, res *RenewResult) {
	f := w.inodes[ref.Inode]
	if f != nil && f.l.s == s && f.epoch == ref.Epoch {
		if f.l != s.main && !f.l.has(flagEnding) {
			s.main.renew(now, 0)
			w.move(f, s.main)
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
func (w *writers) lapse(now, old, every time.Duration, s *session) bool {
	l := s.main
	for n := 1; s.first != nil && now-s.first.entered > every; n++ {
		if n%portion == 0 {
			if !w.pause(s, l) {
				return false
			}
			continue
		}
		if f := s.first; f.l == l {
			w.lapseFile(f, old)
		} else {
			dequeue(f) // of a lease that is ending, or was
		}
	}
	return true
}

// lapseFile moves f to a lease of its own with an old stamp.
func (w *writers) lapseFile(f *file, stamp time.Duration) {
	l := &lease{session: f.l.session, s: f.l.s, kind: KindLapsing}
	l.renew(stamp, 0)
	w.move(f, l)
}

// tell adds to the answer what the session has lost; of more than an answer holds, it
// asks for another set.
func (s *session) tell(res *RenewResult) {
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

// pause is breathe within the pass of a set of s. It returns false if the pass
// has to be given up: another set came, or the lease is not the same any more.
func (w *writers) pause(s *session, l *lease) bool {
	pass := s.pass
	w.settle(s)
	w.breathe()
	return !s.forgotten && s.pass == pass && s.main == l && !l.has(flagEnding)
}
