// Command leasefs is the one program of leasefs: it serves a namespace
// (leasefs namenode) and works with one (everything else).
//
// It holds no logic of its own. A command checks its arguments, calls package
// client, transfer, bench or namenode, and prints what it got; there is one
// file a command or close family:
//
//	main.go, program.go  the process: streams, signals, exit code
//	nofile               the end in words when hardly any file can be open
//	app.go, globals.go   the tree of commands, the flags of all of them
//	commandline.go       what was typed after a command: operands and flags
//	argv                 flags before, after and between operands; the TOML file
//	runner               signals; a command that runs while a claim is held
//	config.go, tls.go    settings of the TOML file, certificates
//	screen               results, tables, JSON lines, bars, one-line errors and their hints
//
// What scripts may depend on (names, JSON keys, exit codes) is in docs/CLI.md.
package main

import (
	"os"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	_ "github.com/leasefs/leasefs/cmd/leasefs/nofile" // before the packages that would panic
	"github.com/leasefs/leasefs/internal/release"
)

var version = release.Name()

func main() {
	argv.UnsetEmpty("LEASEFS_")
	p := newProgram(os.Stdin, os.Stdout, os.Stderr)
	os.Exit(p.run(os.Args[1:]))
}
