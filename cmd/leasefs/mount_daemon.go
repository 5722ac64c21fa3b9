package main

import (
	"io"
	"log/slog"
	"log/syslog"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

// daemonFD is the descriptor by which a daemon tells that it is mounted; the
// variable of that name says which.
const daemonFD = "LEASEFS_DAEMON_FD"

// isDaemon tells whether this process was started by daemonize.
func isDaemon() bool { return os.Getenv(daemonFD) != "" }

// daemonize starts this command line again in a session of its own, and waits
// until it has mounted or has failed, of which it tells itself.
func (e *invocation) daemonize() error {
	exe, err := os.Executable()
	if err != nil {
		return fserror.Wrap(fserror.Internal, e.op, e.args[0], err)
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return fserror.Wrap(fserror.Internal, e.op, e.args[0], err)
	}
	defer func() { _ = told.Close() }() // only read
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), daemonFD+"=3")
	cmd.Stdout, cmd.Stderr = e.Stdout, e.Stderr
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = tell.Close() // the child has it
	if err != nil {
		return fserror.Wrap(fserror.Internal, e.op, e.args[0], err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-e.ctx.Done():
			_ = cmd.Process.Signal(runner.SignalOf(e.ctx)) // it may have ended
		case <-stop:
		}
	}()
	if word, _ := io.ReadAll(told); len(word) > 0 {
		return nil
	}
	_ = cmd.Wait() // its exit code counts
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return runner.Exit(code)
	}
	return fserror.New(fserror.Internal, e.op, e.args[0], "the process in the background ended: %s", cmd.ProcessState)
}

// becomeDaemon lets go of the terminal and tells the process that waits.
func becomeDaemon() error {
	fd, err := strconv.Atoi(os.Getenv(daemonFD))
	if err != nil {
		return fserror.New(fserror.InvalidArgument, "mount", "", "%s is not for users", daemonFD)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fserror.Wrap(fserror.Internal, "mount", "", err)
	}
	for std := range 3 {
		if err := unix.Dup2(int(null.Fd()), std); err != nil {
			return fserror.Wrap(fserror.Internal, "mount", "", err)
		}
	}
	_ = os.Chdir("/") // so that no other mount is held; not possible is no harm
	tell := os.NewFile(uintptr(fd), "ready")
	_, err = tell.Write([]byte("ready"))
	if cerr := tell.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fserror.Wrap(fserror.Internal, "mount", "", err)
	}
	return nil
}

// daemonLogger logs to the system's log if there is one.
func daemonLogger(o *slog.HandlerOptions) *slog.Logger {
	w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_WARNING, "leasefs")
	if err != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(screen.WithHints(slog.NewTextHandler(w, o)))
}
