package main

import (
	"bufio"
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// program is one run of leasefs: its streams and what the command line said.
type program struct {
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	out    *bufio.Writer // over stdout; flushed at the end and where somebody waits for it
	json   bool          // --json, known before the command line is fully parsed
}

func newProgram(stdin, stdout, stderr *os.File) *program {
	return &program{stdin: stdin, stdout: stdout, stderr: stderr, out: bufio.NewWriterSize(stdout, 64<<10)}
}

// run executes one command line (without the program's name) and returns the
// exit code.
func (p *program) run(argv []string) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	app := p.app()
	argv = asMount(app, os.Args[0], argv)
	p.json = saysJSON(argv)
	arranged, err := arrange(app, argv)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, arranged...))
	}
	if ferr := p.out.Flush(); err == nil && ferr != nil {
		err = outputError(ferr)
	}
	return p.report(lockUsage(err), context.Cause(ctx))
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ sig syscall.Signal }

func (i interrupted) Error() string { return "interrupted" }

// withSignals returns a context that the first SIGINT, SIGTERM or SIGHUP ends
// with the cause interrupted. From then on signals have their default effect:
// a second one kills. A SIGHUP that was ignored (nohup) stays ignored.
func withSignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	list := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	ch := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(ch, list...)
	go func() {
		select {
		case s := <-ch:
			signal.Stop(ch)
			signal.Reset(list...)
			if sig, ok := s.(syscall.Signal); ok {
				cancel(interrupted{sig})
			}
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}

// isTerminal says whether f is a terminal.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
