package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/call"
	"github.com/leasefs/leasefs/cmd/leasefs/csi"
	"github.com/leasefs/leasefs/cmd/leasefs/gateway"
	"github.com/leasefs/leasefs/cmd/leasefs/quota"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/cmd/leasefs/snapshot"
	"github.com/leasefs/leasefs/cmd/leasefs/traces"
	"github.com/leasefs/leasefs/cmd/leasefs/trash"
)

// app is the tree of commands. It is built for each run: the parser
// writes into it.
func (p *program) app() *cli.App {
	app := &cli.App{
		Name:      "leasefs",
		Usage:     "a file namespace with at most one writer a file",
		UsageText: "leasefs [global options] COMMAND [options] [arguments]\n\nExample:\n  leasefs namenode --data /var/lib/leasefs &\n  date | leasefs append --create -p /logs/a\n  leasefs cat /logs/a",
		Description: "Paths in the namespace are absolute. Flags may stand before and after the arguments;\n" +
			"\"--\" ends them. leasefs COMMAND --help tells about one command.",
		Version:               version,
		Flags:                 globalFlags(),
		Commands:              p.commands(),
		Before:                p.before,
		HideHelpCommand:       true,
		Writer:                p.Out,
		ErrWriter:             p.Stderr,
		CustomAppHelpTemplate: appHelp,
		OnUsageError:          onUsageError,
		ExitErrHandler:        func(*cli.Context, error) {},
	}
	app.UsageText = indented(app.UsageText)
	withoutDefaults(app.Flags)
	finish(app.Commands)
	return app
}

// commands are listed in the order in which help shows them.
func (p *program) commands() []*cli.Command {
	return []*cli.Command{
		namenodeCommand(p),
		createCommand(p), appendCommand(p), closeCommand(p),
		putCommand(p), getCommand(p),
		catCommand(p), headCommand(p), tailCommand(p),
		lsCommand(p), treeCommand(p), findCommand(p), statCommand(p), duCommand(p), dfCommand(p),
		mkdirCommand(p), cpCommand(p), mvCommand(p), rmCommand(p), trash.Command(p.called), quota.Command(p.called), snapshot.Command(p.called), touchCommand(p), truncateCommand(p), concatCommand(p),
		chmodCommand(p), chownCommand(p), xattrCommand(p), aclCommand(p), lnCommand(p), txnCommand(p),
		leaseCommand(p), lockCommand(p), registerCommand(p), watchCommand(p), delegationCommand(p),
		mountCommand(p), gateway.Command(p.action(operands{}, serveGateway), logLevelFlag("info")), csi.Command(p.action(operands{}, serveCSI), logLevelFlag("info")),
		loginCommand(p), logoutCommand(p), whoamiCommand(p),
		statusCommand(p), adminCommand(p),
		benchCommand(p), completionCommand(p), manCommand(p), versionCommand(p),
	}
}

// finish gives every command what all have in common.
func finish(list []*cli.Command) {
	for _, c := range list {
		c.HideHelpCommand = true
		c.OnUsageError = onUsageError
		c.CustomHelpTemplate = commandHelp
		c.UsageText = indented(c.UsageText)
		withoutDefaults(c.Flags)
		if len(c.Subcommands) > 0 {
			c.CustomHelpTemplate = groupHelp
		}
		finish(c.Subcommands)
	}
}

// indented moves all lines but the first to where help has the first.
func indented(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n  "), "\n  \n", "\n\n")
}

// withoutDefaults keeps "(default: false)" out of help.
func withoutDefaults(flags []cli.Flag) {
	for _, f := range flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true
		}
	}
}

const appHelp = `{{.Name}} {{.Version}}: {{.Usage}}

Usage:
  {{.UsageText}}

{{.Description}}

Commands:{{range .VisibleCommands}}
  {{printf "%-11s" .Name}} {{.Usage}}{{end}}

Global options:{{range .VisibleFlags}}
  {{.}}{{end}}
`

const groupHelp = `{{.HelpName}}: {{.Usage}}

Usage:
  {{.UsageText}}

{{.Description}}

Commands:{{range .VisibleCommands}}
  {{printf "%-11s" .Name}} {{.Usage}}{{end}}
{{if gt (len .VisibleFlags) 1}}
Options:{{range .VisibleFlags}}
  {{.}}{{end}}
{{end}}
Global options: leasefs --help
`

