package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/record"
)

// maxBacklog is how many bytes may wait for the disk before new changes are
// told to retry.
const maxBacklog = 32 << 20

// Request asks for one change.
type Request struct {
	// Call is who asks; nil: the namenode itself, whose changes are made in safe
	// mode, too, and however little room there is.
	Call *namespace.Call
	// ID makes a change that is asked for again happen once; without it only
	// Plan can know.
	ID namespace.CallID
	// Grows says that the change takes room.
	Grows bool
	// Given is what the caller's session has given up of what it keeps.
	Given *readlease.GivenUp
	// Plan checks the request against the tree and makes its record; it changes
	// nothing. A nil Op without an error: there is nothing to change. It runs
	// under the lock, and again if sessions had to be waited for.
	Plan func(*Tx) (namespace.Op, error)
}

// Outcome is what became of a change.
type Outcome struct {
	tables.CallResult
	Repeat bool // the call had happened before; nothing was done now
	Noop   bool // there was nothing to change
}

// Do carries out one change and waits until it is durable. A call that happened
// before gets its first answer. An error, too, is answered only when what it was seen
// from is durable.
func (e *Engine) Do(ctx context.Context, r Request) (Outcome, error) {
	out, wait, err := e.Submit(ctx, r)
	if werr := e.WaitDurable(ctx, wait); werr != nil {
		return Outcome{}, werr
	}
	return out, err
}

// DoAnswer is Do for a change whose result is only answered: if the call has an Answer,
// that waits until the change is durable, and DoAnswer does not.
func (e *Engine) DoAnswer(ctx context.Context, r Request) (Outcome, error) {
	out, wait, err := e.Submit(ctx, r)
	if werr := e.AnswerAsOf(ctx, wait); werr != nil {
		return Outcome{}, werr
	}
	return out, err
}

// Submit is Do without the last wait: the answer may be given when the txid that it
// returns is durable (WaitDurable).
func (e *Engine) Submit(ctx context.Context, r Request) (out Outcome, wait uint64, err error) {
	ctx, span := tracing.Begin(ctx, "change")
	defer func() { span.TxID(out.TxID); span.End(err) }()
	recall := Recall{given: r.Given}
	defer recall.Done()
	for {
		err = e.Update(func(tx *Tx) (err error) {
			out, err = tx.change(ctx, &r, &recall)
			wait, _ = tx.Tree.Last()
			return err
		})
		if !errors.Is(err, ErrCached) {
			break
		}
		if err = e.await(ctx, &recall); err != nil {
			break
		}
	}
	switch {
	case err == nil && !out.Noop:
		wait = out.TxID
		if a := answerOf(ctx); a != nil {
			a.wrote = out.TxID
		}
	case r.Call != nil:
		wait = r.Call.AsOf()
	}
	return out, wait, err
}

// Update runs fn under the lock. It is for work that does not fit a Request. A panic
// in fn may leave the state half changed, so it ends the reign.
func (e *Engine) Update(fn func(*Tx) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	whole := false
	defer func() {
		if !whole {
			e.cfg.Reign.Fail(errors.New("a fault of the program in the middle of a change; its stack is in this log"))
		}
	}()
	err := fn(&e.tx)
	whole = true
	return err
}

func (tx *Tx) change(ctx context.Context, r *Request, recall *Recall) (out Outcome, err error) {
	defer tx.countOwners(ctx, r.Call)()
	if r.Call == nil {
		op, err := r.Plan(tx)
		if err != nil || op == nil {
			return Outcome{Noop: true}, err
		}
		done, err := tx.Apply(r.ID, op, recall)
		return Outcome{CallResult: namespace.Answer(&done, op)}, err
	}
	e := tx.e
	if err := e.cfg.Reign.Active(); err != nil {
		return out, err
	}
	if r.ID.Seq != 0 {
		if out.CallResult, out.Repeat, err = tx.Tree.CallResult(r.ID); err != nil || out.Repeat {
			return out, err
		}
	}
	// What has no id (AppendTail, Commit) is known as repeated only to its plan.
	if r.ID.Seq != 0 {
		if err := tx.admit(r.Call, r.Grows); err != nil {
			return out, err
		}
	}
	remembered, err := tx.remembering(ctx, r.Call, r.ID)
	if err != nil {
		return out, err
	}
	r.Call.ResetAttempt()
	op, err := r.Plan(tx)
	if err != nil || op == nil {
		out.Noop = err == nil
		return out, err
	}
	op, fits := namespace.PlanKeep(tx.Tree, r.Call, op)
	if !fits {
		return out, &fserror.Error{Kind: fserror.Retry, Message: "the trash is full, and its oldest entries are being removed; wait, or delete for good", RetryAfter: time.Second}
	}
	if err := namespace.FitQuotas(tx.Tree, r.Call, op); err != nil {
		return out, err
	}
	if r.ID.Seq == 0 {
		if err := tx.admit(r.Call, r.Grows); err != nil {
			return out, err
		}
	}
	done, err := tx.apply(r.ID, record.Signer(r.Call, op), op, recall)
	if err == nil {
		remembered()
	}
	out.CallResult = namespace.Answer(&done, op)
	return out, err
}

