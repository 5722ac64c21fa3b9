package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
)

func lockCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "lock",
		Usage:     "run a command while holding a path as a lock",
		UsageText: "leasefs lock [--ttl D] [--wait D] PATH -- COMMAND...\n\nExample:\n  leasefs lock --ttl 15s --wait 1h /locks/nightly -- sh -c 'backup --fence $LEASEFS_TOKEN'",
		Description: "Opens PATH for write (it is made if missing, and stays) and runs COMMAND for as long as nobody\n" +
			"else can have it. LEASEFS_TOKEN in its environment is the fencing token: it grows with each\n" +
			"holder, and what COMMAND changes elsewhere should refuse a smaller one than it has seen.\n" +
			"When renewals do not come through, COMMAND gets SIGTERM, and SIGKILL before the lock can be\n" +
			"another's. A supervisor that is itself stopped cannot do that: then the token protects.\n" +
			"A signal to lock is passed on to COMMAND and all that it has started; a second one kills them.\n" +
			"The exit code is COMMAND's (128 + N if signal N ended it; 127 if it is not found, 126 if it\n" +
			"cannot be executed); of a failure of the lock itself it is 100 + the usual code, such as\n" +
			"105 (held by another) and 107 (lost). Put -- before COMMAND: flags before it are lock's,\n" +
			"those after it COMMAND's.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Usage: "the lock is free so `LONG` after this machine is dead; several namenodes raise it to their minimum", DefaultText: "the namenode's soft limit"},
			&cli.DurationFlag{Name: "wait", Usage: "wait up to `LONG` for the lock; waiters are served in order", DefaultText: "not at all"},
		},
		Action: p.action(operands{min: 2, max: -1, names: "PATH -- COMMAND", local: true}, lock),
	}
}

// commandExit is the exit code of a command that lock ran.
type commandExit int

func (c commandExit) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", int(c))
}

// lockFailure is a failure of lock itself: its exit code is 100 more.
type lockFailure struct{ err error }

func (l lockFailure) Error() string { return l.err.Error() }
func (l lockFailure) Unwrap() error { return l.err }

const lockFailureBase = 100

// cannotRun is a command that cannot be started, with the exit code that shells
// have for that.
type cannotRun struct {
	err  error
	code int
}

func (c cannotRun) Error() string { return c.err.Error() }
func (c cannotRun) Unwrap() error { return c.err }

// cannotRun names the command: it is what was not found.
func (c *commandLine) cannotRun(command string, err error) error {
	var of *exec.Error
	var at *fs.PathError
	if errors.As(err, &of) { // the command is said already
		err = of.Err
	}
	if errors.As(err, &at) {
		err = at.Err
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return cannotRun{fserror.New(fserror.NotFound, c.op, command, "the command cannot be run: %v; name one that is in PATH, or the path of a program", err), 127}
	}
	return cannotRun{fserror.New(fserror.Permission, c.op, command, "the command cannot be run: %v; name a program that can be executed", err), 126}
}

// ofLock makes what ended lock, unless it is the exit code of the command that
// it ran, a failure of lock itself. Nil stays nil.
func ofLock(err error) error {
	var code commandExit
	if err == nil || errors.As(err, &code) {
		return err
	}
	return lockFailure{err}
}

// leastLock is the shortest time to live that a session can have of its own.
const leastLock = 100 * time.Millisecond

func lock(e *invocation) error {
	path, err := e.path(e.args[0])
	if err != nil {
		return err
	}
	command, err := exec.LookPath(e.args[1])
	if err != nil {
		return e.cannotRun(e.args[1], err)
	}
	ttl := e.flags.Duration("ttl")
	if e.flags.IsSet("ttl") && ttl < leastLock {
		return argv.Usagef(e.op, "--ttl %s: give a time to live of at least %s, such as --ttl 15s, or leave it out for the namenode's soft limit", ttl, leastLock)
	}
	if err := e.connect(func(cfg *client.Config) { cfg.TTL = ttl }); err != nil {
		var refused *fserror.Error
		if ttl > 0 && errors.As(err, &refused) && refused.Kind == fserror.InvalidArgument {
			return argv.Usagef(e.op, "--ttl %s: %s", ttl, refused.Message)
		}
		return err
	}
	l, err := e.fs.Lock(e.ctx, path, client.LockOptions{Wait: e.flags.Duration("wait")})
	if err != nil {
		return errors.Join(e.fail(err, path), e.fs.Close())
	}
	if got := l.TTL(); ttl > 0 && got > ttl && !e.quiet() {
		e.note("the time to live was raised to %s, the namenode's minimum", got)
	}
	h := &holding{e, l, path}
	err = h.run(command)
	uerr := h.unlock(errors.Is(err, fserror.LeaseLost))
	if e.ctx.Err() != nil { // interrupted: the file is closed all the same
		uerr = nil
	}
	cerr := e.fs.Close()
	var code commandExit
	if err == nil || errors.As(err, &code) {
		// A command that ran without the lock is no success, whatever it says.
		if uerr != nil {
			return e.fail(uerr, path)
		}
		if cerr != nil {
			return e.fail(cerr, path)
		}
	}
	return err
}

