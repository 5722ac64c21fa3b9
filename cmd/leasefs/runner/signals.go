package runner

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Interrupted is the cause of a context that a signal ended.
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string { return "interrupted" }

// SignalOf is the signal that ended the context.
func SignalOf(ctx context.Context) syscall.Signal {
	var i Interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i.Signal
	}
	return syscall.SIGTERM
}

// Signals catches SIGINT, SIGTERM and SIGHUP: the first of them ends a context (Watch), and
// the next ones go to the command, if one runs (claim).
type Signals struct {
	claimed atomic.Bool
	again   chan struct{}
}

// NewSignals returns Signals of which none is caught yet.
func NewSignals() *Signals { return &Signals{again: make(chan struct{}, 1)} }

// claim keeps the signals after the first from killing the program: they come
// from the channel, until release. If the context has ended when claim returns, claim may
// have come too late: that signal may have been the last one caught.
func (s *Signals) claim() (again <-chan struct{}, release func()) {
	s.claimed.Store(true)
	return s.again, func() { s.claimed.Store(false) }
}

// Watch returns a context that the first SIGINT, SIGTERM or SIGHUP ends with the
// cause Interrupted. From then on signals have their default effect, unless a
// command is run (Command.Run): a second one kills. A SIGHUP that was ignored (nohup)
// stays ignored.
func (s *Signals) Watch(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	list := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	ch := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(ch, list...)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case got := <-ch:
				if sig, ok := got.(syscall.Signal); ok && n == 0 {
					cancel(Interrupted{sig}) // before claimed is asked, see claim
				}
			}
			if n > 0 {
				select {
				case s.again <- struct{}{}:
				default:
				}
			}
			if !s.claimed.Load() {
				signal.Stop(ch)
				signal.Reset(list...)
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}
