package leasemanager

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/clock"
)

// The model is the rules of the package comment over plain maps, everything
// looked at each time.
type model struct {
	activated time.Duration
	now       time.Duration
	safeMode  bool
	files     map[uint64]*modelFile
	sessions  map[SessionID]*modelSession
	leases    map[*modelLease]bool
	seq       uint64
}

type modelLease struct {
	s           *modelSession
	stamp       time.Duration
	ending, out bool
	ended       time.Duration // the stamp that it had when its end began
}

type modelFile struct {
	epoch            uint64
	l                *modelLease
	granted, entered time.Duration
	waiting          bool
}

type modelSession struct {
	h         Holder
	seq       uint64
	stream    bool
	met       bool // seen since the activation
	main      *modelLease
	version   uint64
	confirmed bool
	lost      map[Ref]string
}

func newModel() *model {
	return &model{files: map[uint64]*modelFile{}, sessions: map[SessionID]*modelSession{}, leases: map[*modelLease]bool{}}
}

func (m *model) filesOf(l *modelLease) (refs []Ref) {
	for i, f := range m.files {
		if f.l == l {
			refs = append(refs, Ref{i, f.epoch})
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return int(a.Inode) - int(b.Inode) }) //nolint:gosec // small
	return refs
}

func (m *model) session(h Holder) *modelSession {
	m.seq++
	s := m.sessions[h.Session]
	if s == nil {
		s = &modelSession{h: h, seq: m.seq, lost: map[Ref]string{}}
		m.sessions[h.Session] = s
	}
	return s
}

// live stamps and returns the lease for the session's files.
func (m *model) live(s *modelSession) *modelLease {
	if s.main == nil || s.main.ending {
		s.main = &modelLease{s: s}
		m.leases[s.main] = true
	}
	s.main.stamp = m.now
	return s.main
}

// tidy forgets what has no file and no stream.
func (m *model) tidy() {
	for l := range m.leases {
		if len(m.filesOf(l)) == 0 && !l.out {
			delete(m.leases, l)
			if l.s.main == l {
				l.s.main = nil
			}
		}
	}
	for id, s := range m.sessions {
		used := s.stream
		for l := range m.leases {
			used = used || l.s == s
		}
		if !used {
			delete(m.sessions, id)
		}
	}
}

func (m *model) open(h Holder, inode, epoch uint64) {
	f := m.files[inode]
	if f != nil && f.epoch > epoch {
		return
	}
	s := m.session(h)
	s.met = true
	if f != nil && f.l.s == s && f.epoch == epoch {
		if !f.l.ending {
			f.l = m.live(s)
		}
		m.tidy()
		return
	}
	if f != nil && f.l.s != s {
		f.l.s.lost[Ref{inode, f.epoch}] = ReasonTakenOver
	}
	m.files[inode] = &modelFile{epoch: epoch, l: m.live(s), granted: m.now, entered: m.now, waiting: true}
	m.tidy()
}

func (m *model) close(inode, epoch uint64, reason string, by *Holder) {
	f := m.files[inode]
	if f == nil || f.epoch != epoch {
		return
	}
	if reason != ReasonClosed || by != nil && by.Session != f.l.s.h.Session {
		f.l.s.lost[Ref{inode, epoch}] = reason
	}
	delete(m.files, inode)
	m.tidy()
}

func (m *model) touch(id SessionID, inode uint64) bool {
	s := m.sessions[id]
	if s == nil {
		return false
	}
	if f := m.files[inode]; f != nil && f.l.s == s && f.l != s.main {
		if f.l.ending {
			return false
		}
		f.l, f.waiting = m.live(s), false
		m.tidy()
		return true
	}
	if s.main == nil || s.main.ending {
		return false
	}
	s.main.stamp = m.now
	return true
}

func (m *model) lapse(f *modelFile, stamp time.Duration) {
	l := &modelLease{s: f.l.s, stamp: stamp}
	m.leases[l] = true
	f.l, f.waiting = l, false
}

// renew returns an answer whose lists are not in the right order.
func (m *model) renew(r Renewal) (res RenewResult) {
	s := m.sessions[r.Session]
	if s == nil {
		res.UnknownSession = true
		for _, ref := range r.Open {
			if f := m.files[ref.Inode]; f != nil && f.epoch > ref.Epoch {
				res.Lost = append(res.Lost, Lost{Ref: ref, Reason: ReasonTakenOver})
			} else {
				res.Unknown = append(res.Unknown, ref)
			}
		}
		return res
	}
	defer func() {
		m.tidy()
		for ref, reason := range s.lost {
			res.Lost = append(res.Lost, Lost{Ref: ref, Reason: reason})
		}
	}()
	for l := range m.leases {
		res.Ending = res.Ending || l.s == s && l.ending
	}
	if s.main != nil && s.main.ending {
		return res
	}
	old := time.Duration(0)
	if s.main != nil {
		old, s.main.stamp = s.main.stamp, m.now
	}
	if !r.HasSet && (!s.confirmed || r.Version != s.version) {
		res.WantSet = s.main != nil || len(s.lost) > 0 || r.Version != 0
		return res
	}
	if r.HasSet && r.Version < s.version {
		return res
	}
	if r.HasSet {
		m.set(s, r, old, &res)
	}
	for _, f := range m.files {
		if f.l == s.main && f.waiting && m.now-f.entered > every {
			m.lapse(f, old)
		}
	}
	return res
}

