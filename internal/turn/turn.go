// Package turn has a lock for work that may take long.
package turn

import (
	"context"
	"errors"
)

// Turn is a lock whose waiters can give up. It is made by New.
type Turn chan struct{}

// New returns a Turn that is free.
func New() Turn { return make(Turn, 1) }

// Taken reports whether the turn is taken.
func (t Turn) Taken() bool { return len(t) > 0 }

// Lock waits for the turn. Its error is the context's cause.
func (t Turn) Lock(ctx context.Context) (unlock func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ErrNot is that of LockUnless.
var ErrNot = errors.New("the turn is not waited for")

// LockUnless is Lock that gives up when not is closed, with ErrNot.
func (t Turn) LockUnless(ctx context.Context, not <-chan struct{}) (unlock func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-not:
		return nil, ErrNot
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TryLock takes the turn if it is free; otherwise unlock is nil.
func (t Turn) TryLock() (unlock func()) {
	select {
	case t <- struct{}{}:
		return func() { <-t }
	default:
		return nil
	}
}