const commandHelp = `{{.HelpName}}: {{.Usage}}

Usage:
  {{.UsageText}}

{{.Description}}

Options:{{range .VisibleFlags}}
  {{.}}{{end}}

Global options: leasefs --help
`

// goFlag is how the parser's messages write a flag.
var goFlag = regexp.MustCompile(`flag -(\w[\w-]*)`)

// onUsageError makes one line of what the parser found.
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := goFlag.ReplaceAllString(err.Error(), "flag --$1")
	return argv.Usagef(commandPath(c), "%s", strings.TrimSuffix(text, "."))
}

// commandPath is the command without the program's name, such as "lease ls".
func commandPath(c *cli.Context) string {
	if c.Command == nil {
		return ""
	}
	_, path, _ := strings.Cut(c.Command.HelpName, " ")
	return path
}

// invocation is what an action works with.
type invocation struct {
	*program
	commandLine
	ctx context.Context
	fs  *client.FS
}

// action checks the operands and runs f. Unless they are local, operands are
// cleaned paths when f gets them.
func (p *program) action(want operands, f func(*invocation) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		e := &invocation{program: p, ctx: c.Context, commandLine: commandLine{flags: c, op: commandPath(c), args: c.Args().Slice()}}
		if n := len(e.args); n < want.min || want.max >= 0 && n > want.max {
			if want.max == 0 {
				return argv.Usagef(e.op, "takes no arguments, got %q", e.args[0])
			}
			return argv.Usagef(e.op, "takes %s, got %s", want.names, screen.Plural(uint64(n), "argument", "arguments"))
		}
		if !want.local {
			for i := range e.args {
				path, err := e.path(e.args[i])
				if err != nil {
					return err
				}
				e.args[i] = path
			}
		}
		return f(e)
	}
}

// connected is action with a connection to the namespace in e.fs. The checks,
// of what the flags say, come before the connection.
func (p *program) connected(want operands, f func(*invocation) error, checks ...func(*invocation) error) cli.ActionFunc {
	return p.action(want, func(e *invocation) error {
		for _, check := range checks {
			if err := check(e); err != nil {
				return err
			}
		}
		return traces.Command(e.ctx, e.op, e.flags.String("traces"), version, e.PrintError, func(ctx context.Context) error {
			e.ctx = ctx
			if err := e.connect(nil); err != nil {
				return err
			}
			err := f(e)
			// Closing also closes files that are still open; a command that
			// succeeded has none left.
			return cmp.Or(err, e.fs.Close())
		})
	})
}

// called is connected for a command in a package of its own. Its operands are as they were typed.
func (p *program) called(least, most int, names string, run func(*call.Call) error) cli.ActionFunc {
	return p.connected(operands{min: least, max: most, names: names, local: true}, func(e *invocation) error {
		return e.fail(run(&call.Call{Printer: &e.Printer, Ctx: e.ctx, FS: e.fs, Flags: e.flags, Args: e.args, Op: e.op}), "")
	})
}

// reading is connected for a command that makes a T of its command line before it
// connects.
func reading[T any](p *program, want operands, read func(*invocation) (T, error), f func(*invocation, T) error) cli.ActionFunc {
	var v T
	return p.connected(want, func(e *invocation) error { return f(e, v) }, func(e *invocation) (err error) {
		v, err = read(e)
		return err
	})
}

// each runs f for every operand, continues after an error, and returns the first.
func (e *invocation) each(f func(path string) error) error {
	var first error
	for _, path := range e.args {
		err := f(path)
		if err == nil {
			continue
		}
		if len(e.args) == 1 || e.ctx.Err() != nil {
			return err
		}
		e.PrintError(err)
		if first == nil {
			first = screen.Reported(err)
		}
	}
	return first
}

// The library's own help and version flags claim -h and -v, which our commands
// use otherwise (du -h).
func init() {
	cli.HelpFlag = &cli.BoolFlag{Name: "help", Usage: "show help", DisableDefaultText: true}
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintln(c.App.Writer, "leasefs", c.App.Version) }
}