// holding is a lock that is held while a command runs.
type holding struct {
	*invocation
	lock *client.Lock
	path string
}

// unlockGrace is how long lock tries to give the lock back after a signal, or
// after it was lost.
const unlockGrace = 2 * time.Second

// unlock gives the lock back. Where it may be another's already, or a person
// waits for the end, it does not wait for long for a namenode that is gone.
func (h *holding) unlock(lost bool) error {
	ctx := context.WithoutCancel(h.ctx)
	if lost || h.ctx.Err() != nil {
		h.silent.Store(true) // what counts has happened
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, unlockGrace)
		defer cancel()
	}
	return h.lock.Unlock(ctx)
}

// run runs the command and ends it before the lock can be another's.
func (h *holding) run(command string) error {
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	again, release := h.signals.claim()
	defer release()
	if err := h.ctx.Err(); err != nil {
		return err // before the command has begun
	}
	cmd := exec.Command(command, h.args[2:]...) //nolint:gosec // running it is what was asked for
	cmd.Args[0] = h.args[1]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = h.stdin, h.stdout, h.stderr
	cmd.Env = append(os.Environ(), "LEASEFS_TOKEN="+strconv.FormatUint(h.lock.Token(), 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if isTerminal(h.stdin) {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(h.stdin.Fd())
		defer retakeTerminal(h.stdin)
	}
	if err := cmd.Start(); err != nil {
		return h.cannotRun(h.args[1], err)
	}
	group := -cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	kill := func(s syscall.Signal) {
		_ = unix.Kill(group, s) // it may have ended by itself
	}
	stopped := h.ctx.Done()
	jeopardy, lost := h.lock.Jeopardy(), h.lock.Context().Done()
	var deadline <-chan time.Time
	var why error
	for {
		select {
		case err := <-ended:
			kill(syscall.SIGKILL) // what it left running must not continue without the lock
			if why != nil {
				return why
			}
			return exitOf(err)
		case <-stopped:
			stopped = nil
			kill(signalOf(h.ctx))
		case <-again:
			kill(syscall.SIGKILL)
		case <-jeopardy:
			jeopardy = nil
			why = fserror.New(fserror.LeaseLost, h.op, h.path, "the lock was not renewed in time; the command was ended before another could have it")
			kill(syscall.SIGTERM)
			deadline = time.After(killIn(h.lock))
		case <-deadline:
			if in := killIn(h.lock); in > 0 {
				deadline = time.After(in)
				continue
			}
			deadline = nil
			kill(syscall.SIGKILL)
		case <-lost:
			lost, jeopardy, deadline = nil, nil, nil
			kill(syscall.SIGKILL) // it is another's already
			var cause *fserror.Error
			why = fserror.New(fserror.LeaseLost, h.op, h.path, "the lock was lost; the command was killed")
			if errors.As(context.Cause(h.lock.Context()), &cause) {
				c := *cause
				c.Message += "; the command was killed"
				why = h.fail(&c, h.path)
			}
		}
	}
}

// killMargin is how long before the lock can be another's the command is killed.
const killMargin = 100 * time.Millisecond

func killIn(l *client.Lock) time.Duration { return l.Remaining() - killMargin }

// retakeTerminal makes lock's own process group the terminal's again.
func retakeTerminal(terminal *os.File) {
	signal.Ignore(syscall.SIGTTOU)
	// A terminal that is gone needs no owner.
	_ = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
}

// exitOf makes an exit code of how a command ended.
func exitOf(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return commandExit(128 + int(ws.Signal()))
	}
	return commandExit(exit.ExitCode())
}

// signalOf is the signal that ended the context.
func signalOf(ctx context.Context) syscall.Signal {
	var i interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i.sig
	}
	return syscall.SIGTERM
}
