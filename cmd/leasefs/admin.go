package main

import (
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/backups"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/cmd/leasefs/upgrade"
	"github.com/leasefs/leasefs/internal/fserror"
)

func adminCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "admin",
		Usage:       "for operators: checkpoints, checks, backups",
		UsageText:   "leasefs admin COMMAND\n\nExample:\n  leasefs admin fsck --blocks",
		Description: "journal and image read a stopped namenode's folder, or a copy of it; format and restore speak to\nZooKeeper and the block store, zookeeper-acl to ZooKeeper. All others ask the active namenode and are for its\nsuperuser; everybody may ask for safemode get.",
		Subcommands: []*cli.Command{
			{
				Name:        "checkpoint",
				Usage:       "write an image of the tree now",
				UsageText:   "leasefs admin checkpoint\n\nExample:\n  leasefs admin checkpoint",
				Description: "Writes a checkpoint while the namenode keeps serving. A start after it has less to replay.",
				Action:      p.connected(operands{}, checkpoint),
			},
			{
				Name:        "failover",
				Usage:       "hand over to the next namenode",
				UsageText:   "leasefs admin failover\n\nExample:\n  leasefs admin failover",
				Description: "The active namenode of several makes all that it acknowledged durable, says so to its successor,\nand becomes a standby. Clients continue after a moment. Prints who is next. The successor has room on\nits disk and all changes: until --timeout is over it is waited for; then it fails, with the reason\nof each standby (exit code 6). To hand over all the same, stop the active namenode (SIGTERM).",
				Action: p.connected(operands{}, func(e *invocation) error {
					next, err := e.fs.Admin().Failover(e.ctx)
					if err != nil {
						return e.fail(err, "")
					}
					return e.Summary(map[string]any{"next": next}, "handed over; next is %s\n", next)
				}),
			},
			{
				Name:        "safemode",
				Usage:       "refuse changes, or not",
				UsageText:   "leasefs admin safemode on|off|get\n\nExample:\n  leasefs admin safemode on",
				Description: "In safe mode changes are refused (exit code 6) and no lease expires. A restart does not end it.\nPrints the state. on and off are for the superuser.",
				Action:      reading(p, operands{min: 1, max: 1, names: "one of on, off, get", local: true}, safeModeAction, safeMode),
			},
			{
				Name:        "fsck",
				Usage:       "check the tree, and the blocks",
				UsageText:   "leasefs admin fsck [--blocks] [PATH]\n\nExample:\n  leasefs admin fsck --blocks /archive",
				Description: "Checks the tree against itself and the leases; with --blocks reads and verifies every block too.\nPrints a line for each problem; exit code 10 if there is one.",
				Flags:       []cli.Flag{&cli.BoolFlag{Name: "blocks", Usage: "read every block and verify it"}},
				Action:      p.connected(operands{max: 1, names: "at most one path"}, fsck),
			},
			{
				Name:        "gc",
				Usage:       "delete blocks that no file has any more",
				UsageText:   "leasefs admin gc\n\nExample:\n  leasefs admin gc",
				Description: "Runs the block collector now. Blocks whose signed URLs are not over yet wait.",
				Action:      p.connected(operands{}, collect),
			},
			{
				Name:      "resolve",
				Usage:     "give the block store to this copy of the namespace",
				UsageText: "leasefs admin resolve\n\nExample:\n  leasefs --namenode nn1:8020,nn2:8020 admin resolve",
				Description: "Two copies of a namespace, over copies of ZooKeeper or of a data folder, have found each other in one\n" +
					"block store, and delete nothing there (status shows it). Stop all but the copy that is to stay, and\n" +
					"give this command to that one. The others delete nothing any more, end when they notice, and are\n" +
					"refused when they are started again; what they have written is lost. Without a conflict it changes\n" +
					"nothing.",
				Action: p.connected(operands{}, resolve),
			},
			backupCommand(p),
			upgrade.Command(p.called),
			formatCommand(p),
			restoreCommand(p),
			zookeeperACLCommand(p),
			tokenCommand(p),
			caCommand(p),
			journalCommand(p),
			imageCommand(p),
		},
	}
}