func (m *model) set(s *modelSession, r Renewal, old time.Duration, res *RenewResult) {
	s.version = r.Version
	seen := map[*modelFile]bool{}
	keep := map[Ref]string{}
	for _, ref := range r.Open {
		f := m.files[ref.Inode]
		switch {
		case f != nil && f.l.s == s && f.epoch == ref.Epoch:
			if f.l != s.main && !f.l.ending {
				f.l = m.live(s)
			}
			f.waiting = false
			seen[f] = true
		case s.lost[ref] != "":
			keep[ref] = s.lost[ref]
		case f != nil && f.l.s != s && f.epoch > ref.Epoch:
			keep[ref] = ReasonTakenOver
		default:
			res.Unknown = append(res.Unknown, ref)
		}
	}
	for _, f := range m.files {
		if f.l != s.main || seen[f] || f.waiting {
			continue
		}
		if m.now-f.granted > every {
			m.lapse(f, old)
		} else {
			f.waiting, f.entered = true, m.now
		}
	}
	s.confirmed = len(res.Unknown) == 0
	s.lost = keep
}

func (m *model) verdict(inode uint64, by Holder) Verdict {
	f := m.files[inode]
	if f == nil {
		return Free
	}
	s := f.l.s
	idle := m.now - f.l.stamp
	past := idle > soft && !m.safeMode
	asker := m.sessions[by.Session]
	older := asker != nil && asker.seq < s.seq
	switch {
	case s.h.Session == by.Session && (f.l == s.main || !past):
		return SameSession
	case m.safeMode:
		return Held
	case past || f.l.ending:
		return Takeable
	case s.h.Client == by.Client && by.Client != "" && (!s.stream && (s.met || m.now-m.activated > min(comeBack, every)) || idle > every*3/2) && !older:
		return Takeable
	}
	return Held
}

func (m *model) expired() (leases []*modelLease) {
	for l := range m.leases {
		if !l.ending && !m.safeMode && m.now-l.stamp > hard {
			leases = append(leases, l)
		}
	}
	return leases
}

// Scenario 4: random operations on the manager and on the model.
func TestScenario04Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{t: t, model: newModel(), clock: new(clock.Fake), whole: true}
		r.opened = map[string]int{}
		r.m = New(Config{Clock: r.clock, Soft: soft, Hard: hard, Opened: func(user string, n int) { r.opened[user] += n }})
		for i := range uint64(4) {
			r.holders = append(r.holders, client([]string{"a", "b", "a", ""}[i], i+1))
		}
		r.holders[1].User = "v"
		t.Repeat(map[string]func(*rapid.T){
			"":        r.check,
			"advance": r.advance,
			"connect": func(t *rapid.T) {
				h := r.holder(t)
				s := r.model.session(h)
				s.stream, s.met = true, true
				r.m.Connect(h)
			},
			"disconnect": func(t *rapid.T) {
				h := r.holder(t)
				if s := r.model.sessions[h.Session]; s != nil && s.stream {
					s.stream = false
					r.model.tidy()
				}
				r.m.Disconnect(h.Session)
			},
			"open":     r.open,
			"open2":    r.open,
			"close":    r.close,
			"touch":    r.touch,
			"renew":    r.renew,
			"renew2":   r.renew,
			"expire":   r.expire,
			"answer":   r.answer,
			"answer2":  r.answer,
			"safeMode": r.safeMode,
			"rebuild":  r.rebuild,
			"ages":     r.ages,
		})
	})
}

// ages journals the ages that there are; they change nothing that can be seen.
func (r *run) ages(t *rapid.T) {
	ages := r.m.CheckAges(100)
	for _, a := range ages {
		var l *modelLease
		if f := r.model.files[a.Inode]; a.Inode != 0 && f != nil && f.l != f.l.s.main {
			l = f.l
		} else if s := r.model.sessions[a.Session]; a.Inode == 0 && s != nil {
			l = s.main
		}
		missed := func() bool { return a.Age > every*3/2 || l.stamp <= r.model.activated && a.Age >= every/10 }
		if a.Age > 0 && (l == nil || l.ending || a.Age != r.model.now-l.stamp || !missed()) || r.model.safeMode {
			t.Fatalf("%+v of %+v", a, l)
		}
	}
	r.m.AgesJournalled(ages)
}

