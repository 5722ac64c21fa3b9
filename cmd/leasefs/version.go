package main

import "github.com/urfave/cli/v2"

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		UsageText:   "leasefs version\n\nExample:\n  leasefs version",
		Description: "Prints the version of this program, as --version does. That of each namenode is in leasefs status.",
		Action: p.action(operands{}, func(e *invocation) error {
			if e.json {
				return e.printJSON(map[string]any{"version": version})
			}
			e.printf("leasefs %s\n", version)
			return nil
		}),
	}
}
