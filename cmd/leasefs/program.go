package main

import (
	"context"
	"os"
	"strings"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// program is one run of leasefs.
type program struct {
	screen.Printer
	stdin   *os.File
	signals *runner.Signals
	silent  atomic.Bool // nothing is said any more about what is waited for
}

func newProgram(stdin, stdout, stderr *os.File) *program {
	return &program{stdin: stdin, Printer: screen.New(stdout, stderr), signals: runner.NewSignals()}
}

// run executes one command line (without the program's name) and returns the
// exit code.
func (p *program) run(args []string) int {
	ctx, stop := p.signals.Watch(context.Background())
	defer stop()
	app := p.app()
	argv.SecondsInEnvironment(app.Flags)
	args = argv.Mount(app.Commands, os.Args[0], args)
	p.JSON = argv.JSON(args)
	arranged, command, err := argv.Arrange(grammar(app), args)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, arranged...))
	}
	if runs(command) {
		err = runner.Failed(err)
	}
	if ferr := p.Out.Flush(); err == nil && ferr != nil {
		err = screen.OutputError(ferr)
	}
	return p.Report(err, context.Cause(ctx))
}

// runs tells whether a command of leasefs runs one of the user's.
func runs(command string) bool { return command == "lock" || command == "register" }

// grammar is what command lines of leasefs are made of.
func grammar(app *cli.App) argv.Grammar {
	return argv.Grammar{
		Commands: app.Commands, Global: app.Flags, Runs: runs,
		// chmod -w PATH, chmod -rwx PATH: a mode, not flags.
		Operand: func(op, arg string) bool { return op == "chmod" && strings.Trim(arg[1:], "rwxXst") == "" },
	}
}
