package leasemanager

import (
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// SessionID is one connected client process; random, chosen by the process.
type SessionID [16]byte

// InodeID is the number of a file in the namespace.
type InodeID = uint64

// Holder is who a lease belongs to: a user, a client name within that user, and
// the one process (session) that has it now. Host and PID are for people.
type Holder struct {
	User    string
	Client  string // may be empty: then no other session counts as the same client
	Session SessionID
	Host    string
	PID     int64
	// TTL is the session's own soft limit (a lock with a time to live); 0 means
	// the manager's. The caller refuses one above the hard limit; here it is
	// taken for the hard limit.
	TTL time.Duration
}

// sameClient reports whether o is another process of the same client: the same
// user and the same, non-empty, name.
func (h Holder) sameClient(o Holder) bool {
	return h.Client != "" && h.Client == o.Client && h.User == o.User && h.Session != o.Session
}

// The defaults of Config, and HDFS's limits.
const (
	DefaultSoft  = 60 * time.Second
	DefaultHard  = 20 * time.Minute
	DefaultSlice = 25 * time.Millisecond
	// DefaultAgeEvery is between two journalled ages of one lease.
	DefaultAgeEvery = 30 * time.Second
)

// Config is what a Manager is made of. Clock is required.
type Config struct {
	Clock clock.Clock
	// Soft is how long a lease may go without renewal before another client
	// can take one of its files by asking; Hard, before the monitor ends it.
	// Zero means the default.
	Soft, Hard time.Duration
	// Jitter returns numbers from 0 to 1 that spread renewals. It must be safe
	// for concurrent use and must not block. Nil means no jitter.
	Jitter func() float64
	// Slice is how long one call of Expire or ExpireGranted may hold the lock.
	// Zero means the default.
	Slice time.Duration
	// AgeEvery is how much the age of a lease grows before it is journalled
	// again; at most a quarter of the lease's limit. Zero means the default.
	AgeEvery time.Duration
	// Opened is told how many more files (less, if negative) are open for write in sessions
	// of a user. It is called under a lock, must not block, and must not call the Manager.
	// Nil: nobody is told.
	Opened func(user string, n int)
}

// Ref names one grant of a file: the inode, and the epoch it was granted under.
type Ref struct{ Inode, Epoch uint64 }

// Renewal is what a client sends to renew all its open files in one call.
type Renewal struct {
	Session SessionID
	// Version is a number that the client raises with each change of its set
	// of open files.
	Version uint64
	// HasSet tells that Open is the whole set of that version.
	HasSet bool
	Open   []Ref
}

// The reasons of Lost that this package gives or knows itself; the caller of
// Close gives others ("recovered", "deleted", "expired", …).
const (
	ReasonClosed    = "closed"     // by its own writer: nobody needs to be told
	ReasonTakenOver = "taken over" // another holder opened it
)

// Lost is a file that the session has no more.
type Lost struct {
	Ref
	Reason string
	By     *Holder // who has it or ended it, if somebody did; not to be changed
}

// RenewResult is the answer to a Renewal.
type RenewResult struct {
	// Lost are files that the session does not have any more, the oldest loss
	// first, at most 1,000 an answer. Each is told again until a set comes
	// without it.
	Lost []Lost
	// Unknown are files that the session listed and that it does not have, at
	// most 50,000 an answer; why is not known (any more).
	Unknown []Ref
	// UnknownSession: nothing is known of the session, neither a stream nor a
	// file. Nothing was renewed and nothing was made.
	UnknownSession bool
	// WantSet: send the whole set in the next renewal. Not all files were looked
	// at, or not all losses are told: this answer confirms none of the files.
	WantSet bool
	// Ending: a lease of the session is past its hard limit and is being
	// ended: its files were not renewed. They follow as lost when that is
	// durable; until then the outcome is open, so this is no confirmation.
	// Answer it as something to be retried soon.
	Ending bool
	// Next is when to renew next: half the soft limit, less up to a fifth of
	// that by jitter; sooner if there is more to tell, or if limits are lowered.
	Next time.Duration
	// Soft and Hard are the session's limits from this renewal on; less than
	// those configured while the journal has an age of the session or of one of
	// its files (see "Ages"). Of a session that is not known, the manager's.
	Soft, Hard time.Duration
}

// Kind is what a lease is.
type Kind uint8

// The kinds of leases.
const (
	// KindSession is the lease that a session has by itself over all files it
	// has open.
	KindSession Kind = iota
	// KindLapsing is the lease of a file that its session lists no more and did
	// not close: the session's renewals do not reach it.
	KindLapsing
	// KindGranted is a lease that somebody was granted, with a TTL of its own
	// and no files open for write: see [Manager.Grant].
	KindGranted
)

// FirstSessionLease is the first id of a lease that is not granted. The ids of
// granted leases, which their records give, are less, and not 0.
const FirstSessionLease = 1 << 63

// Granted is a granted lease as the tree has it.
type Granted struct {
	Holder Holder
	ID     uint64
	TTL    time.Duration
}

// AgeKey names a lease whose age is journalled. Exactly one field is set.
type AgeKey struct {
	Session SessionID // the session's lease
	Inode   uint64    // the own lease of a file that its session lists no more
	Granted uint64    // the granted lease
}

// Age is how long a lease was not renewed. 0: it was renewed, or is no more.
type Age struct {
	AgeKey
	Age time.Duration
}

// State is how a lease stands, as seen from one of its files.
type State struct {
	LeaseID uint64
	Kind    Kind
	Holder  Holder
	Epoch   uint64 // of the file asked for; 0 where none was
	// Since is how long the holder has had the file (of a lease: how long the
	// lease has existed), counted from the activation at most.
	Since time.Duration
	// Idle is how long ago the lease was renewed.
	Idle time.Duration
	// Connected tells that the session has a stream.
	Connected bool
	// MissedRenewal tells that Idle is more than 1.5 renewal periods (of a
	// granted lease, half its TTL).
	MissedRenewal bool
	// SoftExpired and HardExpired tell that Idle is strictly more than the
	// limit (of a granted lease both mean its TTL); never in safe mode.
	// Within a renewal period after an activation, no session's lease has
	// missed a renewal or is past its soft limit.
	SoftExpired, HardExpired bool
	// Ending tells that the lease is being ended; it cannot be renewed.
	Ending bool
	// TakeableIn is how long until the soft limit will have passed if no
	// renewal comes; 0 if it has, and for granted leases.
	TakeableIn time.Duration
	// Files is how many files the lease has.
	Files int
}

// Verdict says whether a file may be opened for write by somebody.
type Verdict uint8

// The verdicts of MayTake.
const (
	// Free: nobody has it.
	Free Verdict = iota
	// Takeable: its holder is past the soft limit, or is an older session of
	// the same user and client name that is gone or missed a renewal.
	Takeable
	// SameSession: the asker has it open itself; refused, also past the limit.
	SameSession
	// Held: somebody else has it.
	Held
)

// String is the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Free:
		return "free"
	case Takeable:
		return "takeable"
	case SameSession:
		return "same session"
	}
	return "held"
}

