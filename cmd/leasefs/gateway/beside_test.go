package gateway_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/gateway"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestBesideAnotherNamenode: a gateway continues with the namenode that starts in its process
// after the one beside which it was started has ended, as one that was deposed does.
func TestBesideAnotherNamenode(t *testing.T) {
	n := env.Start(t)
	config := func() (client.Config, error) { return client.Config{}, nil }
	app := &cli.App{
		Flags: append(gateway.BesideFlags(), &cli.StringSliceFlag{Name: "namenode"}, &cli.StringFlag{Name: "zookeeper"}),
		Action: func(c *cli.Context) error {
			g, err := gateway.Beside(c.Context, c, config, slog.New(slog.DiscardHandler), n.Server)
			if err != nil {
				return err
			}
			defer func() {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			}()
			h, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{g.HDFS}, User: "root"})
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			if err := h.Mkdir("/first", 0o755); err != nil {
				return err
			}
			for _, between := range []*namenode.Server{nil, n.Server} {
				g.Calls(between)
				n.Restart(t)
				g.Calls(n.Server)
				began := time.Now()
				if _, err := h.Stat("/first"); err != nil {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			}
			return nil
		},
	}
	if err := app.RunContext(t.Context(), []string{"leasefs", "--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0"}); err != nil {
		t.Error(err)
	}
}
