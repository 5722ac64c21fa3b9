package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/internal/fserror"
)

func registerCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "register",
		Usage:     "run a command, and have a path exist for as long as it runs",
		UsageText: "leasefs register [--ttl D] [--data STRING|@FILE] [--wait] [-p] PATH -- COMMAND...\n\nExample:\n  leasefs register -p --data 10.0.0.7:80 /services/web/7 -- web --port 80",
		Description: "Makes the file PATH with the data, attached to a new lease, keeps that alive while COMMAND runs,\n" +
			"and deletes PATH when COMMAND ends. If register is killed, or its machine dies, PATH is deleted\n" +
			"after the time to live. A PATH that exists is refused (exit code 104); --wait waits until it is\n" +
			"gone. COMMAND's environment has LEASEFS_LEASE, the lease's id, and LEASEFS_TOKEN, a fencing\n" +
			"token: it grows with each registration of PATH. When keep-alives do not come through, COMMAND\n" +
			"gets SIGTERM, and SIGKILL before PATH can be another's; signals and exit codes are as with lock.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Usage: "if this machine dies, delete PATH this `LONG` after that; raised to the namenode's minimum", Value: 30 * time.Second},
			&cli.StringFlag{Name: "data", Usage: "what PATH contains: the `TEXT`, or with @FILE what that file contains", DefaultText: "nothing"},
			&cli.BoolFlag{Name: "wait", Usage: "wait while PATH is taken"},
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make missing parent directories, which stay"},
		},
		Action: p.action(operands{min: 2, max: -1, names: "PATH -- COMMAND", local: true}, register),
	}
}

// registration is a path that says that a command runs.
type registration struct {
	*invocation
	path string
	data []byte
	kept *client.KeptLease
}

func register(e *invocation) error {
	path, err := e.path(e.args[0])
	if err != nil {
		return err
	}
	if path == "/" {
		return argv.Usagef(e.op, "the root directory cannot be registered; name a path below it")
	}
	command, err := runner.Find(e.op, e.args[1:])
	if err != nil {
		return err
	}
	ttl, err := e.timeToLive()
	if err != nil {
		return err
	}
	data, err := e.registered(e.flags.String("data"))
	if err != nil {
		return err
	}
	if err := e.connect(nil); err != nil {
		return err
	}
	r := &registration{e, path, data, nil}
	token, err := r.begin(ttl)
	if err != nil {
		return errors.Join(e.fail(err, path), e.fs.Close())
	}
	command.Env = []string{"LEASEFS_TOKEN=" + strconv.FormatUint(token, 10), "LEASEFS_LEASE=" + r.kept.ID().String()}
	return e.runWhile(command, runner.Claim{
		Path: path, Lost: r.kept.Context(), Jeopardy: r.kept.Jeopardy(0), Remaining: r.kept.Remaining,
		Late: "the lease was not kept alive in time; the command was ended before the path could be another's",
	}, r.end)
}

// mostRegistered is how much data a registration can have: as much as one call carries.
const mostRegistered = 1 << 20

// registered is the data that --data names.
func (e *invocation) registered(says string) ([]byte, error) {
	name, file := strings.CutPrefix(says, "@")
	if !file {
		return []byte(says), nil
	}
	f, err := os.Open(name) //nolint:gosec // the user's own
	if err != nil {
		return nil, argv.Usagef(e.op, "--data: %s; name a file of this machine that can be read, or give the text itself", err)
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, mostRegistered+1))
	if err != nil {
		return nil, argv.Usagef(e.op, "--data: %s; name a file of this machine that can be read, or give the text itself", err)
	}
	if len(data) > mostRegistered {
		return nil, argv.Usagef(e.op, "--data: %s has more than %d bytes; register where the data is instead", name, mostRegistered)
	}
	return data, nil
}

// begin makes the path, and returns its token. After an error nothing is left of it, if
// a namenode answers.
func (r *registration) begin(ttl time.Duration) (token uint64, err error) {
	// A lease whose grant a signal cut short could not be revoked: nobody would know its id.
	granting, enough := context.WithCancel(context.WithoutCancel(r.ctx))
	defer enough()
	defer context.AfterFunc(r.ctx, func() { time.AfterFunc(giveUpGrace, enough) })()
	g, err := r.fs.Leases().Grant(granting, ttl, 0)
	if err != nil {
		return 0, err
	}
	r.noteLife(ttl, g.TTL, g.Outlives)
	if r.kept, err = r.fs.Leases().Hold(r.ctx, g.ID); err == nil {
		token, err = r.make()
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), giveUpGrace)
		defer cancel()
		r.silent.Store(true)
		_ = r.fs.Leases().Revoke(ctx, g.ID) // if it fails, the lease ends by itself
	}
	return token, err
}

// make makes the path, with --wait once it is free.
func (r *registration) make() (token uint64, err error) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.kept.Context(), func() { cancel(context.Cause(r.kept.Context())) })()
	opts := []client.OpenOption{client.WithLease(r.kept.ID())}
	if r.flags.Bool("parents") {
		opts = append(opts, client.WithParents())
	}
	var w *client.Watcher // begun before the next try, so that it misses nothing
	for {
		err := r.fs.WriteFile(ctx, r.path, r.data, opts...)
		switch {
		case err == nil:
			return r.token(ctx)
		case fserror.KindOf(err) != fserror.Exists || !r.flags.Bool("wait"):
		case w == nil:
			if w, err = r.fs.Watch(ctx, r.path, client.WatchOptions{}); err == nil {
				defer w.Close() // there is a second one only after TooOld
			}
		default:
			if err = untilMoved(w, r.path); fserror.KindOf(err) == fserror.TooOld {
				w.Close()
				w, err = nil, nil
			}
		}
		if err != nil {
			return 0, r.whileWaiting(err, w)
		}
	}
}

// whileWaiting is the error of make for err.
func (r *registration) whileWaiting(err error, w *client.Watcher) error {
	if w == nil || fserror.KindOf(err) != fserror.NotFound {
		return err
	}
	return fserror.New(fserror.NotFound, r.op, r.path, "its directory was removed or renamed while the name was waited for; make it again, or register elsewhere")
}

// untilMoved waits until a path may have become free.
func untilMoved(w *client.Watcher, path string) error {
	for {
		events, err := w.Next()
		for _, ev := range events {
			if (ev.Type == client.EventDelete || ev.Type == client.EventRename) && strings.HasPrefix(path+"/", ev.Path+"/") {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// token returns the number of a change that is not before the registration: so a later
// registration of the path gets a greater one.
func (r *registration) token(ctx context.Context) (uint64, error) {
	fi, err := r.fs.Stat(ctx, r.path)
	if err == nil && fi.Lease != r.kept.ID() {
		err = fserror.New(fserror.LeaseLost, r.op, r.path, "another client has taken the path already; register it again")
	}
	if err != nil {
		return 0, err
	}
	return fi.TxID, nil
}

// end deletes the path. LeaseLost if the lease was lost before.
func (r *registration) end(ctx context.Context) error {
	err := r.fs.Leases().Revoke(ctx, r.kept.ID())
	if fserror.KindOf(err) == fserror.NotFound {
		return fserror.New(fserror.LeaseLost, r.op, r.path, "its lease ended before the command did; the path may have been another's meanwhile")
	}
	return err
}
