// Package engine owns the namespace lock, and with it the tree, the time of records,
// and what sessions may answer from what they have read. There is one way to change
// the tree ([Engine.Do]) and one to look at it ([Engine.View]); no other package takes
// the lock.
//
//	known call? → admit → plan → recall caches → apply → journal (append) → wait until durable
//
// All but the waits happen under the lock, which is never held while a disk or the
// network is waited for. Locks of others are taken below it.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/share"
)

// Reign is what the engine asks of the reign that it works for. Its methods are
// called with the namespace lock held and without, and must not take it.
type Reign interface {
	// Active returns why nothing can be answered now: nil if the namenode is
	// active, and sure that it is.
	Active() error
	// Window returns why an answer that was begun may not be given.
	Window() error
	// Fail ends the reign for good.
	Fail(why error)
}

// Rooms is what the other parts of the namenode have to say to changes.
type Rooms interface {
	// Admit refuses a change that a caller asks for while there is no room for
	// it; grows says that it takes some.
	Admit(grows bool) error
	// Park gives the place of a call that waits to others until back is called.
	Park(ctx context.Context) (back func(), err error)
	// Taker is who a call takes something of which all callers share; c is nil
	// for the namenode's own work.
	Taker(ctx context.Context, c *namespace.Call) share.Taker
	// Refuse is asked under the lock before a record is applied.
	Refuse(tx *Tx, by namespace.SessionID, op namespace.Op) error
	// Applied is told of each record under the lock, in the order of records.
	Applied(tx *Tx, e namespace.Entry, r namespace.Result)
}

// Config is what an Engine works with. All is required.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	// CacheTerm is for how long a session may answer from what it has read.
	CacheTerm time.Duration
	// ObserveWait is told how long a change has waited for sessions.
	ObserveWait func(time.Duration)
	Reign       Reign
	Rooms       Rooms
	// Quota is how many granted leases a user may have; nil: nobody has a limit of his own.
	Quota share.Quota
}

// Engine is the namespace of one namenode. Its methods are safe for concurrent use
// once Open was called.
type Engine struct {
	cfg     Config
	journal journal.Journal
	time    journalTime
	caches  atomic.Pointer[readlease.Table]
	opened  atomic.Bool
	over    atomic.Bool // set under mu: nothing is journalled after

	mu     sync.RWMutex
	tx     Tx
	limits limits
}

// Tx is the namespace while it is locked. It is good within the function that it was
// handed to; only one of Update or a Plan may Apply by it.
type Tx struct {
	Tree *namespace.Tree
	e    *Engine
}

// New returns an engine without a namespace.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg}
	e.tx.e = e
	e.time.init(cfg.Clock)
	return e
}

// Open gives the engine its tree, and the journal whose records the tree has.
func (e *Engine) Open(tree *namespace.Tree, j journal.Journal) {
	e.tx.Tree, e.journal = tree, j
	_, lastMS := tree.Last()
	e.time.heard(lastMS)
	e.opened.Store(true)
}

// Opened reports whether Open was called.
func (e *Engine) Opened() bool { return e.opened.Load() }

// Follow applies a record that another namenode wrote at that time (Unix
// milliseconds).
func (e *Engine) Follow(ms int64, apply func(*namespace.Tree) error) error {
	e.time.heard(ms)
	return e.Update(func(tx *Tx) error { return apply(tx.Tree) })
}

// Idle says that no more than d has gone by since the last record, by a clock other
// than this machine's.
func (e *Engine) Idle(d time.Duration) {
	_, lastMS := e.tx.Tree.Last() // nobody changes it between two reigns
	e.time.atMost(lastMS, d)
}

// BeginReign prepares the namespace for a reign: what others lent to readers is waited
// for, and who has how much of what all share is counted.
func (e *Engine) BeginReign(term uint64) {
	e.mu.Lock()
	tree := e.tx.Tree
	_, lastMS := tree.Last()
	beyond := e.time.begin(lastMS)
	tree.Track(true)
	e.mu.Unlock()
	e.Share(term, Limits{Granted: tables.MaxLeases, Results: tables.MaxSessions})
	caching, ms := tree.CachingSessions()
	ids := make([]readlease.SessionID, len(caching))
	for i, id := range caching {
		ids[i] = readlease.SessionID(id)
	}
	e.Caches().Recover(ids, time.Duration(ms)*time.Millisecond)
	if beyond > longStop {
		e.cfg.Log.Warn("the last change is long ago; if it is not, the machine's clock is wrong, and new files get wrong times", "ago", beyond)
	}
}

// End ends the reign: no change is between its checks and the journal while last runs,
// and none comes after.
func (e *Engine) End(last func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last()
	e.over.Store(true)
}

// WhileItLasts runs fn if End was not called, and not while it is.
func (e *Engine) WhileItLasts(fn func()) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.over.Load() {
		fn()
	}
}

