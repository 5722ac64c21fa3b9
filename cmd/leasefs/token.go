package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/delegation"
)

func delegationCommand(p *program) *cli.Command {
	one := operands{min: 1, max: 1, names: "a FILE or ID", local: true}
	ref := func(e *invocation) (client.TokenRef, error) { return delegation.Ref(e.args[0]) }
	return &cli.Command{
		Name: "token", Usage: "get delegation tokens for jobs, renew and cancel them",
		UsageText: "leasefs token COMMAND\n\nExample:\n  leasefs token get --renewer yarn job.token",
		Description: "A delegation token lets a job be its user for a limited time. Its renewer makes it good for its time\n" +
			"again, for seven days at most; its user ends it. The namenodes have to give such tokens (--delegation-tokens).",
		Subcommands: []*cli.Command{{
			Name: "get", Usage: "get a token by which a job is you, for a limited time",
			UsageText:   "leasefs token get [--renewer USER] [--ttl D] FILE\n\nExample:\n  leasefs token get --renewer yarn job.token\n  leasefs --token-file job.token ls /",
			Description: "Puts a new delegation token into FILE, of mode 600, which is for --token-file; one that is there is\nreplaced. It can be renewed for seven days. Who has proven by such a token who he is gets none. The\nnamenodes have to give such tokens (--delegation-tokens).",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "renewer", Usage: "the user `NAME` who may renew it", DefaultText: "the user of the token"},
				&cli.DurationFlag{Name: "ttl", Usage: "it is good for this `LONG`, and after each renewal again", Value: 24 * time.Hour},
			},
			Action: reading(p, operands{min: 1, max: 1, names: "a FILE", local: true}, func(e *invocation) (time.Duration, error) {
				return e.flags.Duration("ttl"), e.atLeast("ttl", time.Second)
			}, func(e *invocation, ttl time.Duration) error {
				t, err := delegation.Get(e.ctx, e.fs, e.args[0], e.flags.String("renewer"), ttl)
				if err != nil {
					return e.fail(err, "")
				}
				return e.Result(delegation.JSON(t), "%s\n", delegation.Line(t))
			}),
		}, {
			Name: "renew", Usage: "make a token good for its time again", UsageText: "leasefs token renew FILE|ID\n\nExample:\n  leasefs token renew job.token",
			Description: "Only the renewer of the token may, with a proof other than a delegation token.",
			Action: reading(p, one, ref, func(e *invocation, r client.TokenRef) error {
				t, err := client.NewDelegationTokens(e.fs).Renew(e.ctx, r)
				if err != nil {
					return e.fail(err, "")
				}
				return e.Result(delegation.JSON(t), "%s\n", delegation.Line(t))
			}),
		}, {
			Name: "cancel", Usage: "end a token", UsageText: "leasefs token cancel FILE|ID\n\nExample:\n  leasefs token cancel job.token",
			Description: "Its bearer, its renewer and superusers may. Connections that have proven by it end within seconds.\nFILE is left as it is.",
			Action: reading(p, one, ref, func(e *invocation, r client.TokenRef) error {
				return e.fail(client.NewDelegationTokens(e.fs).Cancel(e.ctx, r), "")
			}),
		}, {
			Name: "ls", Usage: "list tokens", UsageText: "leasefs token ls [--all]\n\nExample:\n  leasefs token ls", Description: "Lists your delegation tokens that have not expired; with --all those of all users, for superusers.",
			Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "of all users"}}, Action: p.connected(operands{}, listTokens),
		}}}
}

func listTokens(e *invocation) error {
	w, header := e.Table(), delegation.Header+"\n"
	for t, err := range client.NewDelegationTokens(e.fs).List(e.ctx, e.flags.Bool("all")) {
		switch {
		case err != nil:
			return e.fail(err, "")
		case e.JSON:
			if err := e.PrintJSON(delegation.JSON(t)); err != nil {
				return err
			}
			continue
		}
		fmt.Fprint(w, header)
		header = ""
		delegation.Row(w, t)
	}
	return w.Flush()
}
