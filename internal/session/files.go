package session

import (
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Key names one opening of a file for write.
type Key struct{ Inode, Epoch uint64 }

// File is a file that is open for write, as whoever writes it has it. It is
// comparable.
type File interface {
	Key() Key
	// Stamp is when the file's lease was certainly good last.
	Stamp() *clock.Stamp
	// Closing reports whether the file's end is the matter of a call under way.
	Closing() bool
	// Lose tells that the lease is lost. The first cause counts.
	Lose(why *fserror.Error)
}

// Now reads the clocks that leases are held by.
func (s *Session) Now() clock.Reading { return clock.Read(s.cfg.Clock) }

// SoftLimit and HardLimit are those of a lease, as the namenode has them.
func (s *Session) SoftLimit() time.Duration { return time.Duration(s.soft.Load()) }

// HardLimit is when a lease is over, see SoftLimit.
func (s *Session) HardLimit() time.Duration { return time.Duration(s.hard.Load()) }

// Limit is where the holder's hard limit ends, before the grantor's.
func (s *Session) Limit() time.Duration {
	hard := s.HardLimit()
	if hard <= 0 {
		return 1<<63 - 1
	}
	return clock.Sure(hard)
}

func (s *Session) setLimits(soft, hard int64) {
	if soft > 0 {
		s.soft.Store(int64(ms(soft)))
	}
	if hard > 0 {
		s.hard.Store(int64(ms(hard)))
	}
}

// Add adds a file whose open was just answered; false: CloseFiles came before, and the file
// is to be closed at once.
func (s *Session) Add(f File) bool {
	s.mu.Lock()
	s.files[f.Key()] = f
	s.version++
	ended := s.ended
	s.mu.Unlock()
	// The file may have been granted as early as the call was first sent: it was
	// sent again, or waited.
	if !ended && f.Stamp().Age(s.Now()) > s.SoftLimit()/8 {
		s.RenewNow()
	}
	return !ended
}

// Remove takes a file out.
func (s *Session) Remove(f File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[f.Key()] == f {
		delete(s.files, f.Key())
		s.version++
	}
}

// Lost takes a file out whose lease was lost.
func (s *Session) Lost(f File) {
	s.Remove(f)
	s.lost.Add(1)
}

// CloseFiles lets no file be added any more, and returns those that are open.
func (s *Session) CloseFiles() []File {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	return s.open()
}

// open are the files that are open.
func (s *Session) open() []File {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]File, 0, len(s.files))
	for _, f := range s.files {
		all = append(all, f)
	}
	return all
}

// Remaining is for how long a file's lease is certainly not past its soft limit, by
// the clock of this machine that ran further.
func (s *Session) Remaining(f File) time.Duration {
	s.mu.Lock() // a renewal moves the stamp and the limits together
	defer s.mu.Unlock()
	return clock.Sure(s.SoftLimit()) - f.Stamp().Age(s.Now())
}

// Check ends a file's lease if that is over by the holder's own clock.
func (s *Session) Check(f File) {
	if age := f.Stamp().Age(s.Now()); age >= s.Limit() {
		s.expire(f, age)
	}
}

func (s *Session) expire(f File, age time.Duration) {
	f.Lose(fserror.New(fserror.LeaseLost, "", "", "no renewal came through for %s, the hard limit is %s: others may have the file by now",
		fserror.Round(age), s.HardLimit()))
}

// watchLoop is the watchdog: it finds leases past their limits by the
// holder's own clock, whatever the network does. It looks often, rather than
// sleep until the deadline, since a timer stands still while the machine is
// suspended, and the clock may be set.
func (s *Session) watchLoop() {
	tick := min(max(s.HardLimit()/40, 10*time.Millisecond), time.Second)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-s.renewCtx.Done():
			return
		case <-t.C:
			s.Watch()
		}
	}
}

// Watch looks at all files once.
func (s *Session) Watch() {
	soft, limit := s.SoftLimit(), s.Limit()
	files := s.open()
	if len(files) == 0 {
		return
	}
	now := s.Now()
	late := 0
	var oldest time.Duration
	for _, f := range files {
		age := f.Stamp().Age(now)
		if age >= limit && !f.Closing() {
			s.expire(f, age)
			continue
		}
		if soft > 0 && age > soft {
			late++
			oldest = max(oldest, age)
		}
	}
	if late == 0 {
		return
	}
	s.mu.Lock()
	first := !s.jeopardy
	s.jeopardy = true
	s.mu.Unlock()
	if first {
		s.jeopardies.Add(1)
		s.cfg.Logger.Warn("leasefs: the lease is in jeopardy: not renewed since its soft limit; writing continues",
			"files", late, "idle", fserror.Round(oldest), "lost_in", fserror.Round(limit-oldest))
		s.RenewNow()
	}
}

// lostFiles tells the files that an answer names. One that is closing
// gets the truth from its own call: to the namenode it may be closed already.
func (s *Session) lostFiles(resp *pb.RenewLeaseResponse) {
	for _, l := range resp.GetLost() {
		if f := s.file(Key{l.GetInode(), l.GetEpoch()}); f != nil && !f.Closing() {
			f.Lose(lostError(l))
		}
	}
	for _, r := range resp.GetUnknown() {
		if f := s.file(Key{r.GetInode(), r.GetEpoch()}); f != nil && !f.Closing() {
			f.Lose(fserror.New(fserror.LeaseLost, "", "", "the namenode does not know this file as open (epoch %d)", r.GetEpoch()))
		}
	}
}

func (s *Session) file(k Key) File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[k]
}

func lostError(l *pb.LostFile) *fserror.Error {
	e := &fserror.Error{Kind: fserror.LeaseLost, Reason: l.GetReason(), Message: "the lease was lost"}
	if l.GetReason() == "deleted" || l.GetReason() == "replaced" {
		e.Kind = fserror.LeaseLostGone
	}
	if l.GetReason() != "" {
		e.Message += ": " + l.GetReason()
	}
	if l.GetNewHolder() != nil {
		h := wire.Holder(l.GetNewHolder())
		e.Holder = &h
		e.Message += " by " + h.Client + " (host " + h.Host + ")"
	}
	return e
}
