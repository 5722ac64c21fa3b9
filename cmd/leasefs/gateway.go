package main

import (
	"cmp"
	"log/slog"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/csi"
	"github.com/leasefs/leasefs/cmd/leasefs/gateway"
)

func serveGateway(e *invocation) error {
	return e.between(func(cfg client.Config, log *slog.Logger) error {
		return gateway.Serve(e.ctx, e.flags, cfg, log, func(at gateway.Addresses) error {
			fields := map[string]any{"ready": true}
			at.AddTo(fields)
			return cmp.Or(e.Result(fields, "ready %s\n", at), e.Flush())
		})
	})
}

func serveCSI(e *invocation) error {
	return e.between(func(cfg client.Config, log *slog.Logger) error {
		return csi.Serve(e.ctx, e.flags, globalFlags(), version, cfg, log, func() error {
			at := e.flags.String("endpoint")
			return cmp.Or(e.Result(map[string]any{"ready": true, "endpoint": at}, "ready %s\n", at), e.Flush())
		})
	})
}

// between runs what serves others as a client of the namespace.
func (e *invocation) between(serve func(client.Config, *slog.Logger) error) error {
	cfg, err := e.clientConfig()
	if err != nil {
		return err
	}
	log, err := e.logger()
	if err != nil {
		return err
	}
	return e.fail(serve(cfg, log), "")
}