// Over reports whether End was called.
func (e *Engine) Over() bool { return e.over.Load() }

// Caches is what sessions may answer from what they have read.
func (e *Engine) Caches() *readlease.Table { return e.caches.Load() }

// Active returns why nothing can be answered now, see Reign.
func (e *Engine) Active() error { return e.cfg.Reign.Active() }

// Now is the time of records, in Unix milliseconds.
func (e *Engine) Now() int64 { return e.time.now() }

// Superuser is set by a namespace's first record and does not change.
func (e *Engine) Superuser() (user, group string) { return e.tx.Tree.Superuser() }

// Look runs fn under the lock for reading, active or not. What it sees need not be
// durable, so it is no answer to a caller.
func (e *Engine) Look(fn func(*namespace.Tree)) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	fn(e.tx.Tree)
}

// Facts is the state of the namespace in a few figures, durable or not.
type Facts struct {
	calls.Counts
	Last     uint64 // txid of the last record
	Term     uint64 // of the last reign whose records the tree has
	Level    levels.State
	SafeMode bool
	Images   []namespace.OpImage // the oldest first
}

// Facts returns those of this moment.
func (e *Engine) Facts() (f Facts) {
	e.Look(func(t *namespace.Tree) {
		f = Facts{Counts: t.Counts(), Term: t.Term(), SafeMode: t.SafeMode(), Images: t.Images()}
		f.Last, _ = t.Last()
		f.Level = t.Level()
	})
	return f
}

// Read runs fn under the lock for reading while the namenode is active. Whether what
// it sees is durable is for the caller to find out.
func (e *Engine) Read(fn func(*Tx) error) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if err := e.cfg.Reign.Active(); err != nil {
		return err
	}
	return fn(&e.tx)
}

// View is Read for an answer to c: when it returns, what fn looked at is durable,
// whether fn succeeded or not.
func (e *Engine) View(ctx context.Context, c *namespace.Call, fn func(*Tx) error) error {
	c.ResetAttempt()
	err := e.Read(fn)
	if werr := e.WaitDurable(ctx, c.AsOf()); werr != nil {
		return werr
	}
	return err
}

// ViewAnswer is View for a result that is only answered: if the call has an Answer, that
// waits, and ViewAnswer does not.
func (e *Engine) ViewAnswer(ctx context.Context, c *namespace.Call, fn func(*Tx) error) error {
	c.ResetAttempt()
	err := e.Read(fn)
	if werr := e.AnswerAsOf(ctx, c.AsOf()); werr != nil {
		return werr
	}
	return err
}

// ListedTo is a change up to which all are in what is read now, and are durable: a
// watch from the next one on misses none.
func (tx *Tx) ListedTo() uint64 {
	last, _ := tx.Tree.Last()
	return min(last, tx.e.journal.Durable())
}

// Clone returns a copy of the tree as it is, active or not, and durable or not.
func (e *Engine) Clone() *namespace.Tree {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tx.Tree.Clone()
}

// Snapshot returns a copy of the tree of this moment, once it is durable: for work
// that looks at much of the tree and is not to hold up others.
func (e *Engine) Snapshot(ctx context.Context) (*namespace.Tree, error) {
	var t *namespace.Tree
	if err := e.Update(func(tx *Tx) error {
		if err := e.cfg.Reign.Active(); err != nil {
			return err
		}
		t = tx.Tree.Clone()
		return nil
	}); err != nil {
		return nil, err
	}
	last, _ := t.Last()
	return t, e.WaitDurable(ctx, last)
}

// WaitDurable waits until the record txid is on disk, and the answer may be given.
// If that cannot be, the outcome of a call is not known, and the error says so.
func (e *Engine) WaitDurable(ctx context.Context, txid uint64) error {
	if !e.durable(txid) {
		answerOf(ctx).waits(ctx)
	}
	return e.waitDurable(ctx, txid)
}

func (e *Engine) durable(txid uint64) bool { return txid == 0 || e.journal.Durable() >= txid }

func (e *Engine) waitDurable(ctx context.Context, txid uint64) error {
	return answerOf(ctx).unknown(e.waitReign(ctx, txid))
}

// waitReign waits until the record txid is on disk, as long as the reign lasts.
func (e *Engine) waitReign(ctx context.Context, txid uint64) error {
	if e.durable(txid) {
		return e.cfg.Reign.Window()
	}
	ctx, span := tracing.Begin(ctx, "journal")
	err := e.journal.WaitDurable(ctx, txid)
	span.TxID(txid)
	span.End(err)
	switch {
	case err == nil:
		return e.cfg.Reign.Window()
	case errors.Is(err, journal.ErrFailed), errors.Is(err, journal.ErrFenced), errors.Is(err, journal.ErrClosed):
		return e.unwritable(err)
	}
	return err
}
