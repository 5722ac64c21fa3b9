package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/prove"
)

func tokenCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "token",
		Usage:     "make a token that proves who its bearer is",
		UsageText: "leasefs admin token FILE USER [GROUP...]\n\nExample:\n  leasefs admin token ci.token ci >>/etc/leasefs/tokens",
		Description: "Puts a new token of USER into the new FILE, which only its owner may read and which is for\n" +
			"--token-file, and prints the line for the file of --tokens of the namenodes. GROUPs take the place of\n" +
			"the user's groups on the namenode's machine. To revoke a token, remove its line. Asks no namenode.",
		Action: p.action(operands{min: 2, max: -1, names: "FILE USER [GROUP...]", local: true}, func(e *invocation) error {
			line, err := prove.Token(e.args[0], e.args[1], e.args[2:])
			if err != nil {
				return e.fail(err, "")
			}
			return e.Result(map[string]any{"line": line}, "%s\n", line)
		}),
	}
}

func caCommand(p *program) *cli.Command {
	life := &cli.DurationFlag{Name: "life", Usage: "it is good for this `LONG`", Value: 365 * 24 * time.Hour}
	revoke := &cli.StringFlag{Name: "revoke", Usage: "add the certificate in `FILE` to the list of revoked ones"}
	return &cli.Command{
		Name:      "ca",
		Usage:     "make an authority, and certificates that it signs",
		UsageText: "leasefs admin ca [--life D] [--host HOSTS] DIR [NAME]\n  leasefs admin ca --revoke FILE DIR\n\nExample:\n  leasefs admin ca ca\n  leasefs admin ca --host nn1.example,10.0.0.1 ca nn1\n  leasefs admin ca ca ann\n  leasefs admin ca --revoke ann.pem ca",
		Description: "For those who have no authority of their own. Without NAME it makes one in DIR: ca.pem, for --tls-ca and\n" +
			"--tls-client-ca, ca.crl, for --tls-client-crl, and ca.key, which stays there. With NAME it makes\n" +
			"NAME.pem and NAME.key in this folder, signed by it: of the user NAME, or with --host of a server at\n" +
			"these hosts. With --revoke it adds one of them to ca.crl, which is for all namenodes. No other\n" +
			"file is replaced. Asks no namenode.",
		Flags: []cli.Flag{life, revoke, &cli.StringFlag{Name: "host", Usage: "`HOSTS` by which clients reach the server, names or IP addresses, with commas between"}},
		Action: p.action(operands{min: 1, max: 2, names: "DIR [NAME]", local: true}, func(e *invocation) error {
			if err := e.atLeast("life", time.Minute); err != nil {
				return err
			}
			now, long := time.Now(), e.flags.Duration("life")
			var hosts []string
			if h := e.flags.String("host"); h != "" {
				hosts = strings.Split(h, ",")
			}
			if file := e.flags.String("revoke"); file != "" {
				if len(e.args) > 1 {
					return argv.Usagef(e.op, "--revoke makes no certificate: leave out %q", e.args[1])
				}
				list, err := prove.Revoke(e.args[0], file, now)
				if err != nil {
					return e.fail(err, "")
				}
				return e.Result(map[string]any{"list": list}, "%s\n", list)
			}
			if len(e.args) == 1 {
				cert, err := prove.Authority(e.args[0], "leasefs", now, 10*long)
				if err != nil {
					return e.fail(err, "")
				}
				return e.Result(map[string]any{"certificate": cert}, "%s\n", cert)
			}
			cert, key, err := prove.Certificate(e.args[0], e.args[1], hosts, now, long, ".")
			if err != nil {
				return e.fail(err, "")
			}
			return e.Result(map[string]any{"certificate": cert, "key": key}, "%s %s\n", cert, key)
		}),
	}
}
