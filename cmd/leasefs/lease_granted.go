package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

// grantedCommands are those for leases that are granted by hand.
func grantedCommands(p *program) []*cli.Command {
	return []*cli.Command{
		{
			Name:        "grant",
			Usage:       "get a lease with a time to live of its own",
			UsageText:   "leasefs lease grant --ttl D [--id ID | --name NAME]\n\nExample:\n  leasefs lease grant --ttl 30s --name server-1",
			Description: "Prints the id of a new lease. Unless it is kept alive (lease keep-alive) it ends after its time to\nlive, and the files that are attached to it (create --lease, lease attach) are deleted. Its NAME, which\nno other of your leases may have, can be given instead of its ID.",
			Flags: []cli.Flag{
				&cli.DurationFlag{Name: "ttl", Usage: "it lives this `LONG` without a keep-alive; raised to the namenode's minimum", DefaultText: "it must be given"},
				&cli.StringFlag{Name: "id", Usage: "its `ID`, hexadecimal", DefaultText: "one that is free"},
				&cli.StringFlag{Name: "name", Usage: "a `NAME` for it, such as server-1", DefaultText: "none"},
			},
			Action: reading(p, operands{}, grantOptions, grantLease),
		},
		{
			Name:        "keep-alive",
			Usage:       "keep leases alive",
			UsageText:   "leasefs lease keep-alive [--once] ID|NAME...\n\nExample:\n  leasefs lease keep-alive 2f1c6d0a",
			Description: "Keeps the leases alive until it is interrupted (that is success), or one of them ends (exit\ncode 7): the others are then left to their times to live. With --once they are kept alive one after the\nother, up to the first that is not there.",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "once", Usage: "only now"}},
			Action:      reading(p, operands{min: 1, max: -1, names: "one ID or NAME, or more", local: true}, leaseNames, withLeases(keepAlive)),
		},
		{
			Name:        "ttl",
			Usage:       "show how long a lease lives",
			UsageText:   "leasefs lease ttl ID|NAME [--keys]\n\nExample:\n  leasefs lease ttl 2f1c6d0a --keys",
			Description: "Prints the time that remains of its time to live; with --keys also the files attached.",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "keys", Usage: "list the files that are attached to it"}},
			Action:      reading(p, operands{min: 1, max: 1, names: "an ID or NAME", local: true}, leaseNames, withLeases(leaseTTL)),
		},
		{
			Name:        "revoke",
			Usage:       "end a lease and delete its files",
			UsageText:   "leasefs lease revoke ID|NAME\n\nExample:\n  leasefs lease revoke 2f1c6d0a",
			Description: "Ends a granted lease at once; the files that are attached to it are deleted.",
			Action:      reading(p, operands{min: 1, max: 1, names: "an ID or NAME", local: true}, leaseNames, withLeases(revokeLease)),
		},
		{
			Name:        "attach",
			Usage:       "have files deleted when a lease ends",
			UsageText:   "leasefs lease attach ID|NAME PATH...\n\nExample:\n  leasefs lease attach 2f1c6d0a /run/worker-7",
			Description: "Attaches files, directories or links to a granted lease, away from another one if need be. A\ndirectory is deleted with all that is in it at that time. Up to 64 are attached at once or not\nat all; more are attached 64 at a time.",
			Action:      reading(p, operands{min: 2, max: -1, names: "ID or NAME and one path or more", local: true}, leaseNames, withLeases(attachLease)),
		},
		{
			Name:        "detach",
			Usage:       "keep files when their lease ends",
			UsageText:   "leasefs lease detach PATH...\n\nExample:\n  leasefs lease detach /run/worker-7",
			Description: "Detaches files, directories or links from their leases. It is no error if one is attached to none.\nUp to 64 are detached at once or not at all; more are detached 64 at a time.",
			Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
				return e.together(e.args, func(some ...string) error { return e.fs.Leases().Detach(e.ctx, some...) })
			}),
		},
	}
}

// The times to live that can be asked for; the namenode has a minimum besides.
const (
	leastGrant = time.Millisecond
	mostGrant  = 365 * 24 * time.Hour
)

// timeToLive is --ttl of a granted lease.
func (c *commandLine) timeToLive() (time.Duration, error) {
	ttl := c.flags.Duration("ttl")
	if ttl < leastGrant || ttl > mostGrant {
		return 0, argv.Usagef(c.op, "--ttl %s: give a time to live from %s to 365 days, such as --ttl 30s; one below the namenode's minimum (1s, or of several namenodes three session time-outs, unless it was set) is raised to that", ttl, leastGrant)
	}
	return ttl, nil
}

// leaseFlag is the id or name of a lease in a flag, empty if it is not given. One that is
// given and empty is most likely that of a grant that failed.
func (c *commandLine) leaseFlag(name string) (string, error) {
	s := c.flags.String(name)
	if s == "" && c.flags.IsSet(name) {
		return "", argv.Usagef(c.op, "--%s is empty; give the ID or NAME of a lease, or leave the flag out", name)
	}
	return s, nil
}

// withLease is the open option for a lease named by its id or its name.
func (e *invocation) withLease(lease string, opts []client.OpenOption) ([]client.OpenOption, error) {
	if lease == "" {
		return opts, nil
	}
	id, err := e.fs.Leases().Find(e.ctx, lease)
	return append(opts, client.WithLease(id)), err
}

