// Package gateway has what the command of that name takes and how it serves, alone or in the
// process of a namenode.
package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/urfave/cli/v2"
	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/gateway/pages"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
)

const (
	// endTime is how long requests under way may take once the gateway is asked to end.
	endTime = 10 * time.Second
	// checkEvery is how often a certificate is read again.
	checkEvery = 2 * time.Second
)

// Addresses are where a gateway listens, empty where it does not.
type Addresses struct{ WebHDFS, HDFS, Data, Pages string }

// String is what a person is shown.
func (a Addresses) String() string {
	var all []string
	for _, part := range []struct{ before, addr string }{{"", a.WebHDFS}, {"hdfs://", a.HDFS}, {"data ", a.Data}, {"pages ", a.Pages}} {
		if part.addr != "" {
			all = append(all, part.before+part.addr)
		}
	}
	return strings.Join(all, " ")
}

// AddTo adds the addresses to what a program is told.
func (a Addresses) AddTo(fields map[string]any) {
	for name, addr := range map[string]string{"webhdfs": a.WebHDFS, "hdfs": a.HDFS, "data": a.Data, "pages": a.Pages} {
		if addr != "" {
			fields[name] = addr
		}
	}
}

// server is a gateway that runs, of either protocol.
type server interface {
	Done() <-chan struct{}
	Err() error
	Close(ctx context.Context) error
}

// Gateway is one that serves, by one or both protocols.
type Gateway struct {
	Addresses

	servers []server
	pages   *pages.Server
	inside  atomic.Pointer[grpc.UnaryClientInterceptor] // to the namenode of this process; nil: by a connection
	end     context.CancelFunc
	work    sync.WaitGroup // what reads files again
	ended   chan struct{}
	once    sync.Once // for ended
	closing sync.Once
	err     error // once closing is done
}

// starting is a gateway that is being started.
type starting struct {
	*Gateway
	op     string
	flags  *cli.Context
	client client.Config
	log    *slog.Logger
	key    []byte
	guard  *auth.Guard
	stats  *prometheus.Registry
	calls  *pages.Calls
}

// Serve serves until the context ends, which is no error. ready is told the addresses at
// which it listens; its error ends the gateway.
func Serve(ctx context.Context, flags *cli.Context, c client.Config, log *slog.Logger, ready func(Addresses) error) (err error) {
	web, native := flags.String("webhdfs"), flags.String("hdfs")
	if native == "" {
		web = cmp.Or(web, webhdfs.DefaultListen)
	}
	g, err := new(Gateway).start(ctx, "gateway", flags, c, log, places{web, native, flags.String("data"), flags.String("advertise"), flags.String("pages")})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, g.Close()) }()
	if err := ready(g.Addresses); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-g.Done():
		return g.Err()
	}
}

// Beside starts a gateway in the process of a namenode. It is a client of that one, at address
// at, or, where there are several, of the namenodes in the flags. When that one has ended and
// another starts in its place, Calls has to be called. It is nil if no flag asks for one.
func Beside(ctx context.Context, flags *cli.Context, config func() (client.Config, error), log *slog.Logger, at *namenode.Server) (*Gateway, error) {
	const op = "namenode"
	p := places{flags.String("webhdfs"), flags.String("hdfs"), flags.String("hdfs-data"), flags.String("hdfs-advertise"), ""}
	if p.web == "" && p.native == "" {
		for _, f := range BesideFlags() {
			if name := f.Names()[0]; flags.IsSet(name) {
				return nil, argv.Usagef(op, "--%s needs --hdfs or --webhdfs", name)
			}
		}
		return nil, nil
	}
	c, err := config()
	switch {
	case err != nil:
		return nil, err
	case flags.IsSet("namenode"):
	case flags.String("zookeeper") != "":
		return nil, argv.Usagef(op, "--hdfs and --webhdfs need --namenode with --zookeeper: the addresses of all namenodes, of which any may be active")
	default:
		c.Namenodes = []string{at.Addr()}
	}
	c.Timeout = 0 // the gateway's own
	g := new(Gateway)
	g.Calls(at)
	c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(g.within))
	return g.start(ctx, op, flags, c, log, p)
}

// Calls says which namenode runs in the process by now, nil if none does: a namenode that was
// deposed ends and starts again. Calls to its address go to it without a connection. It may be
// called of a nil Gateway, and at any time.
func (g *Gateway) Calls(at *namenode.Server) {
	switch {
	case g == nil:
	case at == nil:
		g.inside.Store(nil)
	default:
		local := at.Local()
		g.inside.Store(&local)
	}
}

