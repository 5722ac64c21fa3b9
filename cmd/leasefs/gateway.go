package main

import (
	"cmp"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/gateway"
)

func gatewayCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "gateway",
		Usage:     "serve the namespace to Hadoop's clients, by WebHDFS",
		UsageText: "leasefs gateway [options]\n\nExample:\n  leasefs gateway --webhdfs 127.0.0.1:9870 &\n  hadoop fs -ls webhdfs://127.0.0.1:9870/",
		Description: "Serves the namespace to clients of WebHDFS, and prints a line \"ready\" with its address. Only what\n" +
			"is open is kept in a gateway, so several can run side by side. SIGTERM ends it cleanly: requests\n" +
			"under way have ten seconds to finish. A client says who it is (user.name), and nobody checks\n" +
			"that. What clients see and how to set them up: docs/HADOOP.md.",
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
	return e.fail(gateway.Serve(e.ctx, e.flags, cfg, log, func(addr string) error {
		return cmp.Or(e.Result(map[string]any{"ready": true, "webhdfs": addr}, "ready %s\n", addr), e.Flush())
	}), "")
}
