package main

import (
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/namenode/ensemble"
)

func zookeeperACLCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:  "zookeeper-acl",
		Usage: "give a namespace's nodes in ZooKeeper to other users",
		UsageText: "leasefs admin zookeeper-acl --zookeeper HOSTS --namespace NAME\n\nExample:\n" +
			"  LEASEFS_ZOOKEEPER_AUTH=leasefs:OLD LEASEFS_ZOOKEEPER_AUTH_ALSO=leasefs:NEW \\\n    leasefs admin zookeeper-acl --zookeeper zk1:2181,zk2:2181,zk3:2181 --namespace main",
		Description: "Sets the access control list of every node of the namespace: the user of --zookeeper-auth may do\n" +
			"everything, so may that of --zookeeper-auth-also if it is given, and nobody else may do anything.\n" +
			"One of them must be an owner already, unless the nodes are open to everybody. Namenodes run on\n" +
			"meanwhile; nodes that they make are their own users', so restart them with these users first.\n" +
			"It speaks to ZooKeeper, to no namenode: --namenode, --user and --timeout mean nothing here. It\n" +
			"can be repeated: nodes that are as they should be are left alone. docs/OPERATIONS.md tells how a\n" +
			"password is changed.",
		Flags: offlineFlags(
			"`HOSTS` of the ZooKeeper ensemble, HOST:PORT with commas between",
			"the `NAME` of the namespace there",
		),
		Action: p.action(operands{local: true}, zookeeperACL),
	}
}

func zookeeperACL(e *invocation) error {
	ha, err := e.ensemble()
	switch {
	case err != nil:
		return err
	case ha == nil:
		return argv.Usagef(e.op, "needs --zookeeper HOSTS")
	case ha.User == "":
		return argv.Usagef(e.op, "needs --zookeeper-auth USER:PASSWORD or LEASEFS_ZOOKEEPER_AUTH: whom the nodes are to belong to")
	}
	log, err := e.logger()
	if err != nil {
		return err
	}
	bar := e.NewSpinner("changing owners")
	done, err := ensemble.OwnZooKeeper(e.ctx, ha, log)
	bar.Finish()
	if err != nil {
		return e.fail(err, "")
	}
	return e.Result(map[string]any{"namespace": ha.Name, "nodes": done.Nodes, "changed": done.Changed}, "%s: %d nodes, %d of them changed\n", ha.Name, done.Nodes, done.Changed)
}