type run struct {
	t       *rapid.T
	m       *Manager
	model   *model
	clock   *clock.Fake
	holders []Holder
	epoch   uint64
	out     []Ending
	outOf   []*modelLease
	whole   bool           // the last walk came to its end
	gone    []Ref          // some that were open once
	opened  map[string]int // what Config.Opened was told, by user
}

func (r *run) holder(t *rapid.T) Holder { return rapid.SampledFrom(r.holders).Draw(t, "holder") }
func (r *run) inode(t *rapid.T) uint64  { return rapid.Uint64Range(1, 8).Draw(t, "inode") }

func (r *run) advance(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{1, every / 2, every, every + 1, soft, hard - soft, hard, hard + 1}).Draw(t, "d")
	r.clock.Advance(d)
	r.model.now += d
}

func (r *run) open(t *rapid.T) {
	h, inode := r.holder(t), r.inode(t)
	epoch := r.epoch + 1
	if f := r.model.files[inode]; f != nil && rapid.IntRange(0, 4).Draw(t, "old") == 0 {
		epoch = f.epoch
		if f.l.s.h != h {
			epoch-- // a late one
		}
	} else {
		r.epoch++
		r.gone = append(r.gone, Ref{inode, epoch})
	}
	r.model.open(h, inode, epoch)
	r.m.Open(h, inode, epoch)
}

func (r *run) close(t *rapid.T) {
	inode := r.inode(t)
	epoch := r.epoch
	if f := r.model.files[inode]; f != nil {
		epoch = f.epoch
	}
	reason := rapid.SampledFrom([]string{ReasonClosed, "deleted"}).Draw(t, "reason")
	var by *Holder
	if rapid.Bool().Draw(t, "by") {
		h := r.holder(t)
		by = &h
	}
	r.model.close(inode, epoch, reason, by)
	r.m.Close(inode, epoch, reason, by)
}

func (r *run) touch(t *rapid.T) {
	h, inode := r.holder(t), r.inode(t)
	want := r.model.touch(h.Session, inode)
	if got := r.m.Touch(h.Session, inode); got != want {
		t.Fatalf("touch: %v, want %v", got, want)
	}
}

func (r *run) renew(t *rapid.T) {
	q := Renewal{Session: r.holder(t).Session}
	s := r.model.sessions[q.Session]
	if s != nil {
		q.Version = s.version
	}
	if rapid.IntRange(0, 2).Draw(t, "set") > 0 {
		q.HasSet = true
		q.Version++
		for i := range uint64(9) {
			if f := r.model.files[i]; f != nil && f.l.s == s && rapid.IntRange(0, 3).Draw(t, "in") > 0 {
				q.Open = append(q.Open, Ref{i, f.epoch})
			}
		}
		if len(r.gone) > 0 && rapid.Bool().Draw(t, "more") {
			if g := rapid.SampledFrom(r.gone).Draw(t, "gone"); !slices.Contains(q.Open, g) {
				q.Open = append(q.Open, g)
			}
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		q.Version -= min(q.Version, 2)
	}
	want := r.model.renew(q)
	got := r.m.Renew(q)
	text := func(x RenewResult) string {
		lost := make([]string, 0, len(x.Lost))
		for _, l := range x.Lost {
			lost = append(lost, fmt.Sprint(l.Ref, l.Reason))
		}
		slices.Sort(lost)
		return fmt.Sprint(lost, x.Unknown, x.UnknownSession, x.WantSet, x.Ending)
	}
	if text(got) != text(want) {
		t.Fatalf("renew %+v: %v, want %v", q, text(got), text(want))
	}
}

func (r *run) expire(t *rapid.T) {
	n := rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "n")
	want := r.model.expired()
	ends := r.m.Expire(n)
	for _, e := range ends {
		i := slices.IndexFunc(want, func(l *modelLease) bool {
			return slices.Equal(r.model.filesOf(l), sorted(e.Files)) && l.s.h == e.Holder
		})
		if i < 0 {
			t.Fatalf("%+v is not past its limit", e)
		}
		l := want[i]
		want = slices.Delete(want, i, i+1)
		l.ending, l.out, l.ended = true, true, l.stamp
		r.out, r.outOf = append(r.out, e), append(r.outOf, l)
	}
	if len(ends) > n || len(ends) < n && r.whole && len(want) > 0 {
		t.Fatalf("%d of at most %d, and %d more are past their limit", len(ends), n, len(want))
	}
	if !r.model.safeMode {
		r.whole = len(ends) < n
	}
}

func sorted(refs []Ref) []Ref {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b Ref) int { return int(a.Inode) - int(b.Inode) }) //nolint:gosec // small
	return refs
}

