// Package serve is a namenode's two addresses: gRPC for calls, HTTP for blocks and for the
// pages of an operator. It bounds the connections and the calls under way, is a barrier
// to panics, and makes errors ready for the wire; what calls do is its caller's.
package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
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
			c.Begin()
			defer c.End()
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

// Park is called by a call of who that is going to wait for others: it takes no place
// among those served meanwhile. The func that it returns ends that.
func (f *Front) Park(ctx context.Context, who share.Taker) (back func(), err error) {
	callstream.Waits(ctx)
	_, span := tracing.Begin(ctx, "wait for others")
	if !f.Parked.Take(1, who) {
		err := TooMany(f.Parked, 1, who)
		span.End(err)
		return nil, err
	}
	served, counts := ctx.Value(servedKey{}).(share.Taker) // a stream, and the namenode's own work, do not
	if counts {
		f.Served.Give(1, served)
	}
	return func() {
		if counts {
			f.Served.Hold(1, served)
		}
		f.Parked.Give(1, who)
		span.End(nil)
	}, nil
}

// servedKey is under what the context of a unary call has who is served.
type servedKey struct{}

// servedFor is who takes a place among the calls that are served at once: an
// address, since nothing of the call was checked yet. What a superuser on this
// machine asks may take the reserve; who is none is told so at once by what only
// superusers may ask.
func (f *Front) servedFor(ctx context.Context, method string, req any) share.Taker {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return share.Taker{Reserve: true}
	}
	who := conns.Taker(p.Addr)
	if who.Reserve && !strings.HasPrefix(method, adminPrefix) {
		who.Reserve = f.scarce() && f.cfg.Operator(f.userOf(ctx, req))
	}
	return who
}

// scarce reports whether it matters who may take the reserve, which takes a while to find out.
func (f *Front) scarce() bool {
	return f.Served.Used() >= int64(f.cfg.MaxInFlight)/2 || f.cfg.Limits(share.Calls)
}

// adminPrefix begins the names of the methods of service Admin.
const adminPrefix = "/leasefs.v1.Admin/"

// unary wraps every unary call.
func (f *Front) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	defer func() { // what follows has barriers of its own, where there is something to be given back
		if p := recover(); p != nil {
			resp, err = nil, wire.ToStatus(f.panicked(info.FullMethod, p))
		}
	}()
	who, err := f.prove(ctx, info.FullMethod)
	if err != nil {
		f.calls.failed(info.FullMethod, err)
		f.auditUnproven(ctx, info.FullMethod, req, err)
		return nil, wire.ToStatus(withRequest(err, info.FullMethod, req))
	}
	if shown := metadata.ValueFromIncomingContext(ctx, tracing.Header); f.cfg.Tracer != nil && len(shown) == 1 {
		ctx = tracing.Remote(ctx, shown[0])
	}
	callstream.GrowStack()
	held, done := f.cfg.Guard.Hold(ctx, who) // a call may wait for long
	defer done()
	return f.carry(held, req, info, h).Wait()
}

// prove finds out who makes a call. The services that are gRPC's own are for everybody.
func (f *Front) prove(ctx context.Context, method string) (who *identity.Caller, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = f.panicked(method, p)
		}
	}()
	if !strings.HasPrefix(method, ours) {
		return nil, nil
	}
	return f.cfg.Guard.Prove(ctx)
}

// maxOpen is how many streams of gRPC's own services there may be at once.
const maxOpen = 256

// ours begins the full names of the methods of this program.
const ours = "/leasefs.v1."

