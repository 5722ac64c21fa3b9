package share

import "context"

// Turn is a lock for work that may take long: who waits for it can give up.
type Turn chan struct{}

// NewTurn returns a Turn that nobody has.
func NewTurn() Turn { return make(Turn, 1) }

// Taken reports whether somebody has the turn.
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
