package main

import (
	"encoding/hex"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/rewind"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/offline"
)

func restoreCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:  "restore",
		Usage: "bring a namespace back to a new ZooKeeper ensemble, or as it was into a folder",
		UsageText: "leasefs admin restore --zookeeper HOSTS --namespace NAME --blocks URL [--id ID] [DIR]\n" +
			"   leasefs admin restore --at MOMENT --blocks URL [--id ID] [--tree-only | --path PATH] DIR\n\nExample:\n" +
			"  leasefs admin restore --zookeeper zk1:2181,zk2:2181,zk3:2181 --namespace main \\\n    --blocks 's3://bucket/leasefs?endpoint=https://s3.example:9000'\n" +
			"  leasefs admin restore --zookeeper zk1:2181,zk2:2181,zk3:2181 --namespace main \\\n    --blocks 's3://new-bucket/leasefs?endpoint=https://s3.example:9000' /mnt/backup/leasefs-2026-01-31",
		Description: "Makes a namespace known to an ensemble that does not have it, so that namenodes can be started on\n" +
			"it with the same three flags. With DIR, a folder that leasefs admin backup made: copies its\n" +
			"blocks and its tree into the block store. Without: ZooKeeper is lost, the block store is there,\n" +
			"and its newest image and what is archived after it are taken. All later changes are lost.\n" +
			"--zookeeper, --namespace and --blocks are needed. It speaks to ZooKeeper and the block store, to\n" +
			"no namenode: none of the namespace may run, and --namenode, --user and --timeout mean nothing here.\n" +
			"A bucket's credentials are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or of\n" +
			"~/.aws/credentials, as for leasefs namenode. It can be repeated until it succeeds. A namenode\n" +
			"alone needs no restore: leasefs namenode --data DIR serves the folder of a backup.\n\n" +
			rewind.Description +
			"A block store belongs to one incarnation of a namespace: what its format, or a restore, brought to\n" +
			"life. One of another incarnation is refused, with its name; --take-over takes it from that one, which\n" +
			"ends when it notices, and must not be started again.",
		Flags: append(offlineFlags(
			"`HOSTS` of the new ZooKeeper ensemble, which runs already, HOST:PORT with commas between",
			"the `NAME` under which the namenodes are to meet there",
			&cli.StringFlag{Name: "blocks", Usage: "where blocks are, or go to: a `URL` such as s3://bucket/prefix?endpoint=https://s3.example:9000 or file:///shared/dir"},
			takeOverFlag(),
			&cli.StringFlag{Name: "id", Usage: "if the block store has several namespaces: the `ID` of the one"},
		), rewind.Flags()...),
		Action: p.action(operands{max: 1, names: "[DIR]", local: true}, restore),
	}
}

func restore(e *invocation) error {
	if e.flags.IsSet("at") {
		log, err := e.logger()
		if err == nil {
			err = e.fail(rewind.Run(e.ctx, e.op, &e.Printer, namenode.Config{Version: version, Logger: log}, e.flags, e.args), "")
		}
		return err
	}
	cfg, err := e.offlineEnsemble("a namenode alone is started with --data on the folder of a backup")
	if err != nil {
		return err
	}
	cfg.TakeOver = e.flags.String("take-over")
	r := offline.Restoring{ID: e.flags.String("id")}
	what := cfg.Blocks
	if len(e.args) > 0 {
		if r.Backup = e.args[0]; r.ID != "" {
			return argv.Usagef(e.op, "--id is for a restore without DIR")
		}
		what = r.Backup
	}
	if r.Config, err = cfg.Offline(); err != nil {
		return e.fail(err, what)
	}
	bar := e.NewBar("copying")
	r.Progress = bar.Set
	done, err := offline.Restore(e.ctx, r)
	bar.Finish()
	if err != nil {
		return e.fail(err, what)
	}
	at := done.Time.UTC().Format(time.RFC3339)
	return e.Result(map[string]any{
		"namespace": cfg.HA.Name, "id": hex.EncodeToString(done.ID[:]), "txid": done.TxID, "time": at, "files": done.Files,
		"blocks": done.Blocks, "block_bytes": done.BlockBytes, "copied": done.Copied, "copied_bytes": done.CopiedBytes,
	}, "%s: txid %d of %s, %s, %s (%d bytes), %d of them copied; all later changes are lost. Start the namenodes\n",
		cfg.HA.Name, done.TxID, at, screen.Plural(uint64(done.Files), "file", "files"), screen.Plural(uint64(done.Blocks), "block", "blocks"), done.BlockBytes, done.Copied) //nolint:gosec // counts
}
