package fuse

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// interruptGrace is how long a call under way may still be answered after a
// signal: many signals are no wish to stop (timers, children, Go's preemption).
const interruptGrace = time.Second

// opContext is the context of one request to the mount: it ends interruptGrace
// after the request was interrupted, and with the mount. It costs nothing
// until somebody asks for Done, as calls to the namenode do.
type opContext struct {
	m  *Mounted
	in <-chan struct{}

	mu     sync.Mutex
	out    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

var errInterrupted = fserror.New(fserror.Canceled, "", "", "interrupted")

// op begins a request, for who makes it; the function returned ends it.
func (m *Mounted) op(ctx context.Context) (context.Context, func()) {
	return m.opAs(ctx, m.callers.of(ctx))
}

// opAs is op for another: nil is the client's user.
func (m *Mounted) opAs(ctx context.Context, as *lowlevel.Caller) (context.Context, func()) {
	c := &opContext{m: m, in: ctx.Done()}
	if as = cmp.Or(as, m.callers.self); as == nil {
		return c, c.end
	}
	return lowlevel.As(c, as), c.end
}

func (c *opContext) start() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out != nil {
		return c.out
	}
	c.out, c.cancel = context.WithCancelCause(c.m.ctx)
	c.ended = make(chan struct{})
	if c.in != nil {
		go c.watch(c.cancel, c.ended)
	}
	return c.out
}

func (c *opContext) watch(cancel context.CancelCauseFunc, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-c.in:
	}
	late := time.NewTimer(interruptGrace)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		cancel(errInterrupted)
	}
}

func (c *opContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out != nil {
		close(c.ended)
		c.cancel(nil)
	}
}

// Deadline implements context.Context.
func (c *opContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *opContext) Done() <-chan struct{} { return c.start().Done() }

// Err implements context.Context.
func (c *opContext) Err() error {
	c.mu.Lock()
	out := c.out
	c.mu.Unlock()
	if out == nil {
		return c.m.ctx.Err()
	}
	return out.Err()
}

// Value implements context.Context. (Contexts below find the one that Done is
// of by it, and need no goroutine to follow it.)
func (c *opContext) Value(key any) any { return c.start().Value(key) }

// impatient is a context that a signal to who makes the request raw ends at once, for waiting
// where nothing is under way. Calls under it are for whom those under ctx are.
func (m *Mounted) impatient(ctx, raw context.Context) (context.Context, func()) {
	out, cancel := context.WithCancelCause(m.ctx)
	if as := lowlevel.CallerOf(ctx); as != nil {
		out = lowlevel.As(out, as)
	}
	stop := context.AfterFunc(raw, func() { cancel(errInterrupted) })
	return out, func() {
		stop()
		cancel(nil)
	}
}
