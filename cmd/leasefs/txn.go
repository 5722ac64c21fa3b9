package main

import (
	"io"
	"io/fs"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/steps"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
)

// maxSteps is how many bytes of steps are read at most.
const maxSteps = 4 << 20

func txnCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "txn",
		Usage:     "change several paths together or not at all",
		UsageText: "leasefs txn [STEP...]\n\nExample:\n  leasefs txn 'if missing /job/owner' 'create /job/owner \"worker 7\"' 'mv /job/new /job/taken'",
		Description: "Does all operations at once if all compares hold, else nothing (exit code 11 if a compare does\n" +
			"not). Each STEP is an argument, or without arguments a line of standard input:\n\n" +
			"  if exists PATH            if missing PATH           if inode PATH NUMBER\n" +
			"  if epoch PATH NUMBER      if length PATH BYTES      if xattr PATH NAME VALUE\n" +
			"  if lease ID\n" +
			"  create [-p] [-m MODE] [--lease LEASE] PATH [CONTENT]\n" +
			"  write [-p] [-m MODE] [--lease LEASE] PATH [CONTENT]   (replaces a file, too)\n" +
			"  mkdir [-p] [-m MODE] PATH   mv [--overwrite] FROM TO    rm PATH\n" +
			"  xattr set PATH NAME VALUE   xattr rm PATH NAME          attach LEASE PATH\n" +
			"  detach PATH\n\n" +
			"Words with spaces go in double quotes, with \\n and \\\" as in Go. Lines that begin with # are\n" +
			"comments. At most 64 compares, 64 operations and 1 MiB in all; no two operations may touch\n" +
			"one path. LEASE is an id or a name.",
		Action: reading(p, operands{max: -1, names: "steps", local: true}, readSteps, func(e *invocation, script *steps.Script) (err error) {
			for name := range script.Leases {
				if script.Leases[name], err = e.fs.Leases().Find(e.ctx, name); err != nil {
					return e.fail(err, "")
				}
			}
			tx := client.NewTx(e.fs)
			for _, step := range append(script.Compares, script.Operations...) {
				step(tx)
			}
			txid, err := tx.Commit(e.ctx)
			if err != nil {
				return e.fail(err, "")
			}
			if !e.JSON {
				return nil
			}
			return e.PrintJSON(map[string]any{"txid": txid})
		}),
	}
}

// readSteps reads the steps from the arguments, or standard input.
func readSteps(e *invocation) (*steps.Script, error) {
	texts := e.args
	if len(texts) == 0 {
		data, err := io.ReadAll(io.LimitReader(e.stdin, maxSteps+1))
		if err != nil {
			return nil, fserror.Wrap(fserror.Internal, "read standard input", "", err)
		}
		if len(data) > maxSteps {
			return nil, argv.Usagef(e.op, "the steps have more than %d bytes", maxSteps)
		}
		texts = []string{string(data)}
	}
	dirMode := fs.FileMode(0o777)
	if mask := filemode.Umask(); mask != nil {
		dirMode &^= *mask
	}
	script, err := steps.Parse(dirMode, texts...)
	switch {
	case err != nil:
		return nil, argv.Usagef(e.op, "%v", err)
	case len(script.Operations) == 0:
		return nil, argv.Usagef(e.op, "there is no operation to do")
	}
	return script, nil
}