// leaseNames checks before anything is connected that no operand is empty; only the first
// names a lease where a path follows.
func leaseNames(e *invocation) (names []string, err error) {
	names = e.args
	if e.flags.Command.Name == "attach" {
		names = names[:1]
	}
	if slices.Contains(names, "") {
		return nil, argv.Usagef(e.op, "an ID is empty")
	}
	return names, nil
}

// withLeases calls f with the ids of leases, each named by its id or its name.
func withLeases(f func(*invocation, []client.LeaseID) error) func(*invocation, []string) error {
	return func(e *invocation, names []string) error {
		ids := make([]client.LeaseID, len(names))
		for i, name := range names {
			var err error
			if ids[i], err = e.fs.Leases().Find(e.ctx, name); err != nil {
				return e.fail(err, "")
			}
		}
		return f(e, ids)
	}
}

// newLease is how a lease is granted.
type newLease struct {
	ttl  time.Duration
	id   client.LeaseID
	name string
}

// grantOptions reads --ttl, --id and --name.
func grantOptions(e *invocation) (o newLease, err error) {
	if !e.flags.IsSet("ttl") {
		return o, argv.Usagef(e.op, "give a time to live with --ttl, such as --ttl 30s")
	}
	if o.ttl, err = e.timeToLive(); err != nil {
		return o, err
	}
	id, err := e.leaseFlag("id")
	if err != nil {
		return o, err
	}
	o.name = e.flags.String("name")
	switch {
	case o.name == "" && e.flags.IsSet("name"):
		return o, argv.Usagef(e.op, "--name is empty; give the lease a NAME, or leave the flag out")
	case id != "" && o.name != "":
		return o, argv.Usagef(e.op, "--id and --name exclude each other; a lease with a name gets an id that is free")
	case id != "":
		o.id, err = client.ParseLeaseID(id)
	}
	var f *fserror.Error
	if errors.As(err, &f) {
		err = argv.Usagef(e.op, "%s", f.Message)
	}
	return o, err
}

func grantLease(e *invocation, o newLease) error {
	grant := func() (client.Granted, error) { return e.fs.Leases().Grant(e.ctx, o.ttl, o.id) }
	if o.name != "" {
		grant = func() (client.Granted, error) { return e.fs.Leases().GrantNamed(e.ctx, o.ttl, o.name) }
	}
	g, err := grant()
	if err != nil {
		return e.fail(err, "")
	}
	if e.JSON {
		return e.PrintJSON(map[string]any{"lease": g.ID.String(), "name": screen.OrNull(g.Name), "ttl_ms": g.TTL.Milliseconds()})
	}
	e.Printf("%s\n", g.ID)
	e.noteLife(o.ttl, g.TTL, g.Outlives)
	return nil
}

func keepAlive(e *invocation, ids []client.LeaseID) error {
	kept := make([]*client.KeptLease, 0, len(ids))
	for _, id := range ids {
		k, err := e.fs.Leases().Hold(e.ctx, id)
		if err != nil {
			return e.fail(err, "")
		}
		kept = append(kept, k)
	}
	if e.flags.Bool("once") {
		return nil
	}
	ended := make(chan error, len(kept))
	for _, k := range kept {
		context.AfterFunc(k.Context(), func() { ended <- context.Cause(k.Context()) })
	}
	select {
	case <-e.ctx.Done():
		return nil
	case err := <-ended:
		return e.fail(err, "")
	}
}

func leaseTTL(e *invocation, ids []client.LeaseID) error {
	t, err := e.fs.Leases().TimeToLive(e.ctx, ids[0], e.flags.Bool("keys"))
	if err != nil {
		return e.fail(err, "")
	}
	if e.JSON {
		j := map[string]any{"lease": ids[0].String(), "name": screen.OrNull(t.Name), "ttl_ms": t.TTL.Milliseconds(), "remaining_ms": t.Remaining.Milliseconds(), "file_count": t.FileCount}
		if e.flags.Bool("keys") {
			j["attached"] = append([]string{}, t.Files...)
		}
		return e.PrintJSON(j)
	}
	e.Printf("%s of %s\n", t.Remaining.Round(time.Millisecond), t.TTL)
	for _, path := range t.Files {
		e.Printf("%s\n", e.Name(path))
	}
	if n := uint64(len(t.Files)); e.flags.Bool("keys") && n < t.FileCount {
		e.Printf("and %d more\n", t.FileCount-n)
	}
	return nil
}

func revokeLease(e *invocation, ids []client.LeaseID) error {
	if err := e.fs.Leases().Revoke(e.ctx, ids[0]); err != nil {
		return e.fail(err, "")
	}
	if e.JSON {
		return e.PrintJSON(map[string]any{"lease": ids[0].String()})
	}
	return nil
}

func attachLease(e *invocation, ids []client.LeaseID) error {
	paths := make([]string, len(e.args)-1)
	for i := range paths { // all of them before the first is attached
		var err error
		if paths[i], err = e.path(e.args[i+1]); err != nil {
			return err
		}
	}
	return e.together(paths, func(some ...string) error { return e.fs.Leases().Attach(e.ctx, ids[0], some...) })
}

// together calls f with some paths after others, as many as one change of the namespace
// takes.
func (e *invocation) together(paths []string, f func(some ...string) error) error {
	done := uint64(0)
	for some := range slices.Chunk(paths, client.MaxTxOps) {
		only := ""
		if len(some) == 1 {
			only = some[0]
		}
		if err := f(some...); err != nil {
			if done > 0 {
				e.Note("the first %s were done before that", screen.Plural(done, "path", "paths"))
			}
			return e.fail(err, only)
		}
		done += uint64(len(some))
	}
	return nil
}
