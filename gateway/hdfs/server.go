package hdfs

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/gate"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs/data"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/hdfs/ipc"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Limits and defaults of a Config.
const (
	// DefaultData is where the gateway listens for bytes when no address is given: the
	// port is that of HDFS's own DataNodes.
	DefaultData = "127.0.0.1:9866"
	// DefaultTimeout is how long a call is tried again while no namenode answers: less
	// than the minute for which Hadoop's client waits.
	DefaultTimeout = 40 * time.Second

	maxSessions = 1024 // each has a connection to the namenode
	sweepTime   = 10 * time.Second

	// maxLocated is how many blocks answers under way describe, in all: each takes about
	// 1.5 KB until its client has read it.
	maxLocated = 100_000
	// locateTime is for how long an answer waits for others that describe many blocks, or
	// much that has changed.
	locateTime = 20 * time.Second
)

// Config says how a gateway serves. The zero value of a field stands for its default,
// but for Listen.
type Config struct {
	// Client says how to reach the namespace. User and Client are replaced by those of each
	// request; Timeout is DefaultTimeout if it is 0; Umask, WriteAhead, ReadAhead, Logger
	// and OnWait are the gateway's own.
	Client client.Config
	// Listen is the ADDR:PORT for calls, as a NameNode's. Port 0 takes a free one.
	Listen string
	// Data is the ADDR:PORT for bytes, as a DataNode's. Empty: DefaultData.
	Data string
	// Advertise is the host by which clients reach this gateway, for calls and bytes.
	// Empty: the address at which a client has reached it.
	Advertise string
	// TrustClients lets the addresses be ones that other machines reach. Clients say
	// who they are, and nobody checks it.
	TrustClients bool
	// Guard finds out who clients are; nil: they say it.
	Guard *auth.Guard
	// Proxies are the users who may act for others, see hadoop.Proxies.
	Proxies []string
	// Pair says that clients know another gateway. They are sent there (StandbyException) when no
	// namenode has answered for the Client's Timeout. Else they are told to ask this one again,
	// which a client that knows no other does longer.
	Pair bool
	// Open is how many files are written at once. 0: files.DefaultOpen.
	Open int
	// Key signs tokens of blocks: gateways that have the same understand each other's.
	// Empty: one is made.
	Key []byte
	// Observe is told of each call: the Java name of its error, empty without one, and how
	// long it took; nil: nobody is.
	Observe func(class string, took time.Duration)
	// Idle is for how long a connection may be silent. 0: ipc.DefaultIdle.
	Idle time.Duration
	// Logger gets what an operator should know of; nil: nothing is logged.
	Logger *slog.Logger
}

// Server is a gateway that serves. It is safe for concurrent use.
type Server struct {
	cfg        Config
	log        *slog.Logger
	users      *users.Table
	files      *files.Table
	rpc        *ipc.Server
	data       *data.Server
	badBlocks  rate.Sometimes // for the log: any client can report them
	located    *gate.Gate     // for blocks that answers describe
	reports    *gate.Gate     // of snapshots, made whole
	host       string         // of this machine
	advertised string         // empty: what clients call it
	rpcPort    uint32
	dataPort   uint32
	ended      chan struct{} // closed when it serves no more; then err is set
	err        error
	life       context.Context
	kill       context.CancelFunc
	work       sync.WaitGroup
}