// within makes calls to the namenode that runs in the process now.
func (g *Gateway) within(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if local := g.inside.Load(); local != nil {
		return (*local)(ctx, method, req, reply, cc, next, opts...)
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// places are where to listen.
type places struct{ web, native, data, advertise, pages string }

func (g *Gateway) start(ctx context.Context, op string, flags *cli.Context, c client.Config, log *slog.Logger, at places) (_ *Gateway, err error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	g.end, g.ended = end, make(chan struct{})
	s := starting{g, op, flags, c, log, nil, nil, prometheus.NewRegistry(), nil}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.stats.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.calls = pages.NewCalls(s.stats)
	if s.key, err = readKey(flags.String("key")); err != nil {
		return nil, err
	}
	if s.guard, err = guard(op, flags, at.native != "", at.web != "", s.key); err != nil {
		return nil, err
	}
	if s.guard != nil {
		s.work.Go(func() { s.guard.Watch(life, log) })
	}
	if at.web == "" && (flags.IsSet("web-cert") || flags.IsSet("web-key")) {
		return nil, argv.Usagef(op, "--web-cert and --web-key need --webhdfs")
	}
	if at.web != "" {
		if err := s.web(ctx, life, at); err != nil {
			return nil, err
		}
	}
	if at.native != "" {
		if err := s.native(ctx, at); err != nil {
			return nil, err
		}
	}
	if at.pages != "" {
		c, err := users.Proves(c)
		if err != nil {
			return nil, err
		}
		ask := func(ctx context.Context) error {
			c.User = cmp.Or(c.User, c.RealUser)
			c.RealUser = ""
			_, err := client.WhoAmI(ctx, c)
			return err
		}
		if s.Gateway.pages, err = pages.Start(ctx, at.pages, s.stats, ask, log); err != nil {
			return nil, err
		}
		s.Pages = s.Gateway.pages.Addr()
	}
	for _, one := range s.servers {
		s.work.Go(func() {
			select {
			case <-one.Done():
				s.once.Do(func() { close(s.ended) })
			case <-life.Done():
			}
		})
	}
	return s.Gateway, nil
}

func (s *starting) web(ctx, life context.Context, at places) error {
	f := s.flags
	cfg := webhdfs.Config{
		Client: s.client, Logger: s.log, Guard: s.guard, Observe: s.calls.Of("webhdfs"),
		Listen: at.web, Advertise: at.advertise, TrustClients: f.Bool("insecure-trust-clients"),
		Names: f.StringSlice("alias"), Proxies: doas(f), Streams: f.Int("streams"), Idle: f.Duration("idle"),
	}
	cert, key := f.String("web-cert"), f.String("web-key")
	if (cert == "") != (key == "") {
		return argv.Usagef(s.op, "TLS needs --web-cert and --web-key")
	}
	if cert != "" {
		pair, err := proof.OpenPair(clock.System{}, cert, key)
		if err != nil {
			return err
		}
		cfg.TLS = proof.ServerTLS(pair, nil, false)
		s.work.Go(func() { watch(life, pair, s.log) })
	}
	web, err := webhdfs.Start(ctx, cfg)
	if err != nil {
		return err
	}
	s.servers, s.WebHDFS = append(s.servers, web), web.Addr()
	s.gauges("webhdfs", "streams", "Files that clients of WebHDFS read and write now.", web.InUse)
	return nil
}

// watch reads a certificate again when its files change.
func watch(ctx context.Context, pair *proof.File[*tls.Certificate], log *slog.Logger) {
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if changed, err := pair.Check(); err != nil {
				log.Error("the certificate for WebHDFS cannot be read; the one from before is shown", "cause", err)
			} else if changed {
				log.Info("the certificate for WebHDFS has changed")
			}
		}
	}
}

func (s *starting) native(ctx context.Context, at places) error {
	f := s.flags
	host, err := hostOf(at.advertise)
	if err != nil {
		return err
	}
	if f.Int("open") < 1 {
		return fserror.New(fserror.InvalidArgument, "hdfs", "", "%d open files are too few; allow 1 at least", f.Int("open"))
	}
	native, err := hdfs.Start(ctx, hdfs.Config{
		Client: s.client, Logger: s.log, Guard: s.guard, Key: s.key, Observe: s.calls.Of("hdfs"),
		Listen: at.native, Data: at.data, Advertise: host, TrustClients: f.Bool("insecure-trust-clients"),
		Proxies: doas(f), Open: f.Int("open"), Idle: f.Duration("idle"), Pair: f.Bool("hdfs-pair"),
	})
	if err != nil {
		return err
	}
	s.servers, s.HDFS, s.Data = append(s.servers, native), native.Addr(), native.DataAddr()
	s.gauges("hdfs", "open_files", "Files that clients of hdfs:// have open for write.", native.InUse)
	return nil
}

func (s *starting) gauges(protocol, files, help string, inUse func() (sessions, files int)) {
	pages.Gauge(s.stats, "sessions", "Sessions with the namenode, one for each user and writing client.", prometheus.Labels{"protocol": protocol}, func() float64 {
		n, _ := inUse()
		return float64(n)
	})
	pages.Gauge(s.stats, files, help, nil, func() float64 {
		_, n := inUse()
		return float64(n)
	})
}

// Done is closed when a part of it serves no more. A nil Gateway never ends by itself.
func (g *Gateway) Done() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.ended
}

// Err says why it serves no more, after Done.
func (g *Gateway) Err() error {
	for _, s := range g.servers {
		select {
		case <-s.Done():
			if err := s.Err(); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// Close ends it: requests under way have ten seconds to finish. It waits until nothing is left.
// It may be called again.
func (g *Gateway) Close() error {
	if g == nil {
		return nil
	}
	g.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		errs := make([]error, len(g.servers))
		var closing sync.WaitGroup
		for n, s := range g.servers { // together: none takes the others' time
			closing.Go(func() { errs[n] = s.Close(ctx) })
		}
		if g.pages != nil {
			g.err = g.pages.Close(ctx)
		}
		closing.Wait()
		g.err = cmp.Or(g.err, cmp.Or(errs...))
		g.end()
		g.work.Wait()
	})
	return g.err
}
