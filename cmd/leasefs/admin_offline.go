package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/offline"
)

func journalCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "journal",
		Usage:       "look into a journal on this machine",
		UsageText:   "leasefs admin journal COMMAND\n\nExample:\n  leasefs admin journal verify /var/lib/leasefs",
		Description: "Reads the journal in a namenode's data folder and changes nothing.",
		Subcommands: []*cli.Command{
			{
				Name:        "dump",
				Usage:       "print the records",
				UsageText:   "leasefs admin journal dump [--from TXID] DIR\n\nExample:\n  leasefs admin journal dump /var/lib/leasefs | jq 'select(.op == \"Create\")'",
				Description: "Prints a journal, a JSON object a record. Tokens of writers are left out, and of bytes only the\nnumber is shown.",
				Flags:       []cli.Flag{&cli.Int64Flag{Name: "from", Usage: "only records from this `TXID` on"}},
				Action: p.action(operands{min: 1, max: 1, names: "DIR", local: true}, func(e *invocation) error {
					from := uint64(e.flags.Int64("from")) //nolint:gosec // not negative
					return e.fail(offline.DumpJournal(e.ctx, vfs.OS(), e.args[0], from, e.Out), e.args[0])
				}),
			},
			{
				Name:        "verify",
				Usage:       "check batches, numbers and checksums",
				UsageText:   "leasefs admin journal verify DIR\n\nExample:\n  leasefs admin journal verify /mnt/backup/leasefs",
				Description: "Checks every batch and record. Exit code 10 if there is damage; a last batch that was cut short\nby a crash is none: the next start cuts it.",
				Action:      p.action(operands{min: 1, max: 1, names: "DIR", local: true}, verifyJournal),
			},
		},
	}
}

func verifyJournal(e *invocation) error {
	rep, err := offline.VerifyJournal(e.ctx, vfs.OS(), e.args[0])
	if err != nil {
		return e.fail(err, e.args[0])
	}
	torn := ""
	if rep.Torn != nil {
		torn = fmt.Sprintf("a last batch was cut short and never acknowledged: %v\n", rep.Torn)
	}
	return e.Result(map[string]any{
		"segments": len(rep.Segments), "batches": rep.Batches, "records": rep.Records,
		"first": rep.First, "last": rep.Last, "term": rep.Term, "torn": rep.Torn != nil,
	}, "%s: %d segments, %d batches, %d records, txid %d to %d, term %d; no damage\n%s", e.args[0], len(rep.Segments), rep.Batches,
		rep.Records, rep.First, rep.Last, rep.Term, torn)
}

func imageCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "image",
		Usage:       "look into an image on this machine",
		UsageText:   "leasefs admin image COMMAND\n\nExample:\n  leasefs admin image dump /var/lib/leasefs/image/...",
		Description: "Reads an image, a checkpoint of the tree, and changes nothing.",
		Subcommands: []*cli.Command{{
			Name:        "dump",
			Usage:       "print the inodes",
			UsageText:   "leasefs admin image dump FILE\n\nExample:\n  leasefs admin image dump $(ls -t /var/lib/leasefs/image/* | head -n 1)",
			Description: "Prints an image: first what it is of, then a JSON object an inode, the way down from the root.",
			Action: p.action(operands{min: 1, max: 1, names: "FILE", local: true}, func(e *invocation) error {
				return e.fail(offline.DumpImage(vfs.OS(), e.args[0], e.Out), e.args[0])
			}),
		}},
	}
}