// Start begins to serve. It needs no namenode to answer yet. InvalidArgument: the
// configuration makes no sense. The context governs Start alone; Close ends the Server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	const op = "hdfs"
	cfg.Data = cmp.Or(cfg.Data, DefaultData)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, time.Duration) {}
	}
	if cfg.Open < 0 || cfg.Idle < 0 || cfg.Idle > 0 && cfg.Idle < time.Second {
		return nil, fserror.New(fserror.InvalidArgument, op, "", "%d open files and %s of silence are too few; allow 1 and 1s at least", cfg.Open, cfg.Idle)
	}
	proxies, err := hadoop.Proxies(op, cfg.Proxies)
	if err != nil {
		return nil, err
	}
	if cfg.Client, err = users.Proves(cfg.Client); err != nil {
		return nil, fserror.With(err, op, "")
	}
	open := cfg.TrustClients || cfg.Guard != nil
	calls, err := hadoop.Listen(ctx, op, cfg.Listen, open)
	if err != nil {
		return nil, err
	}
	bytes, err := hadoop.Listen(ctx, op, cfg.Data, open)
	if err != nil {
		_ = calls.Close()
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, located: gate.New(maxLocated, locateTime), reports: gate.New(hadoop.MaxReports, locateTime), badBlocks: rate.Sometimes{Interval: time.Minute}, advertised: cfg.Advertise, rpcPort: port(calls.Addr()), dataPort: port(bytes.Addr()), ended: make(chan struct{})}
	if s.host, err = os.Hostname(); err != nil || s.host == "" {
		s.host = "localhost"
	}
	if cfg.TrustClients && cfg.Guard == nil {
		s.log.Warn(hadoop.WarnOfTrust, "hdfs", calls.Addr(), "data", bytes.Addr())
	}
	s.life, s.kill = context.WithCancel(context.Background())
	cfg.Client.Timeout = cmp.Or(cfg.Client.Timeout, DefaultTimeout)
	cfg.Client.WriteAhead, cfg.Client.ReadAhead = 0, 1
	cfg.Client.Umask, cfg.Client.Logger = nil, cfg.Logger
	cfg.Client.OnWait = func(w client.Waiting) {
		cfg.Logger.Warn("waiting", "op", w.Op, "path", w.Path, "for", w.For, "cause", w.Cause)
	}
	s.users = users.New(s.life, cfg.Client, maxSessions, s.log)
	s.files = files.New(files.Config{Users: s.users, Open: cfg.Open, Key: cfg.Key, Logger: s.log})
	s.data = data.Start(data.Config{Files: s.files, Users: s.users, Listener: bytes, Idle: cfg.Idle, Logger: s.log})
	var mechanisms []ipc.Mechanism
	if cfg.Guard != nil {
		mechanisms = cfg.Guard.Mechanisms()
	}
	s.rpc = ipc.Serve(calls, ipc.Config{
		Handle: s.handle, Mechanisms: mechanisms,
		Admit: func(c ipc.Client) error {
			return hadoop.MayActFor(proxies, hadoop.Acting{By: c.By, For: c.User, From: c.From.String(), Token: c.Proof == auth.ByToken})
		},
		Once:    func(protocol, method string) bool { return protocol == clientProtocol && once[method] },
		Changes: func(_, method string) bool { return !reads(method) },
		Idle:    cfg.Idle, Logger: s.log,
	})
	s.work.Go(s.sweep)
	s.work.Go(func() {
		defer close(s.ended)
		select {
		case <-s.rpc.Done():
			s.err = s.rpc.Err()
		case <-s.data.Done():
			s.err = s.data.Err()
		}
	})
	return s, nil
}

func port(a net.Addr) uint32 {
	ap, _ := netip.ParseAddrPort(a.String())
	return uint32(ap.Port())
}

// Addr is the address at which it listens for calls.
func (s *Server) Addr() string { return s.rpc.Addr().String() }

// DataAddr is the address at which it listens for bytes.
func (s *Server) DataAddr() string { return s.data.Addr() }

// InUse tells how many sessions of the library there are, and how many files are open for write.
func (s *Server) InUse() (sessions, open int) {
	sessions, _ = s.users.InUse()
	return sessions, int(s.files.InUse())
}

// Done is closed when it serves no more.
func (s *Server) Done() <-chan struct{} { return s.ended }

// Err says why it serves no more, after Done; nil if Close was called.
func (s *Server) Err() error { return s.err }

// Close ends the Server: no new call is taken, those under way may finish until the
// context ends. What has arrived of files that are being written is made durable; their
// clients can continue by another gateway. It waits until nothing of the Server is left.
func (s *Server) Close(ctx context.Context) error {
	var flushed sync.WaitGroup
	flushed.Go(func() { // and waits for no call: a slow one may take all the time
		s.data.Close()
		s.files.Flush(ctx)
	})
	err := s.rpc.Close(ctx)
	flushed.Wait()
	s.files.Close(ctx)
	s.kill()
	s.work.Wait()
	s.users.Close()
	return err
}

// sweep ends sessions that nobody uses any more.
func (s *Server) sweep() {
	t := time.NewTicker(sweepTime)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.users.EndIdle()
		case <-s.life.Done():
			return
		}
	}
}
