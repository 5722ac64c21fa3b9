package namenode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxCall is how long one unary call may take in the namenode, waiting for a
// holder included.
const maxCall = 15 * time.Minute

// maxHeaders is how many bytes the headers of a request may have.
const maxHeaders = 16 << 10

// service is the Server as gRPC sees it.
type service struct {
	pb.UnimplementedNamenodeServer
	pb.UnimplementedAdminServer
	*Server
}

func (s *Server) serve() {
	s.grpcSrv = grpc.NewServer(s.grpcOptions()...)
	svc := &service{Server: s}
	pb.RegisterNamenodeServer(s.grpcSrv, svc)
	pb.RegisterAdminServer(s.grpcSrv, svc)
	hs := health.NewServer()
	healthpb.RegisterHealthServer(s.grpcSrv, hs)
	reflection.Register(s.grpcSrv)
	s.httpSrv = &http.Server{
		Handler:           underWay(s.httpHandler()),
		ConnContext:       withConn,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaders,
		ConnState:         s.unused.note,
	}
	s.loops.Run("health", func(ctx context.Context) error {
		<-ctx.Done()
		hs.Shutdown()
		return nil
	})
	s.loops.Run("grpc", func(context.Context) error { return s.grpcSrv.Serve(s.conns.Listener(s.grpcLis)) })
	s.loops.Run("http", func(ctx context.Context) error {
		lis := s.conns.Listener(s.httpLis)
		if s.cfg.TLS != nil {
			lis = tls.NewListener(lis, s.cfg.TLS)
		}
		if err := s.httpSrv.Serve(lis); ctx.Err() == nil {
			return err
		}
		return nil
	})
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
			c.Begin()
			defer c.End()
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) grpcOptions() []grpc.ServerOption {
	creds := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		creds = credentials.NewTLS(s.cfg.TLS)
	}
	return []grpc.ServerOption{
		grpc.Creds(s.conns.Creds(creds)),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)), //nolint:gosec // configured
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
		// As the client's: wide enough for a tail of 1 MiB. That they are set
		// switches the estimation of bandwidth off, which sends a ping about
		// every request that it reads.
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(4 << 20),
		grpc.StatsHandler(roomyStack{}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
	}
}

// roomyStack gives the goroutine of a call a stack that it need not grow from
// where it is deep, step by step: that took a sixth of the processor of a stat.
// gRPC's stream workers save as much, but a stream that lasts, such as a
// session's, occupies one for good.
type roomyStack struct{}

// TagRPC is called by that goroutine, first of all.
func (roomyStack) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	growStack()
	return ctx
}

// HandleRPC implements stats.Handler.
func (roomyStack) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (roomyStack) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (roomyStack) HandleConn(context.Context, stats.ConnStats) {}

// growStack needs more of the stack than 8 KiB, so that it has 16 KiB after it.
//
//go:noinline
func growStack() {
	var room [9 << 10]byte
	runtime.KeepAlive(&room)
}

// maxParked is how many calls may wait for something else than the disk at once.
const maxParked = 100_000

// park is called by a call that is going to wait for others: it takes no place
// among those served meanwhile. The func that it returns ends that.
func (s *Server) park(ctx context.Context, c *namespace.Call) (back func(), err error) {
	who := taker(ctx, c)
	if !s.parked.Take(1, who) {
		return nil, &fserror.Error{Kind: fserror.Retry, Message: "overloaded: too many calls wait at once", RetryAfter: time.Second}
	}
	served, counts := ctx.Value(servedKey{}).(share.Taker) // a stream, and the namenode's own work, do not
	if counts {
		s.served.Give(1, served)
	}
	return func() {
		if counts {
			s.served.Hold(1, served)
		}
		s.parked.Give(1, who)
	}, nil
}

// servedKey is under what the context of a unary call has who is served.
type servedKey struct{}

// servedFor is who takes a place among the calls that are served at once: an
// address, since nothing of the call was checked yet. What a superuser on this
// machine asks as such may take the reserve; who is none is told so at once.
func servedFor(ctx context.Context, method string) share.Taker {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return share.Taker{Reserve: true}
	}
	who := conns.Taker(p.Addr)
	who.Reserve = who.Reserve && strings.HasPrefix(method, adminPrefix)
	return who
}