func (r *run) answer(t *rapid.T) {
	if len(r.out) == 0 {
		t.Skip()
	}
	e, l := r.out[0], r.outOf[0]
	r.out, r.outOf = r.out[1:], r.outOf[1:]
	if rapid.Bool().Draw(t, "failed") {
		l.out, l.ending = false, false
		r.model.tidy()
		r.m.NotEnded(e.LeaseID)
		return
	}
	for _, f := range e.Files {
		r.model.close(f.Inode, f.Epoch, "expired", nil)
		r.m.Close(f.Inode, f.Epoch, "expired", nil)
	}
	l.out = false
	r.model.tidy()
	r.m.Ended(e.LeaseID)
}

func (r *run) safeMode(*rapid.T) {
	if !r.model.safeMode {
		r.m.Suspend()
	} else {
		for l := range r.model.leases {
			l.stamp = r.model.now
		}
		r.m.Resume()
	}
	r.model.safeMode = !r.model.safeMode
}

func (r *run) rebuild(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip()
	}
	old := r.model
	r.model = newModel()
	r.model.now, r.model.safeMode, r.model.seq, r.model.activated = old.now, old.safeMode, old.seq, old.now
	r.out, r.outOf, r.whole = nil, nil, true
	for id, s := range old.sessions {
		if s.stream {
			r.model.sessions[id] = &modelSession{h: s.h, seq: s.seq, stream: s.stream, met: true, lost: map[Ref]string{}}
		}
	}
	r.m.Rebuild(func(yield func(Holder, Ref) bool) {
		for i, f := range old.files {
			known := r.model.sessions[f.l.s.h.Session] != nil
			r.model.open(f.l.s.h, i, f.epoch)
			s := r.model.sessions[f.l.s.h.Session]
			s.met = s.stream
			if !known {
				s.seq = 0
			}
			if !yield(f.l.s.h, Ref{i, f.epoch}) {
				return
			}
		}
	}, nil, nil)
}

// check compares everything that can be seen.
func (r *run) check(t *rapid.T) {
	open := map[string]int{}
	for _, f := range r.m.inodes {
		open[f.l.s.holder.User]++
	}
	maps.DeleteFunc(r.opened, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(r.opened, open) {
		t.Fatalf("users have files open as %v, and it was told of %v", open, r.opened)
	}
	for _, w := range r.m.Check() {
		t.Error(w)
	}
	for inode := range uint64(10) {
		f := r.model.files[inode]
		st, ok := r.m.State(inode)
		if ok != (f != nil) {
			t.Fatalf("inode %d: open is %v", inode, ok)
		}
		for _, h := range r.holders {
			if got, _ := r.m.MayTake(inode, h); got != r.model.verdict(inode, h) {
				t.Fatalf("inode %d by %s/%d: %v, want %v", inode, h.Client, h.PID, got, r.model.verdict(inode, h))
			}
		}
		if f == nil {
			continue
		}
		l := f.l
		idle := r.model.now - l.stamp
		want := State{
			LeaseID: st.LeaseID, Holder: l.s.h, Epoch: f.epoch, Since: r.model.now - f.granted, Idle: idle,
			Connected: l.s.stream, MissedRenewal: idle > every*3/2, Ending: l.ending, Files: len(r.model.filesOf(l)),
			SoftExpired: idle > soft && !r.model.safeMode, HardExpired: idle > hard && !r.model.safeMode,
		}
		if l != l.s.main {
			want.Kind = KindLapsing
		}
		if !want.SoftExpired {
			want.TakeableIn = soft + 1
			if !r.model.safeMode {
				want.TakeableIn -= idle
			}
		}
		if st != want {
			t.Fatalf("inode %d:\n%+v, want\n%+v", inode, st, want)
		}
	}
	infos, _ := r.m.List(Filter{})
	listed := 0 // not one whose files are closed, and whose end is not noted yet
	for l := range r.model.leases {
		if len(r.model.filesOf(l)) > 0 {
			listed++
		}
	}
	st := figuresOf(r.m)
	if len(infos) != listed || st.Leases != len(r.model.leases) || st.Files != len(r.model.files) ||
		st.Sessions != len(r.model.sessions) || (st.OldestOverdue > 0) != r.overdue() {
		t.Fatalf("%d leases listed, %+v; want %d of %d, %d sessions, overdue %v", len(infos), st, listed, len(r.model.leases), len(r.model.sessions), r.overdue())
	}
	if !r.model.safeMode && r.whole && len(r.model.expired()) > 0 && r.m.Sleep() > failedSleep+1 {
		t.Fatalf("sleeps %v with leases past their limit", r.m.Sleep())
	}
}

func (r *run) overdue() bool {
	for l := range r.model.leases {
		if l.ending && r.model.now-l.ended > hard {
			return true
		}
	}
	return len(r.model.expired()) > 0
}
