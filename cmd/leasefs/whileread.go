package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/cmd/leasefs/runner"
)

// readerPause is how often a command that follows something asks whether anybody
// still reads what it prints.
const readerPause = 500 * time.Millisecond

// whileRead makes f end within readerPause of the last reader of standard output,
// without a word and with the exit code of SIGPIPE. That signal itself comes only
// with the next line, for which f may wait for hours.
func whileRead(f func(*invocation) error) func(*invocation) error {
	return func(e *invocation) error {
		outer := e.ctx
		ctx, cancel := context.WithCancelCause(outer)
		defer cancel(nil)
		e.ctx = ctx
		defer func() { e.ctx = outer }()
		alone := make(chan struct{})
		go func() {
			tick := time.NewTicker(readerPause)
			defer tick.Stop()
			for ctx.Err() == nil && hasReader(e.Stdout) {
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
			if ctx.Err() == nil {
				close(alone)
				cancel(nil)
			}
		}()
		err := f(e)
		select {
		case <-alone:
			return runner.Exit(128 + int(syscall.SIGPIPE))
		default:
			return err
		}
	}
}

// hasReader says whether what is written to f can be read; a file always can.
func hasReader(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}} //nolint:gosec // a descriptor fits
	_, err := unix.Poll(fds, 0)
	return err != nil || fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0
}
