// Package gateway has what the command of that name takes and how it serves.
package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/webhdfs"
)

// endTime is how long requests under way may take once the gateway is asked to end.
const endTime = 10 * time.Second

// Flags are the command's.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "webhdfs", Usage: "the `ADDR` for clients; port 0 takes a free one", Value: webhdfs.DefaultListen},
		&cli.StringFlag{Name: "advertise", Usage: "the `HOST:PORT` by which clients reach this gateway", DefaultText: "what they call it"},
		&cli.StringSliceFlag{Name: "alias", Usage: "serve requests to the host `NAME`, too, as that of a load balancer"},
		&cli.BoolFlag{Name: "insecure-trust-clients", Usage: "serve other machines, too, and believe who they say they are"},
		&cli.StringSliceFlag{Name: "doas", Usage: "let the user `NAME` act for others (parameter doas)"},
		&cli.IntFlag{Name: "streams", Usage: "read and write at most `N` files at once", Value: webhdfs.DefaultStreams},
		&cli.DurationFlag{Name: "idle", Usage: "close what a client reads or writes when it is silent for so `LONG`", Value: webhdfs.DefaultIdle},
	}
}

// Serve serves until the context ends, which is no error. ready is told the address at
// which it listens; its error ends the gateway.
func Serve(ctx context.Context, flags *cli.Context, c client.Config, log *slog.Logger, ready func(addr string) error) error {
	s, err := webhdfs.Start(ctx, webhdfs.Config{
		Client: c, Logger: log,
		Listen: flags.String("webhdfs"), Advertise: flags.String("advertise"), TrustClients: flags.Bool("insecure-trust-clients"),
		Names: flags.StringSlice("alias"), Proxies: flags.StringSlice("doas"), Streams: flags.Int("streams"), Idle: flags.Duration("idle"),
	})
	if err != nil {
		return err
	}
	if err = ready(s.Addr()); err == nil {
		select {
		case <-ctx.Done():
		case <-s.Done():
			err = s.Err()
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return cmp.Or(err, s.Close(end))
}