// adminPrefix begins the names of the methods of service Admin.
const adminPrefix = "/leasefs.v1.Admin/"

// unary is around every unary call: limit, panic barrier, metrics, errors.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	who := servedFor(ctx, info.FullMethod)
	if !s.served.Take(1, who) {
		s.metrics.shed.Inc()
		return nil, wire.ToStatus(&fserror.Error{Kind: fserror.Retry, Message: "overloaded: too many calls at once", RetryAfter: 100 * time.Millisecond})
	}
	began := s.cfg.Clock.Mono()
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
		s.served.Give(1, who)
		s.metrics.observe(info.FullMethod, s.cfg.Clock.Mono()-began, err)
		err = wire.ToStatus(withRequest(err, info.FullMethod, req))
	}()
	ctx = context.WithValue(ctx, servedKey{}, who)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxCall)
		defer cancel()
	}
	if err := s.gate(info.FullMethod); err != nil {
		return nil, err
	}
	return h(ctx, req)
}

// gate refuses, before anything of a call is looked at, what only the active
// namenode answers: all but the question how it is. What there is of the state
// may not be there yet, or be changed by the journal just now.
func (s *Server) gate(method string) error {
	if method == pb.Admin_Status_FullMethodName || !strings.HasPrefix(method, "/leasefs.v1.") {
		return nil
	}
	return s.role.Active()
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		} else if err != nil && ss.Context().Err() != nil {
			err = fserror.Wrap(fserror.Canceled, "", "", err) // its client has left
		}
		s.metrics.failed(info.FullMethod, err)
		err = wire.ToStatus(err)
	}()
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.loops.Context(), func() { cancel(errStopping) })()
	if err := s.gate(info.FullMethod); err != nil {
		return err
	}
	err = h(srv, &boundStream{ss, ctx})
	if why := s.loops.Err(); why != nil && ss.Context().Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, errStopping)) {
		// It was not the client who broke it off: he continues with the next namenode.
		return &fserror.Error{Kind: fserror.NotActive, Message: why.Error(), RetryAfter: 100 * time.Millisecond}
	}
	return err
}

// boundStream has a context that ends with the namenode.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

func (b *boundStream) Context() context.Context { return b.ctx }

func (s *Server) panicked(method string, p any) error {
	s.metrics.panics.Inc()
	s.log.Error("a call panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return fserror.New(fserror.Internal, "", "", "the namenode failed in this call; its log tells more")
}

// withRequest names the path in an error that does not.
func withRequest(err error, method string, req any) error {
	if err == nil {
		return nil
	}
	var path string
	switch r := req.(type) {
	case interface{ GetPath() string }:
		path = r.GetPath()
	case interface{ GetFrom() string }:
		path = r.GetFrom()
	case interface{ GetTarget() string }:
		path = r.GetTarget()
	}
	var e *fserror.Error
	if !errors.As(err, &e) {
		if _, ok := status.FromError(err); ok {
			return err // an answer of gRPC's own services, such as health
		}
		switch { // else they would be faults of ours
		case errors.Is(err, context.DeadlineExceeded):
			err = fserror.Wrap(fserror.Deadline, "", "", err)
		case errors.Is(err, context.Canceled):
			err = fserror.Wrap(fserror.Canceled, "", "", err)
		}
	}
	return fserror.With(err, opName(method), path)
}

// httpHandler serves blocks and the pages of an operator.
func (s *Server) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		if h := s.blockPages.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		answer(w, false)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.loops.Err() == nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.role.Serves()) })
	mux.HandleFunc("GET /activez", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.role.String() == "active") })
	if s.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	}
	return mux
}

func (s *Server) serveBlocks(h http.Handler) { s.blockPages.Store(&h) }

func answer(w http.ResponseWriter, ok bool) {
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, "not ready")
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// baseURL is where clients reach the blocks.
func (s *Server) baseURL() string {
	scheme := "http://"
	if s.cfg.TLS != nil {
		scheme = "https://"
	}
	if s.cfg.AdvertiseHTTP != "" {
		return scheme + s.cfg.AdvertiseHTTP
	}
	addr, ok := s.httpLis.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsUnspecified() {
		return scheme + s.httpLis.Addr().String()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, fmt.Sprint(addr.Port))
}
