package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
)

// streamFlags are those that create and append share.
func streamFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "flush", Usage: "`WHEN` to make input durable: line, block, or an interval such as 500ms", DefaultText: "line from a terminal, else whenever no more input is there"},
		&cli.BoolFlag{Name: "ack", Usage: "print the durable length in bytes, a number a line, after each flush"},
		&cli.BoolFlag{Name: "keep-open", Usage: "leave the file open for write when the command ends"},
	}
}

func createCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "make a file from standard input",
		UsageText: "leasefs create [options] PATH\n\nExample:\n  tar c /etc | leasefs create -p /backup/etc.tar",
		Description: "Makes a new file, writes standard input to it as it comes, and closes it at the end of\n" +
			"the input. Ctrl-C closes it at the flushed length. With --keep-open nobody renews the\n" +
			"lease after the command: the file can be taken after the soft limit, is closed at the hard\n" +
			"one, and a command with the same --client name takes or closes it at once. With --lease the\n" +
			"file is there when it is complete, at the end of the input, unless --flush, --ack or\n" +
			"--keep-open say that it is to be seen before.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "overwrite", Usage: "replace an existing file"},
			&cli.BoolFlag{Name: "steal", Usage: "with --overwrite: even if another has it open for write"},
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make missing parent directories"},
			&cli.StringFlag{Name: "lease", Usage: "delete the file when the granted lease `ID|NAME` ends"},
		}, streamFlags()...),
		Action: reading(p, operands{min: 1, max: 1, names: "PATH"}, createOptions, create),
	}
}

func appendCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "append",
		Usage:     "write standard input to the end of a file",
		UsageText: "leasefs append [options] PATH\n\nExample:\n  journalctl -f | leasefs append --create -p --flush line /logs/host-1",
		Description: "Opens a file at its end, writes standard input to it as it comes, and closes it at the end\n" +
			"of the input. With --resume, and the whole input each time, a writer that begins again after a\n" +
			"crash writes each byte exactly once; with --at it says itself from where its input is. Ctrl-C\n" +
			"closes at the flushed length.",
		Flags: append([]cli.Flag{
			&cli.Int64Flag{Name: "at", Usage: "only if the file's length is `N` bytes", DefaultText: "whatever it is"},
			&cli.BoolFlag{Name: "resume", Usage: "the input is that of the whole file: skip what it has already"},
			&cli.BoolFlag{Name: "compare", Usage: "with --resume: check that the file has what is skipped"},
			&cli.DurationFlag{Name: "wait", Usage: "wait up to `LONG` for a holder to finish or to lapse", DefaultText: "not at all"},
			&cli.BoolFlag{Name: "create", Usage: "make the file if it is missing"},
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "with --create: make missing parent directories"},
			&cli.StringFlag{Name: "lease", Usage: "with --create: delete the file when the granted lease `ID|NAME` ends"},
		}, streamFlags()...),
		Action: reading(p, operands{min: 1, max: 1, names: "PATH"}, appendOptions, appendTo),
	}
}

func closeCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "close",
		Usage:       "complete a file that this --client name holds",
		UsageText:   "leasefs close PATH\n\nExample:\n  leasefs --client job-7 close /out/part-7",
		Description: "Closes, at its flushed length, a file that an earlier command with the same --user and\n--client left open (--keep-open, or it died). Prints the length.",
		Action: p.connected(operands{min: 1, max: 1, names: "PATH"}, func(e *invocation) error {
			n, err := e.fs.CloseFile(e.ctx, e.args[0])
			if err != nil {
				return e.fail(err, e.args[0])
			}
			return e.Summary(map[string]any{"path": e.args[0], "length": n}, "%d\n", n)
		}),
	}
}

// streamOptions are how a file is opened and written to.
type streamOptions struct {
	open  []client.OpenOption
	lease string // id or name
	pump  transfer.PumpOptions
}

func createOptions(e *invocation) (o streamOptions, err error) {
	if e.flags.Bool("steal") && !e.flags.Bool("overwrite") {
		return o, argv.Usagef(e.op, "--steal needs --overwrite")
	}
	for flag, opt := range map[string]client.OpenOption{
		"overwrite": client.WithOverwrite(), "steal": client.WithSteal(), "parents": client.WithParents(),
	} {
		if e.flags.Bool(flag) {
			o.open = append(o.open, opt)
		}
	}
	if o.lease, err = e.leaseFlag("lease"); err != nil {
		return o, err
	}
	o.pump, err = e.pumpOptions()
	return o, err
}

func appendOptions(e *invocation) (o streamOptions, err error) {
	switch resume := e.flags.Bool("resume"); {
	case resume && e.flags.IsSet("at"):
		return o, argv.Usagef(e.op, "--resume and --at exclude each other")
	case e.flags.IsSet("lease") && !e.flags.Bool("create"):
		return o, argv.Usagef(e.op, "--lease needs --create; leasefs lease attach attaches a file that is there")
	case e.flags.Bool("compare") && !resume:
		return o, argv.Usagef(e.op, "--compare needs --resume")
	}
	if e.flags.IsSet("at") {
		o.open = append(o.open, client.WithExpectedLength(e.flags.Int64("at")))
	}
	if e.flags.Bool("create") {
		o.open = append(o.open, client.WithCreate())
	}
	if e.flags.Bool("parents") {
		o.open = append(o.open, client.WithParents())
	}
	if d := e.flags.Duration("wait"); d > 0 {
		o.open = append(o.open, client.WithWait(d))
	}
	if o.lease, err = e.leaseFlag("lease"); err != nil {
		return o, err
	}
	o.pump, err = e.pumpOptions()
	return o, err
}

