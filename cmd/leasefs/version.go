package main

import (
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/manual"
)

func versionCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		UsageText:   "leasefs version\n\nExample:\n  leasefs version",
		Description: "Prints the version of this program, as --version does. That of each namenode is in leasefs status.",
		Action: p.action(operands{}, func(e *invocation) error {
			return e.Result(map[string]any{"version": version}, "leasefs %s\n", version)
		}),
	}
}

func manCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page",
		UsageText:   "leasefs man\n\nExample:\n  leasefs man | man -l -",
		Description: "Prints the page for man(1), with the help of all commands.",
		Action: p.action(operands{local: true}, func(e *invocation) error {
			e.Printf("%s", manual.Page(p.app()))
			return nil
		}),
	}
}

func completionCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a script that completes commands and flags in a shell",
		UsageText: "leasefs completion bash|zsh|fish\n\nExample:\n  leasefs completion bash > /etc/bash_completion.d/leasefs",
		Description: "Prints a script for the shell to read at its start. It knows commands and flags; it asks no\n" +
			"namenode.",
		Action: p.action(operands{min: 1, max: 1, names: "one of bash, zsh, fish", local: true}, func(e *invocation) error {
			script := argv.Script(e.args[0], grammar(p.app()))
			if script == "" {
				return argv.Usagef(e.op, "%q is none of bash, zsh, fish", e.args[0])
			}
			e.Printf("%s", script)
			return nil
		}),
	}
}