// Ending is a lease that the caller of Expire has to end: write the records
// that close Files, Close each, then call Ended; or NotEnded.
type Ending struct {
	LeaseID uint64
	Holder  Holder
	// Files are at most 1,000 of the lease's files. If it has more, the lease
	// comes again after Ended with the next of them.
	Files []Ref
}

// Filter chooses what List lists. Zero values do not restrict.
type Filter struct {
	After       uint64            // only ids greater than this: the next of the page before
	Limit       int               // of one page; 0 means 100, at most 1,000
	Client      string            // only this client name
	Match       func(Holder) bool // only of such a holder; nil: of any
	Of          func(Kind) bool   // only of such a kind; nil: of any
	SoftExpired bool              // only those past the soft limit (or their TTL)
	LeaseID     uint64            // only this lease
	MaxFiles    int               // how many Refs each Info may carry; 0 means none
	At          time.Duration     // the moment to list at, see Moment; 0, or a later one: now
}

// Selects reports whether a page may have to pass over any number of leases.
func (f *Filter) Selects() bool {
	return f.Client != "" || f.Match != nil || f.Of != nil || f.SoftExpired
}

// Info is one lease in a list.
type Info struct {
	State
	ID   uint64
	Refs []Ref // at most Filter.MaxFiles, in no order
	// TTL and Remaining are those of a granted lease, see TimeToLive.
	TTL, Remaining time.Duration
}

// Stats are figures for metrics and status pages.
type Stats struct {
	Leases    int // that have files open, those that are ending included
	Connected int // sessions that have a stream
	// OldestOverdue is how long the oldest lease that is past its hard limit
	// has been so; 0 if none is.
	OldestOverdue time.Duration
	Expired       uint64 // leases ended by the hard limit, in all
	Renewals      uint64 // calls of Renew, in all

	GrantedExpired uint64 // granted leases ended because their TTL was over, in all
	// GrantedOverdue is how long the oldest granted lease that is past its TTL
	// has been so; 0 if none is.
	GrantedOverdue time.Duration
}
