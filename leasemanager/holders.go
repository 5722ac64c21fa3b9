package leasemanager

// holders are the sessions: client processes that have a stream or a file.
type holders struct {
	*timing
	*index
	nextSeq             uint64
	sessions, connected int
}

// Connect notes that a stream of the session came. It takes nothing from
// anybody and renews nothing: a client whose renewals are lost counts its own
// deadline from the last one that was answered, however often it reconnects.
// Streams are not counted: of a session that comes back before its old stream is
// gone, the caller reports the end of the last one only.
func (hs *holders) Connect(h Holder) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.nextSeq++
	s := hs.add(h, hs.nextSeq)
	if !s.stream {
		hs.connected++
	}
	s.stream, s.met = true, true
	hs.settle(s)
}

// Disconnect notes that the session's stream is gone. If it has no file, the
// session is forgotten.
func (hs *holders) Disconnect(id SessionID) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	l := hs.dir.get(id)
	if l == nil || !l.s.stream {
		return
	}
	l.s.stream = false
	hs.connected--
	hs.settle(l.s)
}

// add returns the session of h, making it if it is not known.
func (hs *holders) add(h Holder, seq uint64) *session {
	if l := hs.dir.get(h.Session); l != nil {
		if s := l.s; s.files > 0 && s.holder.User != h.User {
			hs.cfg.Opened(s.holder.User, -s.files)
			hs.cfg.Opened(h.User, s.files)
		}
		l.s.holder = h
		l.limit.Store(int64(hs.softOf(h)))
		return l.s
	}
	s := &session{holder: h, seq: seq}
	hs.setMain(s)
	hs.sessions++
	return s
}

// setMain gives the session a lease of its own, without files.
func (hs *holders) setMain(s *session) {
	l := &lease{session: s.holder.Session, s: s, kind: KindSession}
	l.word.Store(flagIdle)
	l.limit.Store(int64(hs.softOf(s.holder)))
	if s.main != nil {
		l.version.Store(s.main.version.Load())
		l.look, s.main.look = s.main.look, 0
	}
	s.main = l
	hs.dir.setCurrent(l)
}

// settle is called when a session may have changed: it brings its lease's flags
// up to date, or forgets it if it has neither a stream nor a file.
func (hs *holders) settle(s *session) {
	if !s.stream && s.files == 0 && s.endings == 0 {
		if s.forgotten {
			return
		}
		s.forgotten = true
		s.main.word.Or(flagEnding) // for renewals that have looked it up before
		hs.dir.remove(s.holder.Session)
		hs.sessions--
		return
	}
	l := s.main
	l.setFlag(flagNews, !s.confirmed || s.first != nil || s.lost != nil || s.endings > 0)
	l.setFlag(flagOthers, s.others > 0)
	l.setFlag(flagIdle, len(l.files) == 0)
}

// older reports whether the session is known to have come before s. Of sessions
// known from the tree alone the order is not known.
func (hs *holders) older(id SessionID, s *session) bool {
	l := hs.dir.get(id)
	return l != nil && l.s.seq < s.seq
}

// resetSessions leaves only sessions with a stream, as if they had just come.
func (hs *holders) resetSessions() {
	var old []*session
	hs.dir.all(func(l *lease) { old = append(old, l.s) })
	for _, s := range old {
		s.main.word.Or(flagEnding) // for renewals that have looked it up before
		s.forgotten = true
		if s.files > 0 {
			hs.cfg.Opened(s.holder.User, -s.files)
		}
		if !s.stream {
			hs.dir.remove(s.holder.Session)
			hs.sessions--
			continue
		}
		n := &session{holder: s.holder, seq: s.seq, stream: s.stream, met: true}
		hs.setMain(n)
		hs.settle(n)
	}
}