func create(e *invocation, o streamOptions) (err error) {
	if o.open, err = e.withLease(o.lease, o.open); err != nil {
		return e.fail(err, e.args[0])
	}
	if o.lease != "" && !e.flags.IsSet("flush") && !e.flags.Bool("ack") && !e.flags.Bool("keep-open") {
		_, err := e.fs.WriteFrom(e.ctx, e.args[0], e.input(), o.open...)
		return e.fail(err, e.args[0])
	}
	w, err := e.fs.Create(e.ctx, e.args[0], o.open...)
	if err != nil {
		return e.fail(err, e.args[0])
	}
	return (&stream{e, w}).run(e.stdin, o.pump)
}

func appendTo(e *invocation, o streamOptions) (err error) {
	if o.open, err = e.withLease(o.lease, o.open); err != nil {
		return e.fail(err, e.args[0])
	}
	w, err := e.fs.Append(e.ctx, e.args[0], o.open...)
	if err != nil {
		return e.fail(err, e.args[0])
	}
	if !e.flags.Bool("resume") {
		return (&stream{e, w}).run(e.stdin, o.pump)
	}
	if !e.flags.Bool("compare") {
		return (&stream{e, w}).run(transfer.Resume(e.stdin, w.Durable(), nil), o.pump)
	}
	return e.open(e.args[0], func(r *client.Reader) error {
		return (&stream{e, w}).run(transfer.Resume(e.stdin, w.Durable(), io.NewSectionReader(r, 0, w.Durable())), o.pump)
	})
}

// input is standard input until a signal comes, which its error tells then.
func (e *invocation) input() io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(e.ctx, func() { _ = w.CloseWithError(context.Cause(e.ctx)) })
	go func() {
		_, err := io.Copy(w, e.stdin)
		_ = w.CloseWithError(err)
	}()
	return r
}

// pumpOptions reads --flush.
func (e *invocation) pumpOptions() (transfer.PumpOptions, error) {
	var opts transfer.PumpOptions
	switch when := e.flags.String("flush"); when {
	case "":
		if screen.IsTerminal(e.stdin) {
			opts.Mode = transfer.FlushLine
		}
	case "line":
		opts.Mode = transfer.FlushLine
	case "block":
		opts.Mode = transfer.FlushBlock
	default:
		d, err := argv.ParseDuration(when)
		if err != nil || d <= 0 {
			return opts, argv.Usagef(e.op, "--flush: %q is not line, block or an interval such as 500ms", when)
		}
		opts.Mode, opts.Every = transfer.FlushEvery, d
	}
	return opts, nil
}

// stream is a file that standard input is written to.
type stream struct {
	*invocation
	w *client.Writer
}

// ack prints a durable length. Somebody waits for it: it is flushed at once.
func (s *stream) ack(length int64) error {
	s.Printf("%d\n", length)
	return s.Flush()
}

// run writes what is left of standard input to the file and ends it as the flags say.
func (s *stream) run(in io.Reader, opts transfer.PumpOptions) error {
	// With SIGPIPE asked for, a reader of --ack that went away is an error of
	// the write, and the file is closed as after any other.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	acked, ack := s.w.Durable(), s.flags.Bool("ack")
	if ack {
		opts.Durable = func(length int64) error {
			acked = length
			return s.ack(length)
		}
	}
	err := transfer.Pump(s.ctx, s.w, in, opts)
	if err == nil && !s.flags.Bool("keep-open") {
		err = s.w.CloseContext(s.ctx)
	} else if err == nil {
		if err = s.w.Flush(s.ctx); err == nil {
			err = s.w.Detach()
		}
	}
	if err != nil {
		return s.broken(err)
	}
	if ack && s.w.Durable() != acked { // the close made the rest durable
		return s.ack(s.w.Durable())
	}
	return nil
}

// broken gives the file up at its flushed length, and says so after a signal.
func (s *stream) broken(err error) error {
	err = s.fail(err, s.w.Path())
	if errors.Is(err, fserror.LeaseLost) {
		_ = s.w.AbortContext(s.ctx) // there is nothing left to close
		return err
	}
	cerr := s.w.AbortContext(s.ctx)
	if errors.Is(cerr, fserror.Closed) { // it was while it was closed that things went wrong
		if cerr = context.Cause(s.w.Context()); errors.Is(cerr, fserror.Closed) {
			cerr = nil
		}
	}
	var sig runner.Interrupted
	if !errors.As(context.Cause(s.ctx), &sig) {
		return err
	}
	if cerr != nil {
		return screen.Stopped("%s %s: interrupted, and it could not be closed: %v", s.op, s.w.Path(), cerr)
	}
	return screen.Stopped("%s %s: interrupted; closed at %d bytes", s.op, s.w.Path(), s.w.Durable())
}
