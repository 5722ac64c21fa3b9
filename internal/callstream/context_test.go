package callstream

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestCallContext: the context of a call does what package context's does, whether or not somebody
// has asked for its channel before.
func TestCallContext(t *testing.T) {
	type key struct{}
	cause := errors.New("the proof has expired")
	for name, end := range map[string]func(stream context.CancelCauseFunc, call func()){
		"nothing":  func(context.CancelCauseFunc, func()) {},
		"its end":  func(_ context.CancelCauseFunc, call func()) { call() },
		"stream's": func(stream context.CancelCauseFunc, _ func()) { stream(cause) },
		"limit":    func(context.CancelCauseFunc, func()) { <-time.After(time.Minute) },
	} {
		for asked, ask := range map[string]bool{"asked before": true, "not asked before": false} {
			t.Run(name+", "+asked, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					seen := func(own bool) (got [6]any) {
						stream, endStream := context.WithCancelCause(context.WithValue(t.Context(), key{}, "of the stream"))
						defer endStream(nil)
						var ctx context.Context
						var endCall func()
						if own {
							c := &callContext{stream: stream, until: time.Now().Add(time.Minute)}
							ctx, endCall = c, c.cancel
						} else {
							ctx, endCall = context.WithTimeout(stream, time.Minute)
						}
						defer endCall()
						if ask {
							ctx.Done()
						}
						child, drop := context.WithCancel(context.WithValue(ctx, batchKey{}, 1))
						defer drop()
						if !ask && own { // the child has asked: look at one that has none
							c := &callContext{stream: stream, until: ctx.(*callContext).until}
							ctx, endCall = c, c.cancel
							child = ctx
						}
						end(endStream, endCall)
						synctest.Wait()
						got[0], got[1], got[2] = ctx.Err(), context.Cause(ctx), ctx.Value(key{})
						select {
						case <-child.Done():
							got[3] = "the child has ended"
						default:
							got[3] = "the child has not ended"
						}
						select {
						case <-ctx.Done():
							got[4] = "ended"
						default:
							got[4] = "not ended"
						}
						got[5] = context.Cause(child)
						return got
					}
					want, got := seen(false), seen(true)
					for i := range want {
						if got[i] != want[i] {
							t.Errorf("%d: %v, package context has %v", i, got[i], want[i])
						}
					}
				})
			})
		}
	}
}

// TestCallContextHasNoGoroutine: a context that is made from a call's takes no goroutine.
func TestCallContextHasNoGoroutine(t *testing.T) {
	c := &callContext{stream: t.Context(), until: time.Now().Add(time.Hour)}
	defer c.cancel()
	before := runtime.NumGoroutine()
	for range 100 {
		_, cancel := context.WithCancel(c)
		defer cancel()
	}
	if n := runtime.NumGoroutine(); n >= before+100 {
		t.Errorf("%d goroutines for 100 contexts", n-before)
	}
}

// TestCallContextDeadline: the earlier of the stream's limit and the call's counts.
func TestCallContextDeadline(t *testing.T) {
	now := time.Now()
	stream, cancel := context.WithDeadline(t.Context(), now.Add(time.Hour))
	defer cancel()
	for limit, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 2 * time.Hour: time.Hour} {
		c := &callContext{stream: stream, until: now.Add(limit)}
		if until, ok := c.Deadline(); !ok || !until.Equal(now.Add(want)) {
			t.Errorf("of %s: %s, not %s", limit, until.Sub(now), want)
		}
	}
}
