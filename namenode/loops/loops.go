// Package loops runs what a namenode does beside its calls, until the namenode ends.
package loops

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Group is the loops of one namenode, which all end with it. Its methods are safe for
// concurrent use.
type Group struct {
	log     *slog.Logger
	fail    func(error)
	ctx     context.Context //nolint:containedctx // the namenode's life
	stop    context.CancelCauseFunc
	running sync.WaitGroup
}

// New returns a Group without loops. fail is told why a loop has ended before the
// namenode did.
func New(log *slog.Logger, fail func(error)) *Group {
	g := &Group{log: log, fail: fail}
	g.ctx, g.stop = context.WithCancelCause(context.Background())
	return g
}

// Stop has all loops end. The first reason counts.
func (g *Group) Stop(why error) { g.stop(why) }

// Context is that of all loops. It ends at Stop.
func (g *Group) Context() context.Context { return g.ctx }

// Done is closed by Stop.
func (g *Group) Done() <-chan struct{} { return g.ctx.Done() }

// Err is the reason that Stop was told first; nil before.
func (g *Group) Err() error { return context.Cause(g.ctx) }

// Wait returns when all loops have ended, after Stop.
func (g *Group) Wait() { g.running.Wait() }

// Within returns what fn does, or the context's error if that ends first: fn, which may ask
// what minds no context, as a folder that hangs, ends later then.
func Within[T any](ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := fn(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Run starts a loop.
func (g *Group) Run(name string, loop func(ctx context.Context) error) {
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		if err := loop(g.ctx); err != nil && g.ctx.Err() == nil {
			g.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// Every calls fn each period, first after one, and whenever wake gets something. An
// error of fn is logged: the next round tries again.
func (g *Group) Every(name string, period time.Duration, wake <-chan struct{}, fn func(ctx context.Context) error) {
	g.Run(name, func(ctx context.Context) error {
		t := time.NewTicker(period)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			case <-wake:
			}
			if err := fn(ctx); err != nil && ctx.Err() == nil {
				g.log.Error("background work failed; it will be tried again", "work", name, "cause", err)
			}
		}
	})
}
