package main

import (
	"cmp"

	"github.com/leasefs/leasefs/cmd/leasefs/csi"
)

func serveCSI(e *invocation) error {
	cfg, err := e.clientConfig()
	if err != nil {
		return err
	}
	log, err := e.logger()
	if err != nil {
		return err
	}
	return e.fail(csi.Serve(e.ctx, e.flags, globalFlags(), version, cfg, log, func() error {
		at := e.flags.String("endpoint")
		return cmp.Or(e.Result(map[string]any{"ready": true, "endpoint": at}, "ready %s\n", at), e.Flush())
	}), "")
}
