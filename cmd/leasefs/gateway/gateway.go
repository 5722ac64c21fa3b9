// Package gateway has what the command of that name takes and how it serves.
package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/internal/fserror"
)

// endTime is how long requests under way may take once the gateway is asked to end.
const endTime = 10 * time.Second

// Flags are the command's.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "webhdfs", Usage: "the `ADDR` for clients of WebHDFS; port 0 takes a free one", DefaultText: webhdfs.DefaultListen + ", without --hdfs"},
		&cli.StringFlag{Name: "hdfs", Usage: "the `ADDR` for calls of hdfs:// clients, as a NameNode's", DefaultText: "not served"},
		&cli.StringFlag{Name: "data", Usage: "the `ADDR` for bytes of hdfs:// clients, as a DataNode's", Value: hdfs.DefaultData},
		&cli.StringFlag{Name: "advertise", Usage: "the `HOST:PORT` by which clients reach this gateway (hdfs:// uses the host)", DefaultText: "what they call it"},
		&cli.StringSliceFlag{Name: "alias", Usage: "serve requests to the host `NAME`, too, as that of a load balancer (WebHDFS)"},
		&cli.BoolFlag{Name: "insecure-trust-clients", Usage: "serve other machines, too, and believe who they say they are"},
		&cli.StringSliceFlag{Name: "doas", Usage: "let the user `NAME` act for others (Hadoop's proxy users)"},
		&cli.IntFlag{Name: "streams", Usage: "read and write at most `N` files at once by WebHDFS", Value: webhdfs.DefaultStreams},
		&cli.IntFlag{Name: "open", Usage: "have at most `N` files open for write by hdfs://", Value: files.DefaultOpen},
		&cli.DurationFlag{Name: "idle", Usage: "end what a client reads or writes when it is silent for so `LONG`", Value: webhdfs.DefaultIdle},
	}
}

// Addresses are where a gateway listens, empty where it does not.
type Addresses struct{ WebHDFS, HDFS, Data string }

// String is what a person is shown.
func (a Addresses) String() string {
	all := []string{a.WebHDFS}
	if a.WebHDFS == "" {
		all = nil
	}
	if a.HDFS != "" {
		all = append(all, "hdfs://"+a.HDFS, "data "+a.Data)
	}
	return strings.Join(all, " ")
}

// server is a gateway that runs, of either protocol.
type server interface {
	Done() <-chan struct{}
	Err() error
	Close(ctx context.Context) error
}

// Serve serves until the context ends, which is no error. ready is told the addresses at
// which it listens; its error ends the gateway.
func Serve(ctx context.Context, flags *cli.Context, c client.Config, log *slog.Logger, ready func(Addresses) error) (err error) {
	var at Addresses
	done := make([]<-chan struct{}, 2) // nil: that one does not run
	var web, native server
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		for _, s := range []server{web, native} {
			if s != nil {
				err = cmp.Or(err, s.Close(end))
			}
		}
	}()
	if listen := flags.String("webhdfs"); listen != "" || flags.String("hdfs") == "" {
		s, err := webhdfs.Start(ctx, webhdfs.Config{
			Client: c, Logger: log,
			Listen: listen, Advertise: flags.String("advertise"), TrustClients: flags.Bool("insecure-trust-clients"),
			Names: flags.StringSlice("alias"), Proxies: flags.StringSlice("doas"), Streams: flags.Int("streams"), Idle: flags.Duration("idle"),
		})
		if err != nil {
			return err
		}
		web, done[0], at.WebHDFS = s, s.Done(), s.Addr()
	}
	if listen := flags.String("hdfs"); listen != "" {
		host, err := hostOf(flags.String("advertise"))
		if err != nil {
			return err
		}
		if flags.Int("open") < 1 {
			return fserror.New(fserror.InvalidArgument, "hdfs", "", "%d open files are too few; allow 1 at least", flags.Int("open"))
		}
		s, err := hdfs.Start(ctx, hdfs.Config{
			Client: c, Logger: log,
			Listen: listen, Data: flags.String("data"), Advertise: host, TrustClients: flags.Bool("insecure-trust-clients"),
			Proxies: flags.StringSlice("doas"), Open: flags.Int("open"), Idle: flags.Duration("idle"),
		})
		if err != nil {
			return err
		}
		native, done[1], at.HDFS, at.Data = s, s.Done(), s.Addr(), s.DataAddr()
	}
	if err := ready(at); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-done[0]:
		return web.Err()
	case <-done[1]:
		return native.Err()
	}
}

// hostOf is the host of HOST:PORT; empty stays so.
func hostOf(advertise string) (string, error) {
	if advertise == "" {
		return "", nil
	}
	host, _, err := net.SplitHostPort(advertise)
	if err != nil || host == "" {
		return "", fserror.New(fserror.InvalidArgument, "hdfs", advertise, "the address for clients is no HOST:PORT")
	}
	return host, nil
}