// admit refuses what cannot be taken on now: in safe mode, when room is short, and
// when the disk is behind.
func (tx *Tx) admit(c *namespace.Call, grows bool) error {
	if err := tx.RefuseInSafeMode(c); err != nil {
		return err
	}
	if err := tx.e.cfg.Rooms.Admit(grows); err != nil {
		return err
	}
	if tx.e.journal.Backlog() > maxBacklog {
		return &fserror.Error{Kind: fserror.Retry, Message: "overloaded: the journal's disk is behind", RetryAfter: 50 * time.Millisecond}
	}
	return nil
}

// RefuseInSafeMode refuses a request, which has then seen the mode; c is nil for the
// namenode's own work.
func (tx *Tx) RefuseInSafeMode(c *namespace.Call) error {
	if !tx.Tree.InSafeMode(c) {
		return nil
	}
	return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonSafeMode, Message: "the namenode is in safe mode until an operator ends it", RetryAfter: time.Second}
}

// Apply applies a record when sessions have given up what they keep of what it
// changes, and returns ErrCached before that. It gives the record the next txid,
// applies and journals it, and tells the rooms. No record is applied otherwise.
func (tx *Tx) Apply(id namespace.CallID, op namespace.Op, recall *Recall) (namespace.Result, error) {
	return tx.apply(id, nil, op, recall)
}

// apply is Apply of a record that names who asks for it, by; nil: it does not.
func (tx *Tx) apply(id namespace.CallID, by *namespace.Owner, op namespace.Op, recall *Recall) (namespace.Result, error) {
	e := tx.e
	if err := namespace.Permit(tx.Tree, op); err != nil {
		return namespace.Result{}, err
	}
	if err := tx.recall(op, recall); err != nil {
		return namespace.Result{}, err
	}
	if e.over.Load() { // also the namenode's own work
		return namespace.Result{}, e.cfg.Reign.Active()
	}
	if err := e.cfg.Rooms.Refuse(tx, id.Session, op); err != nil {
		return namespace.Result{}, err
	}
	last, lastMS := tx.Tree.Last()
	entry := namespace.Entry{TxID: last + 1, Time: max(e.time.now(), lastMS), Call: id, By: by, Op: op}
	typ, body := record.Encode(by, id, op)
	tx.Tree.SetDurable(e.journal.Durable())
	r, err := tx.Tree.Apply(entry)
	if err != nil {
		// Planned under the same lock, so this is a fault of ours. Nothing was
		// changed and nothing is journalled.
		e.cfg.Log.Error("a planned record does not apply", "op", fmt.Sprintf("%T", op), "txid", entry.TxID, "cause", err)
		return r, fserror.Wrap(fserror.Internal, "", "", err)
	}
	if err := e.journal.Append(journal.Record{TxID: entry.TxID, Time: entry.Time, Type: typ, Body: body}); err != nil {
		return r, e.unwritable(err)
	}
	e.limits.applied(r)
	e.cfg.Rooms.Applied(tx, entry, r)
	return r, nil
}

// unwritable ends the reign: the journal takes nothing more.
func (e *Engine) unwritable(err error) error {
	e.cfg.Reign.Fail(fmt.Errorf("the journal cannot be written: %w", err))
	return e.cfg.Reign.Active()
}

// OrNil keeps a typed nil of a plan from becoming an Op.
func OrNil[T any, P interface {
	*T
	namespace.Op
}](op P, err error) (namespace.Op, error) {
	if op == nil || err != nil {
		return nil, err
	}
	return op, nil
}
