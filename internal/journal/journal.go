// Package journal is the ordered, durable list of changes to a namespace: the
// one source of its state. It knows records as bytes with a number; what they
// mean is the namespace's affair.
//
// An implementation is internal/journal/local (segments of one folder); journal/zk
// (transactions of a ZooKeeper ensemble) has the same contract, and both run
// the suite in test/env/journaltest. What they have in common is
// internal/journal/group.
package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Record is one change.
type Record struct {
	TxID uint64 // strictly +1 from record to record; the first is 1
	Time int64  // Unix milliseconds by the active namenode's clock; never goes back
	Type uint8  // what Body is, as the namespace numbers it
	Body []byte // opaque here; not to be changed after Append
}

// MaxBody is the largest Body in bytes. The largest that the namespace writes
// is a tail append or a small file of 1 MiB and its names.
const MaxBody = 4 << 20

// Errors of a journal. Damage is a *DamageError.
var (
	// ErrFailed: a write or sync failed. It is final: the journal accepts and
	// confirms nothing more, since what a failed fsync left on disk is unknown.
	ErrFailed = errors.New("journal: failed")
	// ErrFenced: another writer has a later term.
	ErrFenced = errors.New("journal: fenced by a later term")
	// ErrClosed: used after Close.
	ErrClosed = errors.New("journal: closed")
	// ErrPurged: the records asked for are gone; start from an image.
	ErrPurged = errors.New("journal: purged")
	// ErrFull: more than the limit of bytes wait to become durable; the caller
	// sheds load.
	ErrFull = errors.New("journal: backlog full")
)

// PurgedError is ErrPurged with the numbers of the record asked for and of the oldest kept.
type PurgedError struct{ Asked, Oldest uint64 }

func (e *PurgedError) Error() string {
	return fmt.Sprintf("%v: record %d is asked for, the oldest kept is %d", ErrPurged, e.Asked, e.Oldest)
}

// Unwrap returns ErrPurged.
func (e *PurgedError) Unwrap() error { return ErrPurged }

// Purged returns a PurgedError.
func Purged(asked, oldest uint64) error { return &PurgedError{asked, oldest} }

// DamageError says that stored bytes are not what was written, and where.
type DamageError struct {
	Segment string // file or node
	Offset  int64  // of the batch
	TxID    uint64 // the first record that could not be read, if known
	Detail  string // what does not fit
	Remedy  string // what the operator can do
}

func (e *DamageError) Error() string {
	return "journal damaged: " + e.Segment + " at offset " + strconv.FormatInt(e.Offset, 10) + ": " + e.Detail + "; " + e.Remedy
}

// Damaged makes an error that says Damaged, and where, of one that is a *DamageError.
func Damaged(err error, path string) error {
	var d *DamageError
	if errors.As(err, &d) {
		return fserror.Wrap(fserror.Damaged, "", path, err)
	}
	return err
}

// Journal is one journal, opened for writing by one process. Replay comes
// first, then BeginTerm, then any number of Appends. Append, WaitDurable,
// Durable, Backlog, Err and Failed are safe for concurrent use.
type Journal interface {
	// Replay calls fn for each durable record with a txid of at least from, in
	// order, and returns the last txid there is (0 if none). A torn last batch
	// is cut; other damage is a *DamageError and changes nothing. ErrPurged if
	// from is older than what is kept.
	Replay(ctx context.Context, from uint64, fn func(Record) error) (last uint64, err error)
	// BeginTerm makes this process the writer under term; all earlier terms are
	// refused from then on. ErrFenced if term is not above all that have begun.
	BeginTerm(ctx context.Context, term uint64) error
	// Append queues one record, whose TxID must be the last one +1. It does no
	// I/O and does not wait. ErrFull if the backlog is over its limit.
	Append(rec Record) error
	// WaitDurable returns nil once the record txid is durable, the context's
	// error, or ErrFailed, ErrFenced or ErrClosed (wrapped).
	WaitDurable(ctx context.Context, txid uint64) error
	// Durable is the highest durable txid. It only grows.
	Durable() uint64
	// Notify calls fn from the writer's goroutine after each time Durable grew.
	// It is set once, before the first Append; fn must be quick.
	Notify(fn func(durable uint64))
	// Backlog is how many bytes wait to become durable.
	Backlog() int64
	// Failed is closed when the journal has failed for good; Err says why.
	Failed() <-chan struct{}
	Err() error
	// Roll begins a new segment with the next batch.
	Roll() error
	// Purge forgets whole segments whose records are all below before.
	Purge(ctx context.Context, before uint64) error
	// Size is the number of bytes kept, and how many of them came since the
	// last Roll.
	Size() (total, sinceRoll int64)
	// Close makes all that was appended durable and ends.
	Close() error
}
