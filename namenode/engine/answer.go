package engine

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Answer is the answer of a call. Whoever sends it waits until the changes that it depends
// on are durable, so the call itself need not wait: DoAnswer and ViewAnswer return at once.
// An Answer is for one goroutine at a time.
type Answer struct {
	before func(context.Context)
	e      *Engine // nil: there is nothing to wait for
	asOf   uint64  // txid
	wrote  uint64  // txid
}

// answerKey is the key of a call's Answer in its context.
type answerKey struct{}

// WithAnswer returns the context of a call, and its Answer. waits is called whenever
// the call is about to wait for the disk.
func WithAnswer(ctx context.Context, waits func(context.Context)) (context.Context, *Answer) {
	a := &Answer{before: waits}
	return context.WithValue(ctx, answerKey{}, a), a
}

// answerOf returns nil outside a call, as in the namenode's own work.
func answerOf(ctx context.Context) *Answer {
	a, _ := ctx.Value(answerKey{}).(*Answer)
	return a
}

func (a *Answer) waits(ctx context.Context) {
	if a != nil {
		a.before(ctx)
	}
}

// Wrote is the txid of the record that the call wrote last; 0: it wrote none.
func (a *Answer) Wrote() uint64 { return a.wrote }

// Ready reports whether Wait returns at once.
func (a *Answer) Ready() bool { return a.e == nil || a.e.durable(a.asOf) }

// Wait waits until the answer may be given. An error says why it may not be given, and is
// the answer then.
func (a *Answer) Wait(ctx context.Context) error {
	if a.e == nil {
		return nil
	}
	return a.unknown(a.e.waitReign(ctx, a.asOf))
}

// unknown is err of the wait for what the call has done. A record that it wrote may become durable
// though this namenode can answer no more, so to its client that is not a refusal.
func (a *Answer) unknown(err error) error {
	var e *fserror.Error
	switch {
	case a == nil || a.wrote == 0 || err == nil:
		return err
	case errors.As(err, &e) && e.Kind == fserror.NotActive:
		return &fserror.Error{Kind: fserror.Unknown, Message: "the change was made, and may be lost; " + e.Message, Active: e.Active, RetryAfter: e.RetryAfter}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &fserror.Error{Kind: fserror.Unknown, Message: "the change was made, and is not durable yet", Err: err}
	}
	return err
}

// AnswerAsOf is WaitDurable for a result that is only answered: if the call has an Answer,
// that waits instead.
func (e *Engine) AnswerAsOf(ctx context.Context, txid uint64) error {
	a := answerOf(ctx)
	if a == nil {
		return e.waitDurable(ctx, txid)
	}
	a.e, a.asOf = e, max(a.asOf, txid)
	return nil
}
