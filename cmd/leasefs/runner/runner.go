package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Exit is the exit code of a command that was run.
type Exit int

func (c Exit) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", int(c))
}

// Failure is a failure of leasefs itself, not of the command: its exit code is that of its
// cause plus FailureBase.
type Failure struct{ Err error }

func (f Failure) Error() string { return f.Err.Error() }
func (f Failure) Unwrap() error { return f.Err }

// FailureBase is added to the exit code of a Failure's cause.
const FailureBase = 100

// Failed makes an error a Failure, unless it is the Exit of the command. Nil stays nil.
func Failed(err error) error {
	var code Exit
	if err == nil || errors.As(err, &code) {
		return err
	}
	return Failure{err}
}

// CannotRun is a command that cannot be started, with the exit code that shells
// have for that.
type CannotRun struct {
	Err  error
	Code int
}

func (c CannotRun) Error() string { return c.Err.Error() }
func (c CannotRun) Unwrap() error { return c.Err }

// cannotRun names the command in the error, since that is what was not found.
func cannotRun(op, command string, err error) error {
	var of *exec.Error
	var at *fs.PathError
	if errors.As(err, &of) { // it would name the command twice
		err = of.Err
	}
	if errors.As(err, &at) {
		err = at.Err
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return CannotRun{fserror.New(fserror.NotFound, op, command, "the command cannot be run: %v; name one that is in PATH, or the path of a program", err), 127}
	}
	return CannotRun{fserror.New(fserror.Permission, op, command, "the command cannot be run: %v; name a program that can be executed", err), 126}
}

// Command is a command that can be run.
type Command struct {
	Op                    string // the command of leasefs that runs it, for errors
	Env                   []string
	Stdin, Stdout, Stderr *os.File
	Note                  func(format string, args ...any) // tells a person something that is no failure

	program string
	args    []string
}

// Find looks a command up; args begins with the name of the program. The error is a
// CannotRun.
func Find(op string, args []string) (*Command, error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return nil, cannotRun(op, args[0], err)
	}
	return &Command{Op: op, program: program, args: args}, nil
}

// Claim is what a command must not outlive.
type Claim struct {
	Path string // what it is of, for errors
	// Lost ends when it may be another's, with the cause.
	Lost context.Context //nolint:containedctx // a state, not what governs a call
	// Jeopardy is closed when renewals do not come through.
	Jeopardy <-chan struct{}
	// Remaining is for how long it certainly is not another's.
	Remaining func() time.Duration
	// Late is the message if the command was ended because of Jeopardy.
	Late string
}

// killMargin is how long before the claim can be another's the command is killed.
const killMargin = 100 * time.Millisecond

func (c *Claim) killIn() time.Duration { return c.Remaining() - killMargin }

// lookIn is when to ask that again. It is soon: timers stand still while the machine is suspended, and
// the claim does not.
func (c *Claim) lookIn() time.Duration { return min(c.killIn(), killMargin) }

// lost is the error of a command that was killed because the claim was lost.
func (c *Claim) lost(op string) error {
	var cause *fserror.Error
	if !errors.As(context.Cause(c.Lost), &cause) {
		return fserror.New(fserror.LeaseLost, op, c.Path, "it was lost; the command was killed")
	}
	e := *cause
	e.Op = op
	e.Message += "; the command was killed"
	return fserror.With(&e, op, c.Path)
}

// Run runs the command and ends it before the claim can be another's: SIGTERM when
// that is in jeopardy, SIGKILL when it is lost or about to be. The signal that ended
// the context is passed on; a second one kills. In the foreground of a terminal, a command
// that is suspended (Ctrl-Z) continues: the shell would wait for this process, which has
// to run for as long as the claim is held. It returns nil, an Exit, a CannotRun,
// or why the claim was lost.
func (c *Command) Run(ctx context.Context, signals *Signals, claim Claim) error {
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	again, release := signals.claim()
	defer release()
	if err := ctx.Err(); err != nil {
		return err // before the command has begun
	}
	cmd := exec.Command(c.program, c.args[1:]...) //nolint:gosec // running it is what was asked for
	cmd.Args[0] = c.args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	suspensions := make(chan os.Signal, 1)
	if inForeground(c.Stdin) {
		signal.Notify(suspensions, syscall.SIGCHLD)
		defer signal.Stop(suspensions)
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(c.Stdin.Fd())
		defer retakeTerminal(c.Stdin)
	}
	if err := cmd.Start(); err != nil {
		return cannotRun(c.Op, c.args[0], err)
	}
	group := -cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	kill := func(s syscall.Signal) {
		_ = unix.Kill(group, s) // it may have ended by itself
	}
	stopped, jeopardy, lost := ctx.Done(), claim.Jeopardy, claim.Lost.Done()
	var deadline <-chan time.Time
	var why error
	for {
		select {
		case err := <-ended:
			kill(syscall.SIGKILL) // what it left running must not continue without the claim
			if why != nil {
				return why
			}
			return exitOf(err)
		case <-stopped:
			stopped = nil
			kill(SignalOf(ctx))
		case <-again:
			kill(syscall.SIGKILL)
		case <-suspensions:
			if isSuspended(cmd.Process.Pid) {
				kill(syscall.SIGCONT)
				c.Note("%s %s: the command cannot be suspended while it holds that; Ctrl-C ends it", c.Op, claim.Path)
			}
		case <-jeopardy:
			jeopardy = nil
			why = fserror.New(fserror.LeaseLost, c.Op, claim.Path, "%s", claim.Late)
			kill(syscall.SIGTERM)
			deadline = time.After(claim.lookIn())
		case <-deadline:
			if claim.killIn() > 0 {
				deadline = time.After(claim.lookIn())
				continue
			}
			deadline = nil
			kill(syscall.SIGKILL)
		case <-lost:
			lost, jeopardy, deadline = nil, nil, nil
			kill(syscall.SIGKILL) // it is another's already
			why = claim.lost(c.Op)
		}
	}
}

// isSuspended reports whether a child has stopped since this was last asked.
func isSuspended(child int) bool {
	const stopped = 5 // CLD_STOPPED, see sigaction(2)
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, child, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0 && info.Code == stopped
}

// inForeground reports whether the terminal is this process's to hand on: a job in the
// background must not take it from the shell.
func inForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// retakeTerminal makes this process's own group the terminal's again.
func retakeTerminal(terminal *os.File) {
	signal.Ignore(syscall.SIGTTOU)
	// A terminal that is gone needs no owner.
	_ = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
}

// exitOf turns how a command ended into an exit code.
func exitOf(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return Exit(128 + int(ws.Signal()))
	}
	return Exit(exit.ExitCode())
}
