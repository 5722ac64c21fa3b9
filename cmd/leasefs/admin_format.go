package main

import (
	"encoding/hex"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/offline"
)

func formatCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:  "format",
		Usage: "make the namespace of several namenodes",
		UsageText: "leasefs admin format --zookeeper HOSTS --namespace NAME --blocks URL\n\nExample:\n" +
			"  leasefs admin format --zookeeper zk1:2181,zk2:2181,zk3:2181 --namespace main \\\n    --blocks 's3://bucket/leasefs?endpoint=https://s3.example:9000'",
		Description: "Makes a new, empty namespace: claims the block store for it, then makes it known to ZooKeeper. This is done\n" +
			"once, before the first start; namenodes started with the same three flags then serve it. They never make\n" +
			"one themselves: an empty ZooKeeper, a mistyped name or another store is refused. It asks no namenode. A\n" +
			"bucket's credentials are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws/credentials, as for namenodes.\n" +
			"It refuses (exit code 4) a name that ZooKeeper has, and a store that has files of a namespace of that name:\n" +
			"admin restore brings that one back. After a failure it can be repeated. A namenode alone needs no format.",
		Flags: offlineFlags(
			"`HOSTS` of the ZooKeeper ensemble, which runs already, HOST:PORT with commas between",
			"the `NAME` under which the namenodes are to meet there",
			&cli.StringFlag{Name: "blocks", Usage: "where blocks go: a `URL` such as s3://bucket/prefix?endpoint=https://s3.example:9000 or file:///shared/dir"},
			&cli.BoolFlag{Name: "if-missing", Usage: "do nothing, and succeed, if ZooKeeper has a namespace of that name"},
		),
		Action: p.action(operands{}, format),
	}
}

func format(e *invocation) error {
	cfg, err := e.offlineEnsemble("a namenode alone makes its namespace when it starts on a new --data folder")
	if err != nil {
		return err
	}
	how, err := cfg.Offline()
	var id [16]byte
	if err == nil {
		id, err = offline.Format(e.ctx, how)
	}
	if e.flags.Bool("if-missing") && fserror.ReasonOf(err) == fserror.ReasonNamespaceTaken {
		return e.Result(map[string]any{"namespace": cfg.HA.Name, "id": nil}, "%v\n", err)
	}
	if err != nil {
		return e.fail(err, cfg.Blocks)
	}
	return e.Result(map[string]any{"namespace": cfg.HA.Name, "id": hex.EncodeToString(id[:])},
		"%s: made namespace %x with blocks in %s. Start the namenodes\n", cfg.HA.Name, id, cfg.Blocks)
}

// offlineEnsemble is the configuration of a command that speaks to ZooKeeper and
// the block store; alone says what a namenode without ZooKeeper does instead.
func (e *invocation) offlineEnsemble(alone string) (cfg namenode.Config, err error) {
	cfg = namenode.Config{Blocks: e.flags.String("blocks"), Version: version}
	if cfg.HA, err = e.ensembleAndStore(); err != nil {
		return cfg, err
	}
	if cfg.HA == nil {
		return cfg, argv.Usagef(e.op, "needs --zookeeper HOSTS; %s", alone)
	}
	cfg.Logger, err = e.logger()
	return cfg, err
}
