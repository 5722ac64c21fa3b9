// Package rewind is the half of leasefs admin restore that brings a namespace back as it was
// at a moment of the archive, into a folder.
package rewind

import (
	"context"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/offline"
)

// newest is the moment of that name.
const newest = "newest"

// Description is what the command's help says of it.
const Description = "With --at, it writes the namespace as of that moment to DIR, a new folder, as a backup\n" +
	"(see leasefs namenode --archive). The store is not changed, and namenodes may run.\n\n"

// Flags are those of the command besides the ones of a restore to an ensemble.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "at", Usage: "bring back what was at `MOMENT` into DIR: newest, a txid, or a time such as 2026-01-31T15:04:05Z"},
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
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05"} { // the second one in local time
		if at.Time, err = time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return at, argv.Usagef(op, "--at: %q is no moment: newest, a txid, or a time such as 2026-01-31T15:04:05Z", text)
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
	r := offline.Rewinding{ID: flags.String("id"), At: at, Dir: args[0], TreeOnly: flags.Bool("tree-only")}
	if r.Config, err = cfg.Offline(); err != nil {
		return err
	}
	bar := p.NewBar("copying")
	r.Progress = bar.Set
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