// carry wraps every call, however it came: limit, panic barrier, metrics, errors.
func (f *Front) carry(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (a callstream.Answer) {
	ctx, span := tracing.Serve(ctx, f.cfg.Tracer, info.FullMethod)
	c := &call{f: f, ctx: ctx, method: info.FullMethod, req: req, span: span, answer: atOnce{}}
	a = c
	defer c.barrier()
	c.who = f.servedFor(ctx, info.FullMethod, req)
	if c.err = identity.Ended(ctx); c.err != nil {
		return c
	}
	if c.err = f.slow(ctx, c.who, req); c.err != nil {
		return c
	}
	if c.served = f.Served.Take(1, c.who); !c.served {
		f.calls.shed.Inc()
		c.err = &fserror.Error{Kind: fserror.Retry, Message: "overloaded: too many calls at once", RetryAfter: 100 * time.Millisecond}
		return c
	}
	c.began = f.cfg.Clock.Mono()
	ctx, c.answer = f.cfg.Answer(context.WithValue(identity.WithReal(ctx, req), servedKey{}, c.who), callstream.Waits)
	if _, ok := ctx.Deadline(); !ok {
		ctx, c.cancel = context.WithTimeout(ctx, callstream.DefaultTimeout)
	}
	c.ctx = ctx
	if c.err = identity.Of(ctx).Says(req); c.err == nil {
		c.err = f.gate(c.method)
	}
	if c.err == nil {
		c.resp, c.err = h(c.ctx, c.req)
	}
	return c
}

// barrier makes a panic the call's error. It is deferred.
func (c *call) barrier() {
	if p := recover(); p != nil {
		c.err = c.f.panicked(c.method, p)
	}
}

// atOnce is the Answer of a call that has come to none.
type atOnce struct{}

func (atOnce) Ready() bool                { return true }
func (atOnce) Wait(context.Context) error { return nil }
func (atOnce) Wrote() uint64              { return 0 }

// call is a call that was carried out and is yet to be answered.
type call struct {
	f      *Front
	ctx    context.Context //nolint:containedctx // its own, until it is answered
	cancel context.CancelFunc
	method string
	who    share.Taker
	served bool // it counts among the calls that are served
	began  time.Duration
	span   tracing.Span
	answer Answer
	req    any
	resp   any
	err    error
}

// Ready implements callstream.Answer.
func (c *call) Ready() bool { return !c.served || c.answer.Ready() }

// Wait implements callstream.Answer.
func (c *call) Wait() (any, error) {
	defer func() { c.span.End(c.err) }()
	c.finish()
	if c.err != nil {
		return nil, wire.ToStatus(withRequest(c.err, c.method, c.req))
	}
	return c.resp, nil
}

// finish waits until the answer may be given, gives the call's place back, and tells of it.
func (c *call) finish() {
	defer c.barrier()
	if c.served {
		defer func() {
			if c.cancel != nil {
				c.cancel()
			}
			c.f.Served.Give(1, c.who)
		}()
		c.err = cmp.Or(c.settle(), c.err)
	}
	if errors.Is(c.err, context.Canceled) {
		c.err = cmp.Or(identity.Ended(c.ctx), c.err)
	}
	if c.served {
		took := c.f.cfg.Clock.Mono() - c.began
		c.f.calls.observe(c.method, took, c.err, c.span.ID())
		c.f.audit(c.ctx, c.method, c.req, c.resp, c.err, c.answer.Wrote(), took)
	} else {
		c.f.audit(c.ctx, c.method, c.req, nil, c.err, 0, 0)
	}
}

// settle waits until the answer may be given. The end of the proof with which the call came ends the call
// while it waits for others, but takes no answer from it: it may be the call that ended the proof.
func (c *call) settle() error {
	err := c.answer.Wait(c.ctx)
	if err == nil || c.err != nil || identity.Ended(c.ctx) == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), callstream.DefaultTimeout)
	defer cancel()
	return c.answer.Wait(ctx)
}

// gate refuses, before anything of a call is looked at, what only the active
// namenode answers: all but the question how it is. What there is of the state
// may not be there yet, or be changed by the journal just now.
func (f *Front) gate(method string) error {
	if method == pb.Admin_Status_FullMethodName || !strings.HasPrefix(method, ours) {
		return nil
	}
	return f.role.Active()
}

