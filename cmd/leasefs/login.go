package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/login"
	"github.com/leasefs/leasefs/cmd/leasefs/room"
)

func loginCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "login",
		Usage:     "log in at an issuer of tokens (OpenID Connect)",
		UsageText: "leasefs login [--issuer URL --client-id ID] [options]\n\nExample:\n  leasefs --namenode nn1.example:8020 --tls login --issuer https://login.example --client-id leasefs",
		Description: "Gets a token that proves who you are to the namenodes in --namenode, which all commands, mounts and\n" +
			"gateways that name only these show and renew from then on. In a browser on this machine, or where none can\n" +
			"be seen by a code. It is kept in a file that only you may read, in ~/.config/leasefs/logins or as --login\n" +
			"says. leasefs whoami tells who you are then, leasefs logout ends it.",
		Flags: login.Flags(),
		Action: p.action(operands{}, func(e *invocation) error {
			cfg, err := e.clientConfig()
			if err != nil {
				return err
			}
			l, id, err := login.Begin(e.ctx, e.op, e.flags, cfg, func(format string, args ...any) {
				_, _ = fmt.Fprintf(e.Stderr, format+"\n", args...) // also with --quiet: nothing works without
			})
			if err != nil {
				return e.fail(err, "")
			}
			return e.Result(map[string]any{"user": id.User, "issuer": l.Issuer, "ends": l.Ends.UTC().Format(time.RFC3339), "renews": l.Refresh != ""},
				"you are %s\n", id.User)
		}),
	}
}

func logoutCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "logout",
		Usage:       "end a login",
		UsageText:   "leasefs logout\n\nExample:\n  leasefs --namenode nn1.example:8020 logout",
		Description: "Removes the login for the namenodes in --namenode, and tells the issuer that it is over. A token that\n" + "was stolen before is good until it ends.",
		Action: p.action(operands{}, func(e *invocation) error {
			cfg, err := e.clientConfig()
			if err != nil {
				return err
			}
			l, removed, told, err := login.End(e.ctx, &cfg)
			if !removed || l == nil {
				return e.fail(err, "")
			}
			if !told {
				e.Note("the login is removed here; the issuer %s was not told", l.Issuer)
			}
			return cmp.Or(e.fail(err, ""), e.Result(map[string]any{"issuer": l.Issuer, "told": told}, ""))
		}),
	}
}

func whoamiCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "whoami",
		Usage:       "show who you are to the namenode",
		UsageText:   "leasefs whoami\n\nExample:\n  leasefs whoami",
		Description: "Shows the user and the groups for whom the namenode takes you, whether you have proven that, by a\ncertificate or a token, and until when; then what you hold of what all share (files: those open for\nwrite), and how much of it you may have, as far as you hold some or have a limit of your own.",
		Action: p.action(operands{}, func(e *invocation) error {
			cfg, err := e.clientConfig()
			if err != nil {
				return err
			}
			id, err := client.WhoAmI(e.ctx, cfg)
			if err != nil {
				return e.fail(err, "")
			}
			var until *string
			how := "not proven: the namenode takes your word"
			if id.Proven {
				how = "proven"
			}
			if !id.Until.IsZero() {
				text := id.Until.UTC().Format(time.RFC3339)
				until, how = &text, how+" until "+text
			}
			if id.Superuser {
				how += ", superuser"
			}
			err = e.Result(map[string]any{"user": id.User, "groups": append([]string{}, id.Groups...), "superuser": id.Superuser, "proven": id.Proven, "until": until, "held": room.HeldOf(id.Held)},
				"%s (%s)%s\n", id.User, how, groupList(id.Groups))
			if err != nil || e.JSON {
				return err
			}
			return room.OwnTable(&e.Printer, id.Held)
		}),
	}
}

func groupList(groups []string) string {
	if len(groups) == 0 {
		return ""
	}
	return " groups " + strings.Join(groups, ", ")
}
