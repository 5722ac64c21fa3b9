package session

import (
	"sync/atomic"
	"time"
)

// vouching is when the holder on whose behalf a session has files was heard of last. A
// session that is the holder itself never calls Vouch, and renews by itself.
type vouching struct {
	heard   atomic.Pointer[time.Time]
	renewal atomic.Pointer[time.Time] // when the last one began
}

// Vouch says that the holder on whose behalf the session has files is alive. From the
// first call on, the session renews its lease only if there was one since it did so last,
// or, where the namenode asks or a renewal failed, within three quarters of the soft
// limit. So the lease of a holder who is silent is past that limit when it should be.
func (s *Session) Vouch() {
	now := time.Now()
	s.vouched.heard.Store(&now)
	if last := s.vouched.renewal.Load(); last == nil || now.Sub(*last) > s.SoftLimit()/8 {
		s.RenewNow()
	}
}

func (v *vouching) after(t time.Time) bool {
	heard := v.heard.Load()
	return heard == nil || heard.After(t)
}

func (v *vouching) renewed(at time.Time) { v.renewal.Store(&at) }
