// Package rewind is the half of leasefs admin restore that brings a namespace back as it was
// at a moment of the archive, into a folder.
package rewind

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/offline"
)

// newest is the moment of that name.
const newest = "newest"

// Description is what the command's help says of it.
const Description = "With --at, it writes the namespace as of that moment to DIR, a new folder, as a backup\n" +
	"(see leasefs namenode --archive). The store is not changed, and namenodes may run. With --path only\n" +
	"that file or directory comes back, as plain files at DIR, with their permissions and times.\n\n"

// Flags are those of the command besides the ones of a restore to an ensemble.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "at", Usage: "bring back what was at `MOMENT` into DIR: newest, a txid, or a time with its zone such as 2026-01-31T15:04:05Z"},
		&cli.StringFlag{Name: "path", Usage: "with --at: bring back only the file or directory `PATH`, as plain files"},
		&cli.BoolFlag{Name: "tree-only", Usage: "with --at: leave the blocks where they are, for a namenode that takes the store over"},
	}
}

// Moment reads what --at says.
func Moment(op, text string) (at archive.At, err error) {
	if text == newest {
		return at, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		return archive.At{TxID: n}, nil
	}
	if at.Time, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	return at, argv.Usagef(op, "--at: %q is no moment: newest, a txid, or a time with its zone such as 2026-01-31T15:04:05Z or 2026-01-31T16:04:05+01:00", text)
}

// Run brings a namespace back into a folder, and prints what that was.
func Run(ctx context.Context, op string, p *screen.Printer, cfg namenode.Config, flags *cli.Context, args []string) error {
	at, err := Moment(op, flags.String("at"))
	cfg.Blocks = flags.String("blocks")
	switch {
	case err != nil:
		return err
	case len(args) == 0:
		return argv.Usagef(op, "--at needs DIR, a new folder for what was")
	case cfg.Blocks == "":
		return argv.Usagef(op, "--at needs --blocks URL, the store that has the archive")
	case flags.String("zookeeper") != "" || flags.String("take-over") != "":
		return argv.Usagef(op, "--at writes a folder, and speaks to no ZooKeeper: restore the folder to an ensemble afterwards")
	}
	r := offline.Rewinding{ID: flags.String("id"), At: at, Dir: args[0], TreeOnly: flags.Bool("tree-only"), Path: flags.String("path")}
	if r.TreeOnly && r.Path != "" {
		return argv.Usagef(op, "--path brings back files with all that is in them, and --tree-only leaves that out: give one of the two")
	}
	if r.Config, err = cfg.Offline(); err != nil {
		return err
	}
	bar := p.NewBar("copying")
	r.Progress = bar.Set
	if r.Path != "" {
		return files(ctx, op, p, bar, r)
	}
	done, err := offline.Rewind(ctx, r)
	bar.Finish()
	if err != nil {
		return err
	}
	when := done.Time.UTC().Format(time.RFC3339Nano)
	return p.Result(map[string]any{
		"id": hex.EncodeToString(done.ID[:]), "txid": done.TxID, "time": when, "files": done.Files,
		"blocks": done.Blocks, "block_bytes": done.BlockBytes, "newest": done.Last,
	}, "%s: txid %d of %s (the newest that is archived is %d), %s, %s (%d bytes)\n", args[0], done.TxID, when, done.Last,
		screen.Plural(uint64(done.Files), "file", "files"), screen.Plural(uint64(done.Blocks), "block", "blocks"), done.BlockBytes) //nolint:gosec // counts
}

// files brings back a part as plain files, and prints what that was.
func files(ctx context.Context, op string, p *screen.Printer, bar *screen.Bar, r offline.Rewinding) error {
	done, err := offline.RewindFiles(ctx, r)
	bar.Finish()
	if err != nil {
		return err
	}
	when := done.Time.UTC().Format(time.RFC3339Nano)
	err = p.Result(map[string]any{
		"id": hex.EncodeToString(done.ID[:]), "txid": done.TxID, "time": when, "files": done.Files, "bytes": done.Bytes,
		"missing": append([]string{}, done.Missing...), "newest": done.Last,
	}, "%s: txid %d of %s (the newest that is archived is %d), %s (%d bytes)\n", r.Dir, done.TxID, when, done.Last,
		screen.Plural(uint64(done.Files), "file", "files"), done.Bytes) //nolint:gosec // a count
	if err == nil && len(done.Missing) > 0 {
		first := done.Missing[:min(len(done.Missing), 10)]
		more := ""
		if rest := len(done.Missing) - len(first); rest > 0 {
			more = fmt.Sprintf(" and %d more", rest)
		}
		err = fserror.New(fserror.Damaged, op, "", "left out, since blocks of them are gone or damaged: %s%s; all else is there", strings.Join(first, ", "), more).Because(fserror.ReasonArchive)
	}
	return err
}
