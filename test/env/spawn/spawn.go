// Package spawn starts programs for tests.
package spawn

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a program that does not outlive the tests, even if they are
// killed, and waits for it: exited is closed at its end, after which
// cmd.ProcessState says how it ended.
//
// Linux ends a process whose parent's thread ends, if asked to, and not only when
// the parent does. So each program has a thread of its own, which ends after it.
// All programs that are to end with the tests have to be started here: a thread
// that had started another one before would take that along.
func Start(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its state is looked at by those who wait for it
		}
	}()
	return ended, <-started
}
