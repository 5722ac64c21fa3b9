package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/internal/fserror"
)

func lockCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "lock",
		Usage:     "run a command while holding a path as a lock",
		UsageText: "leasefs lock [--ttl D] [--wait D] PATH -- COMMAND...\n\nExample:\n  leasefs lock --ttl 15s --wait 1h /locks/nightly -- sh -c 'backup --fence $LEASEFS_TOKEN'",
		Description: "Opens PATH for write (it is made if missing, and stays) and runs COMMAND for as long as nobody\n" +
			"else can have it. LEASEFS_TOKEN in its environment is the fencing token: it grows with each\n" +
			"holder, and what COMMAND changes elsewhere should refuse a smaller one than it has seen.\n" +
			"When renewals do not come through, COMMAND gets SIGTERM, and SIGKILL before the lock can be\n" +
			"another's. A supervisor that is itself stopped cannot do that: then the token protects.\n" +
			"SIGINT, SIGTERM or SIGHUP to lock is passed on to COMMAND and all that it has\n" +
			"started; a second one kills them.\n" +
			"The exit code is COMMAND's (128 + N if signal N ended it; 127 if it is not found, 126 if it\n" +
			"cannot be executed); of a failure of the lock itself it is 100 + the usual code, such as\n" +
			"105 (held by another) and 107 (lost). Put -- before COMMAND: flags before it are lock's,\n" +
			"those after it COMMAND's.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Usage: "the lock is free this `LONG` after this machine is dead; several namenodes raise it to their minimum", DefaultText: "the namenode's soft limit"},
			&cli.DurationFlag{Name: "wait", Usage: "wait up to `LONG` for the lock; waiters are served in order", DefaultText: "not at all"},
		},
		Action: p.action(operands{min: 2, max: -1, names: "PATH -- COMMAND", local: true}, lock),
	}
}

// leastLock is the shortest time to live that a session can have of its own.
const leastLock = 100 * time.Millisecond

func lock(e *invocation) error {
	path, err := e.path(e.args[0])
	if err != nil {
		return err
	}
	command, err := runner.Find(e.op, e.args[1:])
	if err != nil {
		return err
	}
	ttl := e.flags.Duration("ttl")
	if e.flags.IsSet("ttl") && ttl < leastLock {
		return argv.Usagef(e.op, "--ttl %s: give a time to live of at least %s, such as --ttl 15s, or leave it out for the namenode's soft limit", ttl, leastLock)
	}
	if err := e.connect(func(cfg *client.Config) { cfg.TTL = ttl }); err != nil {
		var refused *fserror.Error
		if ttl > 0 && errors.As(err, &refused) && refused.Kind == fserror.InvalidArgument {
			return argv.Usagef(e.op, "--ttl %s: %s", ttl, refused.Message)
		}
		return err
	}
	l, err := e.fs.Lock(e.ctx, path, client.LockOptions{Wait: e.flags.Duration("wait")})
	if err != nil {
		return errors.Join(e.fail(err, path), e.fs.Close())
	}
	e.noteLife(ttl, l.TTL(), l.Outlives())
	command.Env = []string{"LEASEFS_TOKEN=" + strconv.FormatUint(l.Token(), 10)}
	return e.runWhile(command, runner.Claim{
		Path: path, Lost: l.Context(), Jeopardy: l.Jeopardy(), Remaining: l.Remaining,
		Late: "the lock was not renewed in time; the command was ended before another could have it",
	}, l.Unlock)
}

// noteLife notes if a time to live is not the one that was asked for (0: none was), or is
// shorter than a failover can take.
func (e *invocation) noteLife(asked, got time.Duration, outlives bool) {
	if e.Quiet {
		return
	}
	if asked > 0 && got > asked {
		e.Note("the time to live was raised to %s, the namenode's minimum", got)
	}
	if !outlives {
		e.Note("warning: a time to live of %s is shorter than a failover of the namenodes can take; a longer --ttl outlives one", got)
	}
}

// giveUpGrace is for how long, after a signal or after the claim was lost, the program
// tries to give back what the command ran under.
const giveUpGrace = 2 * time.Second

// runWhile runs a command while a claim is held for it, gives the claim back with giveUp,
// and closes the client.
func (e *invocation) runWhile(command *runner.Command, held runner.Claim, giveUp func(context.Context) error) error {
	command.Stdin, command.Stdout, command.Stderr, command.Note = e.stdin, e.Stdout, e.Stderr, e.Note
	err := command.Run(e.ctx, e.signals, held)
	// If the claim may be another's already, or a person waits for the end, do not wait
	// long for a namenode that does not answer.
	ctx := context.WithoutCancel(e.ctx)
	if errors.Is(err, fserror.LeaseLost) || e.ctx.Err() != nil {
		e.silent.Store(true) // what follows need not be reported
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, giveUpGrace)
		defer cancel()
	}
	gerr := giveUp(ctx)
	if e.ctx.Err() != nil { // interrupted: an error of giving it back does not count
		gerr = nil
	}
	cerr := e.fs.Close()
	var code runner.Exit
	if err == nil || errors.As(err, &code) {
		// A command that ran without its claim is no success, whatever its exit code.
		if gerr != nil {
			return e.fail(gerr, held.Path)
		}
		if cerr != nil {
			return e.fail(cerr, held.Path)
		}
	}
	return err
}
