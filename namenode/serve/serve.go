// Package serve is a namenode's two addresses: gRPC for calls, HTTP for blocks and for the
// pages of an operator. It bounds the connections and the calls under way, is a barrier
// to panics, and makes errors ready for the wire; what calls do is its caller's.
package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/namenode/share"
)

// maxHeaders is how many bytes the headers of a request may have.
const maxHeaders = 16 << 10

// MaxMessage is the largest request in bytes that is read.
const MaxMessage = 4 << 20

// Config says where a Front listens, and how much it takes.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	Loops *loops.Group

	Listen, HTTP string
	// Pages is where the operator's pages are, and nowhere else; empty: at HTTP.
	Pages         string
	OpenPort      func(network, address string) (net.Listener, error)
	AdvertiseHTTP string      // HOST:PORT by which clients reach HTTP; empty: where it listens
	TLS           *tls.Config // of both; nil: none
	Guard         *identity.Guard
	Pprof         bool       // serve /debug/pprof
	Audit         *audit.Log // is told of each call; nil: nothing is
	// UserOf is whose session it is; empty: it is not known.
	UserOf func(session []byte) string
	// Quota is what each may have of something, Limits whether anybody has a limit of it.
	Quota  func(what string) share.Quota
	Limits func(what string) bool
	// Page returns the page for people, below /page/ where the operator's pages are; nil: none.
	Page func(call Call) http.Handler
	// Tracer begins a span for each call; nil: none has one.
	Tracer trace.Tracer
	// Operator reports whether a user looks after the namenode.
	Operator func(user string) bool

	// Answer returns a context with an Answer for a call. waits has to be called when the
	// call is about to wait for anything but what its Answer waits for.
	Answer func(ctx context.Context, waits func(context.Context)) (context.Context, Answer)

	MaxConnections int
	MaxUnfinished  int64 // bytes of messages that are not complete, and as many of answers that are not taken
	MaxWaiting     int   // calls that wait at once for something else than the disk
	MaxInFlight    int   // calls served at once; more are told to retry
	MaxStreams     int   // of one connection
}

// Answer is the answer of a call that was carried out.
type Answer interface {
	// Ready reports whether Wait returns at once.
	Ready() bool
	// Wait waits until the answer may be given. An error is the answer then.
	Wait(ctx context.Context) error
	// Wrote is the txid of the record that the call wrote; 0: it wrote none.
	Wrote() uint64
}

// Front is the two addresses of one namenode. Its methods are safe for concurrent use
// after Serve.
type Front struct {
	cfg    Config
	role   *reign.Role
	calls  calls
	conns  *conns.Table
	Served *share.Limit // unary calls under way, by address
	Parked *share.Limit // calls that wait for others, see Park
	shared shared
	inside inside

	grpcLis, httpLis net.Listener
	pagesLis         net.Listener // nil: pages are on httpLis
	grpcSrv          *grpc.Server
	httpSrv          *http.Server
	pagesSrv         *http.Server // nil, as pagesLis
	unused           unusedConns
	open             atomic.Int64                 // streams of gRPC's own services
	blocks           atomic.Pointer[http.Handler] // of the block store; nil until it is open
}

// Listen opens the ports. Nothing is answered before Serve.
func Listen(cfg Config) (f *Front, err error) {
	f = &Front{
		cfg: cfg, calls: newCalls(), conns: conns.New(cfg.MaxConnections, cfg.MaxUnfinished), shared: newShared(cfg.Quota),
		Served: share.Of(int64(cfg.MaxInFlight), "calls under way", nil), Parked: share.Of(int64(cfg.MaxWaiting), share.Waiting, cfg.Quota(share.Waiting)),
	}
	f.conns.Bound(cfg.Quota(share.Connections))
	if f.grpcLis, err = f.listen(cfg.Listen, fserror.ReasonListen); err != nil {
		return nil, err
	}
	if f.httpLis, err = f.listen(cfg.HTTP, fserror.ReasonHTTP); err != nil {
		_ = f.grpcLis.Close()
		return nil, err
	}
	if cfg.Pages == "" {
		return f, nil
	}
	if f.pagesLis, err = f.listen(cfg.Pages, fserror.ReasonPages); err != nil {
		_, _ = f.grpcLis.Close(), f.httpLis.Close()
		return nil, err
	}
	return f, nil
}

func (f *Front) listen(addr, field string) (net.Listener, error) {
	l, err := f.cfg.OpenPort("tcp", addr)
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, "", "", fmt.Errorf("cannot listen on %s: %w; choose another address", addr, err)).Because(field)
	}
	return l, nil
}

// Addr is the address of the gRPC service.
func (f *Front) Addr() string { return f.grpcLis.Addr().String() }

// Listens are the addresses as the listeners have them: of calls, and of blocks and pages.
func (f *Front) Listens() []net.Addr {
	all := []net.Addr{f.grpcLis.Addr(), f.httpLis.Addr()}
	if f.pagesLis != nil {
		all = append(all, f.pagesLis.Addr())
	}
	return all
}

// PagesAddr is the address of the operator's pages.
func (f *Front) PagesAddr() string {
	if f.pagesLis == nil {
		return f.HTTPAddr()
	}
	return f.pagesLis.Addr().String()
}

// HTTPAddr is the address of blocks and pages.
func (f *Front) HTTPAddr() string { return f.httpLis.Addr().String() }

// Conns tells how many connections there are.
func (f *Front) Conns() conns.Stats { return f.conns.Stats() }

