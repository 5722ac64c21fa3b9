package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
)

// grantedCommands are those for leases that are granted by hand.
func grantedCommands(p *program) []*cli.Command {
	return []*cli.Command{
		{
			Name:        "grant",
			Usage:       "get a lease with a time to live of its own",
			UsageText:   "leasefs lease grant --ttl D [--id ID]\n\nExample:\n  leasefs lease grant --ttl 30s",
			Description: "Prints the id of a new lease. Unless it is kept alive (lease keep-alive) it ends after its time to\nlive, and the files that are attached to it (create --lease, lease attach) are deleted.",
			Flags: []cli.Flag{
				&cli.DurationFlag{Name: "ttl", Usage: "it lives so `LONG` without a keep-alive; raised to the namenode's minimum", DefaultText: "it must be given"},
				&cli.StringFlag{Name: "id", Usage: "its `ID`, hexadecimal", DefaultText: "one that is free"},
			},
			Action: reading(p, operands{}, func(e *invocation) (client.LeaseID, error) {
				if !e.flags.IsSet("ttl") {
					return 0, argv.Usagef(e.op, "give a time to live with --ttl, such as --ttl 30s")
				}
				if _, err := e.timeToLive(); err != nil {
					return 0, err
				}
				return e.leaseFlag("id")
			}, grantLease),
		},
		{
			Name:        "keep-alive",
			Usage:       "keep leases alive",
			UsageText:   "leasefs lease keep-alive [--once] ID...\n\nExample:\n  leasefs lease keep-alive 2f1c6d0a",
			Description: "Keeps the leases alive until it is interrupted (that is success), or one of them ends (exit code 7).",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "once", Usage: "only now"}},
			Action:      reading(p, operands{min: 1, max: -1, names: "one ID or more", local: true}, leaseIDs, keepAlive),
		},
		{
			Name:        "ttl",
			Usage:       "show how long a lease lives",
			UsageText:   "leasefs lease ttl ID [--keys]\n\nExample:\n  leasefs lease ttl 2f1c6d0a --keys",
			Description: "Prints the time that remains of its time to live; with --keys also the files attached.",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "keys", Usage: "list the files that are attached to it"}},
			Action:      reading(p, operands{min: 1, max: 1, names: "an ID", local: true}, leaseIDs, leaseTTL),
		},
		{
			Name:        "revoke",
			Usage:       "end a lease and delete its files",
			UsageText:   "leasefs lease revoke ID\n\nExample:\n  leasefs lease revoke 2f1c6d0a",
			Description: "Ends a granted lease at once; the files that are attached to it are deleted.",
			Action:      reading(p, operands{min: 1, max: 1, names: "an ID", local: true}, leaseIDs, revokeLease),
		},
		{
			Name:        "attach",
			Usage:       "have files deleted when a lease ends",
			UsageText:   "leasefs lease attach ID PATH...\n\nExample:\n  leasefs lease attach 2f1c6d0a /run/worker-7",
			Description: "Attaches files, directories or links to a granted lease, away from another one if need be. A\ndirectory is deleted with all that is in it at that time.",
			Action:      reading(p, operands{min: 2, max: -1, names: "ID and one path or more", local: true}, leaseIDs, attachLease),
		},
		{
			Name:        "detach",
			Usage:       "keep files when their lease ends",
			UsageText:   "leasefs lease detach PATH...\n\nExample:\n  leasefs lease detach /run/worker-7",
			Description: "Detaches files, directories or links from their leases. It is no error if one is attached to none.",
			Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
				return e.each(func(path string) error { return e.fail(e.fs.Leases().Detach(e.ctx, path), path) })
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

// leaseFlag reads an id from a flag; 0 if it is not given. An empty one is most likely
// that of a grant that failed.
func (c *commandLine) leaseFlag(name string) (client.LeaseID, error) {
	s := c.flags.String(name)
	switch {
	case s != "":
		return c.leaseID(s)
	case c.flags.IsSet(name):
		return 0, argv.Usagef(c.op, "--%s is empty; give the ID of a lease, or leave the flag out", name)
	}
	return 0, nil
}

// leaseID reads an id from the command line.
func (c *commandLine) leaseID(s string) (client.LeaseID, error) {
	id, err := client.ParseLeaseID(s)
	if err != nil {
		var f *fserror.Error
		if errors.As(err, &f) {
			return 0, argv.Usagef(c.op, "%s", f.Message)
		}
	}
	return id, err
}

// leaseIDs checks the operands before anything is connected; only the first is
// an id where a path follows.
func leaseIDs(e *invocation) (ids []client.LeaseID, err error) {
	words := e.args
	if e.flags.Command.Name == "attach" {
		words = words[:1]
	}
	for _, s := range words {
		if s == "" {
			return nil, argv.Usagef(e.op, "an ID is empty")
		}
		id, err := e.leaseID(s)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func grantLease(e *invocation, id client.LeaseID) error {
	asked := e.flags.Duration("ttl")
	g, err := e.fs.Leases().Grant(e.ctx, asked, id)
	if err != nil {
		return e.fail(err, "")
	}
	if e.json {
		return e.printJSON(map[string]any{"lease": g.ID.String(), "ttl_ms": g.TTL.Milliseconds()})
	}
	e.printf("%s\n", g.ID)
	e.noteLife(asked, g.TTL, g.Outlives)
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
	if e.json {
		j := map[string]any{"lease": ids[0].String(), "ttl_ms": t.TTL.Milliseconds(), "remaining_ms": t.Remaining.Milliseconds(), "file_count": t.FileCount}
		if e.flags.Bool("keys") {
			j["attached"] = append([]string{}, t.Files...)
		}
		return e.printJSON(j)
	}
	e.printf("%s of %s\n", t.Remaining.Round(time.Millisecond), t.TTL)
	for _, path := range t.Files {
		e.printf("%s\n", e.name(path))
	}
	if n := uint64(len(t.Files)); e.flags.Bool("keys") && n < t.FileCount {
		e.printf("and %d more\n", t.FileCount-n)
	}
	return nil
}

func revokeLease(e *invocation, ids []client.LeaseID) error {
	if err := e.fs.Leases().Revoke(e.ctx, ids[0]); err != nil {
		return e.fail(err, "")
	}
	if e.json {
		return e.printJSON(map[string]any{"lease": ids[0].String()})
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
	e.args = paths
	return e.each(func(path string) error { return e.fail(e.fs.Leases().Attach(e.ctx, ids[0], path), path) })
}
