package engine

import "context"

// Answer is that of a call. Whoever gives it waits until what it was made from is
// durable, so the call itself need not: DoAnswer and ViewAnswer return at once.
// An Answer is for one goroutine at a time.
type Answer struct {
	before func(context.Context)
	e      *Engine // nil: there is nothing to wait for
	asOf   uint64  // txid
}

// answerKey is under what the context of a call has its Answer.
type answerKey struct{}

// WithAnswer returns the context of a call, and its Answer. waits is called whenever
// the call is about to wait for the disk.
func WithAnswer(ctx context.Context, waits func(context.Context)) (context.Context, *Answer) {
	a := &Answer{before: waits}
	return context.WithValue(ctx, answerKey{}, a), a
}

// answerOf returns nil for what is no call, such as the namenode's own work.
func answerOf(ctx context.Context) *Answer {
	a, _ := ctx.Value(answerKey{}).(*Answer)
	return a
}

func (a *Answer) waits(ctx context.Context) {
	if a != nil {
		a.before(ctx)
	}
}

// Ready reports whether Wait returns at once.
func (a *Answer) Ready() bool { return a.e == nil || a.e.durable(a.asOf) }

// Wait waits until the answer may be given. An error says why it may not, and takes the
// answer's place.
func (a *Answer) Wait(ctx context.Context) error {
	if a.e == nil {
		return nil
	}
	return a.e.waitDurable(ctx, a.asOf)
}

// AnswerAsOf is WaitDurable for what is nothing but answered: a call's Answer waits, if it
// has one.
func (e *Engine) AnswerAsOf(ctx context.Context, txid uint64) error {
	a := answerOf(ctx)
	if a == nil {
		return e.waitDurable(ctx, txid)
	}
	a.e, a.asOf = e, max(a.asOf, txid)
	return nil
}
