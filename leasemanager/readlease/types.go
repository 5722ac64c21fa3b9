package readlease

import (
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// SessionID is one connected client process.
type SessionID = [16]byte

// Key is something that can change and that an answer may depend on. What the
// kinds are is the caller's affair.
type Key struct {
	Kind  uint8
	Inode uint64
	Name  string // a name in the directory Inode; else empty
}

// Revocation tells a session to drop what depends on some keys, and to
// acknowledge that with [Table.Ack].
type Revocation struct {
	// Seq is larger than that of all revocations of the session before, not
	// always by one.
	Seq uint64
	// Keys is not to be changed. Empty with All.
	Keys []Key
	// All: drop everything.
	All bool
}

// The defaults of Config.
const (
	DefaultTerm         = 10 * time.Second
	DefaultMargin       = DefaultTerm / lag
	DefaultPenalty      = penaltyTerms * DefaultTerm
	DefaultMaxKeys      = 100_000
	DefaultMaxKeysTotal = 5_000_000
	DefaultMaxSessions  = 10_000
)

const (
	lag          = 10 // the part of a term by which a holder's clock may run slower
	penaltyTerms = 6
)

// maxPush is how many keys one Revocation names; more become All, so that a
// message stays well below what the wire takes.
const maxPush = 4096

// Config is what a Table is made of. Clock is required; zero elsewhere means
// the default.
type Config struct {
	Clock clock.Clock
	// Term is what a holder may count from the moment before it sent its
	// renewal.
	Term time.Duration
	// Margin is how much later than the session the grantor takes the term to end. The default
	// is a tenth of Term.
	Margin time.Duration
	// Penalty is how long a session gets no lease after one that it let end
	// with a revocation unacknowledged, or after several that it acknowledged late. The
	// default is six times Term.
	Penalty time.Duration
	// MaxKeys is how many keys a session may hold; MaxKeysTotal how many all
	// may, a key held by two counted twice; MaxSessions how many sessions are
	// kept, but for those of Recover.
	MaxKeys, MaxKeysTotal, MaxSessions int
	// FirstSeq is below all sequence numbers given out. A reign's number in
	// its upper half makes those of a later reign larger, so that a late answer
	// of a former one names nothing that is still to come.
	FirstSeq uint64
	// ObserveWait, if not nil, is called at the end of each Wait that had
	// something to wait for, with the time that it took. It must not block.
	ObserveWait func(time.Duration)
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		panic("readlease: no clock")
	}
	duration := func(d *time.Duration, other time.Duration) {
		if *d <= 0 {
			*d = other
		}
	}
	number := func(n *int, other int) {
		if *n <= 0 {
			*n = other
		}
	}
	duration(&c.Term, DefaultTerm)
	duration(&c.Margin, c.Term/lag)
	duration(&c.Penalty, penaltyTerms*c.Term)
	number(&c.MaxKeys, DefaultMaxKeys)
	number(&c.MaxKeysTotal, DefaultMaxKeysTotal)
	number(&c.MaxSessions, DefaultMaxSessions)
	c.MaxKeys = min(c.MaxKeys, withdrawn-1)
	return c
}

// Stats are figures of a Table. Those of the second group only grow.
type Stats struct {
	Sessions int // known ones
	Holdings int // held keys, one held by two counted twice

	Grants        uint64 // that were given
	Refused       uint64 // that were not, for whatever reason
	RefusedMarked uint64 // of these: a key was being changed or withdrawn
	RefusedLimit  uint64 // of these: a limit was reached
	Full          uint64 // streams of sessions that may not cache, since too many do
	Revocations   uint64 // that were pushed
	DropAlls      uint64 // of these: to drop everything
	Lost          uint64 // leases that ended with a revocation unacknowledged
	Waits         uint64 // that had something to wait for
	WaitsByTerm   uint64 // of these: ended by a session's term
}

// Stats returns the figures. The namespace lock should not be held.
func (t *Table) Stats() Stats {
	t.sweep()
	st := Stats{
		Sessions:      int(t.active.Load()),
		Holdings:      int(t.keys.total.Load()),
		Grants:        t.n.grants.Load(),
		RefusedMarked: t.n.marked.Load(),
		RefusedLimit:  t.n.limited.Load(),
		Full:          t.n.full.Load(),
		Revocations:   t.n.revocations.Load(),
		DropAlls:      t.n.dropAlls.Load(),
		Lost:          t.n.lost.Load(),
		Waits:         t.n.waits.Load(),
		WaitsByTerm:   t.n.waitsByTerm.Load(),
	}
	st.Refused = t.n.refused.Load() + st.RefusedMarked + st.RefusedLimit
	return st
}
