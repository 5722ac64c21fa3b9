package callstream

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of one call: the stream's, with a time limit of its own. Most calls wait
// for nothing, and so never ask for its channel; what that needs, a timer and a place among the
// children of the stream's context, is made when somebody asks (Done). It is safe for concurrent use.
type callContext struct {
	stream context.Context //nolint:containedctx // of all its calls
	batch  *batch
	until  time.Time

	mu         sync.Mutex
	ended      bool            // by cancel
	full       context.Context //nolint:containedctx // nil until Done is called
	cancelFull context.CancelFunc
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) {
	if until, ok := c.stream.Deadline(); ok && until.Before(c.until) {
		return until, true
	}
	return c.until, true
}

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} { return c.whole().Done() }

// whole is the same context as package context has it.
func (c *callContext) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		c.full, c.cancelFull = context.WithDeadline(c.stream, c.until)
		if c.ended {
			c.cancelFull()
		}
	}
	return c.full
}

// made is whole if that was called, else nil.
func (c *callContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

// Err implements context.Context.
func (c *callContext) Err() error {
	c.mu.Lock()
	full, ended := c.full, c.ended
	c.mu.Unlock()
	switch {
	case full != nil:
		return full.Err()
	case c.stream.Err() != nil:
		return c.stream.Err()
	case ended:
		return context.Canceled
	case !time.Now().Before(c.until):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context. What package context asks for, for a cause or to link a child,
// full answers, if there is one.
func (c *callContext) Value(key any) any {
	if key == (batchKey{}) {
		return c.batch
	}
	if full := c.made(); full != nil {
		return full.Value(key)
	}
	return c.stream.Value(key)
}

// cancel ends the context, and gives back what it holds.
func (c *callContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancelFull != nil {
		c.cancelFull()
	}
}
