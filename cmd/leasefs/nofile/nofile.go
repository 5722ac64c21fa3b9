// Package nofile ends a program that may have so few files open that the
// initialisation of other packages would panic: in words, with exit code 1. It
// imports nothing but syscall, and so is initialised before packages that import os.
package nofile

import "syscall"

// least is how many files the program must be allowed to have open to start.
const least = 16

func init() { //nolint:gochecknoinits // main is too late
	var l syscall.Rlimit
	// The soft limit does not count: package os raises it to the hard one.
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Max >= least {
		return
	}
	_, _ = syscall.Write(2, []byte("leasefs: the limit of open files is too low to start; raise it (ulimit -n 1024)\n")) // nobody is left to be told
	syscall.Exit(1)
}