func checkpoint(e *invocation) error {
	bar := e.NewSpinner("writing the image")
	res, err := e.fs.Admin().Checkpoint(e.ctx)
	bar.Finish()
	if err != nil {
		return e.fail(err, "")
	}
	return e.Result(map[string]any{"txid": res.TxID, "bytes": res.Bytes, "duration_ms": res.Duration.Milliseconds()},
		"checkpoint of txid %d: %d bytes, %s\n", res.TxID, res.Bytes, fserror.Round(res.Duration))
}

var safeModeActions = map[string]client.SafeModeAction{
	"on": client.SafeModeEnter, "off": client.SafeModeLeave, "get": client.SafeModeGet,
}

func safeModeAction(e *invocation) (client.SafeModeAction, error) {
	action, ok := safeModeActions[e.args[0]]
	if !ok {
		return action, argv.Usagef(e.op, "%q is none of on, off, get", e.args[0])
	}
	return action, nil
}

func safeMode(e *invocation, action client.SafeModeAction) error {
	state, err := e.fs.Admin().SafeMode(e.ctx, action)
	if err != nil {
		return e.fail(err, "")
	}
	word := "off"
	if state.On {
		word = "on"
		if state.Why != "" {
			word += " (" + state.Why + ")"
		}
	}
	return e.Result(map[string]any{"on": state.On, "why": screen.OrNull(state.Why)}, "safe mode is %s\n", word)
}

func fsck(e *invocation) error {
	path := "/"
	if len(e.args) == 1 {
		path = e.args[0]
	}
	bar := e.NewSpinner("checking")
	sum, err := e.fs.Admin().Fsck(e.ctx, path, e.flags.Bool("blocks"), func(p client.FsckProblem) error {
		return e.Result(map[string]any{"path": screen.OrNull(p.Path), "problem": p.Problem, "unchecked": p.Unchecked}, "%s: %s\n", e.Name(p.Path), p.Problem)
	})
	bar.Finish()
	if err != nil {
		return e.fail(err, path)
	}
	err = e.Result(map[string]any{"inodes": sum.Inodes, "blocks": sum.Blocks, "problems": sum.Problems, "bytes_verified": sum.BytesVerified, "unchecked": sum.Unchecked},
		"%s, %s, %d bytes verified, %s, %d not checked\n", screen.Plural(sum.Inodes, "inode", "inodes"), screen.Plural(sum.Blocks, "block", "blocks"),
		sum.BytesVerified, screen.Plural(sum.Problems, "problem", "problems"), sum.Unchecked)
	switch {
	case err != nil:
		return err
	case sum.Problems > 0:
		return fserror.New(fserror.Damaged, e.op, path, "%s found", screen.Plural(sum.Problems, "problem was", "problems were"))
	case sum.Unchecked > 0:
		return fserror.New(fserror.Retry, e.op, path, "%s could not be checked, since the block store did not answer", screen.Plural(sum.Unchecked, "block", "blocks"))
	}
	return nil
}

func collect(e *invocation) error {
	bar := e.NewSpinner("collecting")
	res, err := e.fs.Admin().Collect(e.ctx)
	bar.Finish()
	if err != nil {
		return e.fail(err, "")
	}
	return e.Result(map[string]any{"garbage": res.Garbage, "deleted": res.Deleted, "waiting": res.Waiting, "orphans": res.Orphans},
		"%s deleted, %d waiting, %d orphans found\n", screen.Plural(res.Deleted, "block", "blocks"), res.Waiting, res.Orphans)
}

func resolve(e *invocation) error {
	resolved, err := e.fs.Admin().ResolveStore(e.ctx)
	if err != nil {
		return e.fail(err, "")
	}
	text := "there is no conflict about the block store\n"
	if resolved {
		text = "the block store belongs to this copy of the namespace; the others end\n"
	}
	return e.Result(map[string]any{"resolved": resolved}, "%s", text)
}

func backupCommand(p *program) *cli.Command {
	folder := operands{min: 1, max: 1, names: "DIR", local: true}
	run := func(of func(*backups.Call) error) func(*invocation) error {
		return func(e *invocation) error {
			return of(&backups.Call{Printer: &e.Printer, Ctx: e.ctx, FS: e.fs, Flags: e.flags, Dir: e.args[0], Op: e.op})
		}
	}
	return backups.Command(
		func(of func(*backups.Call) error) cli.ActionFunc { return p.connected(folder, run(of)) },
		func(of func(*backups.Call) error) cli.ActionFunc { return p.action(folder, run(of)) })
}
