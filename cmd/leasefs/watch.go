package main

import (
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/leasehistory"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

func watchCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "print what happens to a path",
		UsageText: "leasefs watch [-r] [--why] [--from TXID] PATH\n\nExample:\n  leasefs watch -r --json /incoming",
		Description: "Prints a line for each durable change of PATH, and of the entries directly in it (-r: of all\n" +
			"below it): transaction id, type (create, close, delete, rename, length, attr, lease), path, and\n" +
			"where a rename leads. In order, none left out, over restarts of the namenode too. --from the\n" +
			"last id seen + 1 continues where another watch ended; if that is not kept any more, the command\n" +
			"says so: list again with leasefs ls --txid, and watch from that id + 1.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "of all that is below PATH too"},
			&cli.BoolFlag{Name: "why", Usage: "say why, and by whom, something was deleted or taken from its writer"},
			&cli.Uint64Flag{Name: "from", Usage: "begin with the change `TXID`", DefaultText: "0: the next one"},
		},
		Action: p.connected(operands{min: 1, max: 1, names: "PATH"}, whileRead(watch)),
	}
}

// eventJSON is an event under --json.
type eventJSON struct {
	TxID    uint64                `json:"txid"`
	Type    string                `json:"type"`
	Path    string                `json:"path"`
	NewPath *string               `json:"new_path"`
	Inode   uint64                `json:"inode"`
	Time    string                `json:"time"`
	Length  *int64                `json:"length"` // of a file
	Dir     bool                  `json:"directory"`
	Holder  *string               `json:"holder"`
	Reason  *string               `json:"reason"` // of a deletion, and of a close that its writer did not make
	By      *leasehistory.WhoJSON `json:"by"`
	Trashed bool                  `json:"trashed"` // of a deletion: the trash has it now
}

func watch(e *invocation) error {
	w, err := e.fs.Watch(e.ctx, e.args[0], client.WatchOptions{Recursive: e.flags.Bool("recursive"), From: e.flags.Uint64("from")})
	if err != nil {
		return e.fail(err, e.args[0])
	}
	defer w.Close()
	for {
		events, err := w.Next()
		if err != nil {
			return e.fail(err, e.args[0])
		}
		for i := range events {
			if err := e.printEvent(&events[i], e.flags.Bool("why")); err != nil {
				return err
			}
		}
		if err := e.Flush(); err != nil {
			return err
		}
	}
}

// printEvent prints an event, and as text with why the reason of an end.
func (p *program) printEvent(ev *client.Event, why bool) error {
	if p.JSON {
		j := eventJSON{TxID: ev.TxID, Type: ev.Type.String(), Path: ev.Path, Inode: ev.Inode, Time: ev.Time.UTC().Format(screen.TimeJSON), Dir: ev.IsDir, Trashed: ev.Trashed}
		if !ev.IsDir {
			j.Length = &ev.Length
		}
		if ev.Type == client.EventRename {
			j.NewPath = &ev.NewPath
		}
		j.Holder, j.Reason, j.By = screen.OrNull(ev.Holder), screen.OrNull(ev.Why), leasehistory.WhoOf(ev.By)
		return p.PrintJSON(j)
	}
	p.Printf("%d %s %s", ev.TxID, ev.Type, p.Name(ev.Path))
	switch {
	case ev.Type == client.EventRename:
		p.Printf(" %s", p.Name(ev.NewPath))
	case ev.Type == client.EventLength:
		p.Printf(" %d", ev.Length)
	case ev.Holder != "":
		p.Printf(" %s", screen.QuoteName(ev.Holder))
	case why && ev.Why != "":
		p.Printf(" %s%s", leasehistory.Ended(ev.Why, ev.By), map[bool]string{true: ", kept in the trash"}[ev.Trashed])
	}
	p.Printf("\n")
	return nil
}