// Metrics are those of calls.
func (f *Front) Metrics() []prometheus.Collector {
	return []prometheus.Collector{f.calls.latency, f.calls.errors, f.calls.shed, f.calls.delayed, f.calls.panics}
}

// Blocks has h serve the block store.
func (f *Front) Blocks(h http.Handler) { f.blocks.Store(&h) }

// Serve begins to answer: calls by what register registers, as far as the role lets
// them, and the pages. Only the first call counts.
func (f *Front) Serve(role *reign.Role, metrics prometheus.Gatherer, register func(grpc.ServiceRegistrar)) {
	if f.grpcSrv != nil {
		return
	}
	f.role = role
	f.grpcSrv = grpc.NewServer(f.grpcOptions()...)
	carried := callstream.NewServer(f.cfg.Loops.Context(), f.carry, f.cfg.MaxStreams)
	carried.OnPanic(func(method string, p any) error { return wire.ToStatus(f.panicked(method, p)) })
	f.inside = inside{r: carried.Register(f.grpcSrv), unary: map[string]insideMethod{}, streams: map[string]insideStream{}}
	register(&f.inside)
	hs := health.NewServer()
	healthpb.RegisterHealthServer(f.grpcSrv, hs)
	reflection.Register(f.grpcSrv)
	mux := http.NewServeMux()
	f.addBlocks(mux)
	if f.pagesLis == nil {
		f.addPages(mux, metrics)
	} else {
		pages := http.NewServeMux()
		f.addPages(pages, metrics)
		f.pagesSrv = f.serveHTTP("pages", f.pagesLis, pages)
	}
	f.httpSrv = f.serveHTTP("http", f.httpLis, mux)
	f.cfg.Loops.Run("health", func(ctx context.Context) error {
		<-ctx.Done()
		hs.Shutdown()
		return nil
	})
	f.cfg.Loops.Run("grpc", func(context.Context) error { return f.grpcSrv.Serve(f.conns.Listener(f.grpcLis)) })
}

// serveHTTP begins to serve what h does.
func (f *Front) serveHTTP(name string, on net.Listener, h http.Handler) *http.Server {
	s := &http.Server{
		Handler:           underWay(h),
		ConnContext:       withConn,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaders,
		ConnState:         f.unused.note,
		// Whoever reaches the port makes such lines: they are no operator's concern.
		ErrorLog: slog.NewLogLogger(f.cfg.Log.Handler(), slog.LevelDebug),
	}
	f.cfg.Loops.Run(name, func(ctx context.Context) error {
		lis := f.conns.Listener(on)
		if f.cfg.TLS != nil {
			lis = tls.NewListener(lis, f.cfg.TLS)
		}
		if err := s.Serve(lis); ctx.Err() == nil {
			return err
		}
		return nil
	})
	return s
}

// Close takes no new calls, cuts those off that are under way after a few seconds, and
// frees the ports. The loops have to be ending.
func (f *Front) Close() {
	if f.grpcSrv != nil {
		done := make(chan struct{})
		go func() { f.grpcSrv.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Second):
			f.grpcSrv.Stop()
			<-done
		}
	}
	if f.httpSrv != nil {
		f.unused.close()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		for _, s := range []*http.Server{f.httpSrv, f.pagesSrv} {
			if s != nil && s.Shutdown(ctx) != nil {
				_ = s.Close()
			}
		}
		cancel()
	}
	_, _ = f.grpcLis.Close(), f.httpLis.Close() // closed already by their servers
	if f.pagesLis != nil {
		_ = f.pagesLis.Close() // as above
	}
}

// unusedConns knows the HTTP connections on which nothing was asked yet. Clients
// connect ahead of need, and http.Server.Shutdown would wait for such ones for
// seconds; so the end of the namenode closes them first.
type unusedConns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (u *unusedConns) note(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.open, c)
	case u.closed:
		_ = c.Close() // nobody has asked anything on it
	default:
		if u.open == nil {
			u.open = map[net.Conn]struct{}{}
		}
		u.open[c] = struct{}{}
	}
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.open {
		_ = c.Close() // as above
	}
}

// connKey is under what a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// underWay lets a connection end for a new one only while h serves nothing on it.
func underWay(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conns.Conn); ok {
			c.MarkBusy()
			defer c.MarkIdle()
		}
		h.ServeHTTP(w, r)
	})
}

func (f *Front) grpcOptions() []grpc.ServerOption {
	creds, readBuffer := insecure.NewCredentials(), 32<<10 // lent to a connection that has something to read
	if f.cfg.TLS != nil {
		// Each connection has its own for as long as it lives, and it saves no calls of the
		// system: TLS reads whole records.
		creds, readBuffer = credentials.NewTLS(f.cfg.TLS), 4<<10
	}
	return []grpc.ServerOption{
		grpc.ReadBufferSize(readBuffer),
		grpc.Creds(f.conns.Creds(f.cfg.Guard.Creds(auditedCreds{creds, f}))),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(uint32(f.cfg.MaxStreams)), //nolint:gosec // configured
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
		// As the client's: wide enough for a tail of 1 MiB. That they are set
		// switches the estimation of bandwidth off, which sends a ping about
		// every request that it reads.
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(4 << 20),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ForceServerCodecV2(conns.Codec()),
		grpc.UnaryInterceptor(countedUnary(f.unary)),
		grpc.StreamInterceptor(countedStream(f.stream)),
	}
}

// streamWorkers keep their goroutines, and so their stacks, from call to call,
// which is 6 % of a create. A stream that lasts, such as a session's, occupies
// one for good: a call that finds none free gets a goroutine of its own, whose
// stack callstream.GrowStack makes large enough at once.
const streamWorkers = 64
