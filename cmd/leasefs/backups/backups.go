// Package backups has the commands that make a backup and verify one.
package backups

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/backup"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/offline"
)

// Call is a run of a command.
type Call struct {
	*screen.Printer
	Ctx   context.Context
	FS    *client.FS // nil if the command is not connected
	Flags *cli.Context
	Dir   string // the operand
	Op    string // the name of the command
}

// Action makes the action of a command that takes one folder on this machine.
type Action func(run func(*Call) error) cli.ActionFunc

// Command is the command backup. The action connected connects to the namespace.
func Command(connected, alone Action) *cli.Command {
	return &cli.Command{
		Name:      "backup",
		Usage:     "copy the namespace into a folder",
		UsageText: "leasefs admin backup [--tree-only|--since EARLIER] DIR\nleasefs admin backup verify DIR\n\nExample:\n  leasefs admin backup /mnt/backup/leasefs-$(date +%F)",
		Description: "Copies the namespace as of one moment into DIR, a new or empty folder on this machine: tree and\n" +
			"blocks, also those that are in a bucket. From it leasefs namenode --data can be started, and\n" +
			"leasefs admin restore makes a new ensemble. When it fails, the same command continues with the\n" +
			"blocks that it has copied. With --since, blocks that an earlier backup has are not read again:\n" +
			"both folders share them by hard links (on another disk they are copied from EARLIER), each is whole,\n" +
			"and either can be removed.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "tree-only", Usage: "leave the blocks out: for those who have another copy of the block store"},
			&cli.StringFlag{Name: "since", Usage: "take the blocks that it has from `EARLIER`, the folder of an earlier backup"},
		},
		Action: connected(run),
		Subcommands: []*cli.Command{{
			Name:      "verify",
			Usage:     "read all of a backup and check it",
			UsageText: "leasefs admin backup verify [--tree-only] DIR\n\nExample:\n  leasefs admin backup verify /mnt/backup/leasefs-2026-01-31",
			Description: "Reads the tree and every block of a backup, and compares them with their checksums. Needs no namenode\n" +
				"and changes nothing. Prints a line for each block that is missing or damaged; exit code 10 if there is one.",
			Flags:  []cli.Flag{&cli.BoolFlag{Name: "tree-only", Usage: "the backup was made without blocks"}},
			Action: alone(verify),
		}},
	}
}

func run(c *Call) error {
	bar := c.NewBar("copying")
	res, err := backup.Write(c.Ctx, c.FS.Admin(), c.Dir, backup.Options{
		TreeOnly: c.Flags.Bool("tree-only"), Since: c.Flags.String("since"), Progress: func(so backup.Result) { bar.Set(so.Bytes) },
	})
	bar.Finish()
	if err != nil {
		return fserror.With(err, c.Op, c.Dir)
	}
	in := res.InNamespace
	holds := fmt.Sprintf("with %s, %s and %s", screen.Plural(in.Files, "file", "files"), screen.Plural(in.Directories, "directory", "directories"), screen.Plural(in.Symlinks, "link", "links"))
	if in.Directories == 0 { // there is the root, at least
		holds = "of a namenode that does not tell what the namespace has"
	}
	since := ""
	if c.Flags.String("since") != "" {
		since = fmt.Sprintf("; %s of them, %d bytes, from %s", screen.Plural(uint64(max(res.Since, 0)), "block", "blocks"), res.SinceBytes, c.Name(c.Flags.String("since")))
	}
	return c.Result(map[string]any{
		"txid": res.TxID, "namespace_files": in.Files, "namespace_directories": in.Directories, "namespace_symlinks": in.Symlinks,
		"files": res.Files, "bytes": res.Bytes, "blocks": res.Blocks, "block_bytes": res.BlockBytes, "reused": res.Reused,
		"since_blocks": res.Since, "since_bytes": res.SinceBytes,
	}, "%s: txid %d, %s; the backup itself is %s, %d bytes, of which %s, %d bytes%s\n", c.Name(c.Dir), res.TxID, holds,
		screen.Plural(uint64(max(res.Files, 0)), "file", "files"), res.Bytes, screen.Plural(res.Blocks, "block", "blocks"), res.BlockBytes, since)
}

func verify(c *Call) error {
	bar := c.NewBar("verifying")
	rep, err := offline.VerifyBackup(c.Ctx, vfs.OS(), c.Dir, c.Flags.Bool("tree-only"), func(p offline.BackupProblem) error {
		of := p.Path
		if of == "" {
			of = "(no path)"
		}
		return c.Result(map[string]any{"path": screen.OrNull(p.Path), "block": p.Block, "problem": p.Problem}, "%s: %s: %s\n", c.Name(of), c.Name(p.Block), p.Problem)
	}, bar.Set)
	bar.Finish()
	if err != nil {
		return fserror.With(err, c.Op, c.Dir)
	}
	blocks := fmt.Sprintf("%s, %d bytes, are good", screen.Plural(rep.Blocks, "block", "blocks"), rep.Bytes)
	if rep.TreeOnly {
		blocks = "the tree is good"
	}
	err = c.Result(map[string]any{
		"namespace": hex.EncodeToString(rep.ID[:]), "txid": rep.TxID, "time_ms": rep.Time.UnixMilli(), "namespace_files": rep.Files,
		"tree_only": rep.TreeOnly, "blocks": rep.Blocks, "bytes": rep.Bytes, "problems": rep.Problems,
	}, "%s: txid %d of %s, with %s; %s, %s\n", c.Name(c.Dir), rep.TxID, screen.ShortTime(rep.Time),
		screen.Plural(uint64(max(rep.Files, 0)), "file", "files"), blocks, screen.Plural(uint64(max(rep.Problems, 0)), "problem", "problems"))
	if err == nil && rep.Problems > 0 {
		err = fserror.New(fserror.Damaged, c.Op, c.Dir, "%s missing or damaged: take another backup, without blocks from this one", screen.Plural(uint64(rep.Problems), "block is", "blocks are")).Because(fserror.ReasonNoBackup)
	}
	return err
}
