package s3model

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// faults are what fails now. The server's lock is held for it.
type faults struct {
	rand    *rand.Rand
	trouble float64       // the share of requests that are answered with trouble
	lag     time.Duration // of lists
	full    bool
	lose    map[Loss]int // how many more requests are lost
	late    int          // how many more PUTs land late
	delay   time.Duration
}

func newFaults(seed uint64) faults {
	return faults{rand: rand.New(rand.NewPCG(seed, 1)), lose: map[Loss]int{}} //nolint:gosec // reproducible
}

// Loss is how a request is lost.
type Loss int

// The ways to lose a request. In each the connection breaks.
const (
	LostRequest Loss = iota // it is not carried out
	LostReply               // it is carried out
)

// Lose loses the next n requests.
func (s *Server) Lose(how Loss, n int) { s.set(func(f *faults) { f.lose[how] = n }) }

// Late has each of the next n PUTs take effect after a delay, if its conditions are
// met then. Its sender gets no answer.
func (s *Server) Late(n int, delay time.Duration) {
	s.set(func(f *faults) { f.late, f.delay = n, delay })
}

// SetTrouble has a share of requests, 0 to 1, answered with an internal error or a
// demand to slow down. Half of these are carried out.
func (s *Server) SetTrouble(share float64) { s.set(func(f *faults) { f.trouble = share }) }

// SetListLag has lists show changes from now on so long after they were made.
func (s *Server) SetListLag(d time.Duration) { s.set(func(f *faults) { f.lag = d }) }

// SetFull refuses PUTs for want of room, or ends that.
func (s *Server) SetFull(full bool) { s.set(func(f *faults) { f.full = full }) }

func (s *Server) set(fn func(*faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(&s.faults)
}

type faultKind int

const (
	none faultKind = iota
	loseRequest
	loseReply
	landLate
	troubleBefore
	troubleAfter
)

// fault is what becomes of one request.
type fault struct {
	kind    faultKind
	late    time.Duration
	hold    bool // the sender is kept waiting
	refusal *refusal
}

var troubles = []*refusal{
	{http.StatusInternalServerError, "InternalError"},
	{http.StatusServiceUnavailable, "ServiceUnavailable"},
	{http.StatusServiceUnavailable, "SlowDown"},
}

// next decides about a request.
func (f *faults) next(method string) fault {
	switch {
	case f.late > 0 && method == http.MethodPut:
		f.late--
		return fault{kind: landLate, late: f.delay, hold: f.rand.IntN(2) == 0}
	case f.lose[LostRequest] > 0:
		f.lose[LostRequest]--
		return fault{kind: loseRequest}
	case f.lose[LostReply] > 0:
		f.lose[LostReply]--
		return fault{kind: loseReply}
	case f.trouble > 0 && f.rand.Float64() < f.trouble:
		kind := troubleBefore
		if f.rand.IntN(2) == 0 {
			kind = troubleAfter
		}
		return fault{kind: kind, refusal: troubles[f.rand.IntN(len(troubles))]}
	}
	return fault{}
}