func (f *Front) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	told := &auditStream{f: f, method: info.FullMethod, began: f.cfg.Clock.Mono()}
	ctx := ss.Context()
	b := &boundStream{ServerStream: ss, told: told, status: statusOf(ctx), says: func(err error) error { return err }}
	defer func() {
		if p := recover(); p != nil {
			err = f.panicked(info.FullMethod, p)
		} else if why := ss.Context().Err(); err != nil && why != nil {
			kind := fserror.Canceled // its client has left
			if errors.Is(why, context.DeadlineExceeded) {
				kind = fserror.Deadline
			}
			err = fserror.Wrap(kind, "", "", err)
		}
		if ours := err; !b.interrupted.CompareAndSwap(nil, &ours) {
			err = *b.interrupted.Load() // what the client is told
		}
		f.calls.failed(info.FullMethod, err)
		told.ended(ctx, err)
		err = wire.ToStatus(err)
	}()
	if !strings.HasPrefix(info.FullMethod, ours) { // for everybody, without a proof
		defer f.open.Add(-1)
		if f.open.Add(1) > maxOpen {
			return &fserror.Error{Kind: fserror.Retry, Message: "overloaded: too many watches of the namenode's health, and looks at its methods, at once", RetryAfter: time.Second}
		}
	}
	who, err := f.prove(ctx, info.FullMethod)
	if err != nil {
		f.auditUnproven(ctx, info.FullMethod, nil, err)
		told.silent = true
		return err
	}
	held, done := f.cfg.Guard.Hold(ss.Context(), who)
	defer done()
	defer told.give()
	if info.FullMethod == pb.Calls_Carry_FullMethodName {
		return h(srv, b.bind(held)) // each call comes to the gate by itself, and is answered when the loops end
	}
	ctx, cancel := context.WithCancelCause(held)
	defer cancel(nil)
	defer context.AfterFunc(f.cfg.Loops.Context(), func() { cancel(f.cfg.Loops.Err()) })()
	if err := f.gate(info.FullMethod); err != nil {
		return err
	}
	b.says = func(err error) error {
		if why := identity.Ended(held); why != nil && errors.Is(err, context.Canceled) {
			return why
		}
		if why := f.cfg.Loops.Err(); why != nil && ss.Context().Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, why)) {
			// It was not the client who broke it off: he continues with the next namenode.
			return &fserror.Error{Kind: fserror.NotActive, Message: why.Error(), RetryAfter: 100 * time.Millisecond}
		}
		return err
	}
	return b.says(h(srv, b.bind(context.WithValue(ctx, boundKey{}, b))))
}

// boundStream has a context that ends with the namenode, and with the proof of who its
// client is, in whose name all messages have to come.
type boundStream struct {
	grpc.ServerStream
	ctx   atomic.Pointer[context.Context]
	begun atomic.Bool // a message has come
	told  *auditStream

	status      statusWriter          // nil: it cannot be interrupted
	says        func(error) error     // what the client is told of an end
	interrupted atomic.Pointer[error] // what it was told: by Interrupt, or by the handler's return
}

func (b *boundStream) bind(ctx context.Context) *boundStream {
	b.ctx.Store(&ctx)
	return b
}

// RecvMsg implements grpc.ServerStream.
func (b *boundStream) RecvMsg(m any) error {
	if err := b.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if !b.begun.Swap(true) { // in whose name a stream comes is said by its first message
		ctx := identity.WithReal(b.Context(), m)
		b.ctx.Store(&ctx)
	}
	if err := identity.Of(b.Context()).Says(m); err != nil {
		b.told.refused(b.Context(), m)
		return err
	}
	return b.told.begun(b.Context(), m)
}

func (b *boundStream) Context() context.Context { return *b.ctx.Load() }

func (f *Front) panicked(method string, p any) error {
	f.calls.panics.Inc()
	f.cfg.Log.Error("a call panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return fserror.New(fserror.Internal, "", "", "the namenode failed in this call; its log tells more")
}

// withRequest names the path in an error that does not.
func withRequest(err error, method string, req any) error {
	if err == nil {
		return nil
	}
	var path string
	switch r := req.(type) {
	case interface{ GetAt() *pb.Ref }:
		path = r.GetAt().AbsolutePath()
	case interface{ GetFrom() *pb.Ref }:
		path = r.GetFrom().AbsolutePath()
	case interface{ GetTarget() *pb.Ref }:
		path = r.GetTarget().AbsolutePath()
	case interface{ GetPath() string }:
		path = r.GetPath()
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
