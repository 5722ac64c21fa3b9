package main

import (
	"bufio"
	"context"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
)

// program is one run of leasefs.
type program struct {
	printer
	stdin   *os.File
	signals *signals
	silent  atomic.Bool // nothing is said any more about what is waited for
}

func newProgram(stdin, stdout, stderr *os.File) *program {
	return &program{stdin: stdin, printer: printer{stdout: stdout, stderr: stderr, out: bufio.NewWriterSize(stdout, 64<<10)}, signals: &signals{again: make(chan struct{}, 1)}}
}

// run executes one command line (without the program's name) and returns the
// exit code.
func (p *program) run(args []string) int {
	ctx, stop := p.signals.watch(context.Background())
	defer stop()
	app := p.app()
	secondsInEnvironment(app.Flags)
	args = argv.Mount(app.Commands, os.Args[0], args)
	p.json = argv.JSON(args)
	arranged, command, err := argv.Arrange(grammar(app), args)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, arranged...))
	}
	if command == "lock" {
		err = ofLock(err)
	}
	if ferr := p.out.Flush(); err == nil && ferr != nil {
		err = outputError(ferr)
	}
	return p.report(err, context.Cause(ctx))
}

// grammar is what command lines of leasefs are made of.
func grammar(app *cli.App) argv.Grammar {
	return argv.Grammar{
		Commands: app.Commands, Global: app.Flags, Runs: "lock",
		// chmod -w PATH, chmod -rwx PATH: a mode, not flags.
		Operand: func(op, arg string) bool { return op == "chmod" && strings.Trim(arg[1:], "rwxXst") == "" },
	}
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ sig syscall.Signal }

func (i interrupted) Error() string { return "interrupted" }

// signals are what the first SIGINT, SIGTERM or SIGHUP ends, and who cares for
// the next ones.
type signals struct {
	claimed atomic.Bool
	again   chan struct{}
}

// claim keeps the signals after the first from killing the program: they come
// from the channel, until release. It must not be counted on if the context has
// ended when claim returns: that signal may have been the last that is caught.
func (s *signals) claim() (again <-chan struct{}, release func()) {
	s.claimed.Store(true)
	return s.again, func() { s.claimed.Store(false) }
}

// watch returns a context that the first SIGINT, SIGTERM or SIGHUP ends with the
// cause interrupted. From then on signals have their default effect, unless
// somebody claims them: a second one kills. A SIGHUP that was ignored (nohup)
// stays ignored.
func (s *signals) watch(parent context.Context) (context.Context, func()) {
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
					cancel(interrupted{sig}) // before claimed is asked, see claim
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

// isTerminal says whether f is a terminal.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
