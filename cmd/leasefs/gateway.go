package main

import (
	"cmp"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/gateway"
)

func gatewayCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "gateway",
		Usage:     "serve the namespace to Hadoop's clients, by hdfs:// and WebHDFS",
		UsageText: "leasefs gateway [options]\n\nExample:\n  leasefs gateway --hdfs 127.0.0.1:9000 --webhdfs 127.0.0.1:9870 &\n  hadoop fs -ls hdfs://127.0.0.1:9000/",
		Description: "Serves the namespace to unchanged clients of HDFS, and prints a line \"ready\" with its addresses:\n" +
			"WebHDFS, the protocols of hdfs://, or both. Only what is open is kept in a gateway, so several can run\n" +
			"side by side. SIGTERM ends it cleanly: requests under way have ten seconds to finish. A client says\n" +
			"who it is, and nobody checks that, unless --clients-keytab has it prove that by Kerberos. What clients\n" +
			"see and how to set them up: docs/HADOOP.md.",
		Flags:  append(gateway.Flags(), logLevelFlag("info")),
		Action: p.action(operands{}, serveGateway),
	}
}

func serveGateway(e *invocation) error {
	cfg, err := e.clientConfig()
	if err != nil {
		return err
	}
	log, err := e.logger()
	if err != nil {
		return err
	}
	return e.fail(gateway.Serve(e.ctx, e.flags, cfg, log, func(at gateway.Addresses) error {
		fields := map[string]any{"ready": true}
		at.AddTo(fields)
		return cmp.Or(e.Result(fields, "ready %s\n", at), e.Flush())
	}), "")
}
