package webhdfs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/gate"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/still"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/share"
)

// Limits and defaults of a Config.
const (
	// DefaultListen is where the gateway listens when no address is given: the port
	// is that of HDFS's own.
	DefaultListen = "127.0.0.1:9870"
	// DefaultStreams is how many files are read and written at once.
	DefaultStreams = 64
	// DefaultIdle is how long a client that reads or writes a file may be silent.
	DefaultIdle = 10 * time.Minute

	// DefaultTimeout is how long a call is tried again while no namenode answers: less
	// than the minute for which Hadoop's client waits.
	DefaultTimeout = 40 * time.Second

	maxConns  = 1024
	maxUsers  = 256 // sessions; each has a connection to the namenode
	maxHeader = 256 << 10
	headTime  = 20 * time.Second // for the head of a request, and between two
	gateTime  = 20 * time.Second // for others to finish what they read and write
	shortTime = 2 * time.Minute  // for an operation other than reading and writing files
	prefix    = "/webhdfs/v1"
)

// Config says how a gateway serves. The zero value of a field stands for its default.
type Config struct {
	// Client says how to reach the namespace. User is replaced by that of each request, for
	// whom the gateway acts: RealUser, or else User, is who proves that it may, as whom the
	// token or the certificate names; empty: that one, or without either the login name. A
	// request in the name of whom a proof names is refused.
	// Timeout is DefaultTimeout if it is 0; Umask, WriteAhead, ReadAhead, Logger and OnWait
	// are the gateway's own.
	Client client.Config
	// Listen is the ADDR:PORT for clients; empty: DefaultListen. Port 0 takes a free one.
	Listen string
	// Advertise is the HOST:PORT to which clients are sent for the second of the two
	// requests that read or write a file. It has to lead to this gateway, not to
	// another one beside it. Empty: what the first request had as its host.
	Advertise string
	// TrustClients lets Listen be an address that other machines reach. Clients say
	// who they are, and nobody checks it.
	TrustClients bool
	// Names are further names by which clients call the gateway, as that of a load
	// balancer before it. It always serves requests to an IP address, to
	// localhost, to the host names of Listen and Advertise, and to that of the machine;
	// others it refuses, since a page in a browser can give its own name any address.
	Names []string
	// Proxies are the users who may act for others (parameter doas), see hadoop.Proxies.
	Proxies []string
	// Guard finds out who clients are; nil: they say it.
	Guard *auth.Guard
	// TLS has the certificate with which swebhdfs:// is served; nil: webhdfs:// is, without
	// TLS. With a Guard and without TLS, only this machine may reach the address, unless
	// TrustClients: others could read what proves who a client is.
	TLS *tls.Config
	// Streams is how many files are read and written at once; each needs up to two
	// blocks of memory. 0: DefaultStreams.
	Streams int
	// Observe is told of each request: the Java name of its error, empty without one, and how
	// long it took; nil: nobody is.
	Observe func(class string, took time.Duration)
	// Idle is for how long a client may be silent while it reads or writes a file; then
	// its connection is closed, and the file. 0: DefaultIdle.
	Idle time.Duration
	// Logger gets what an operator should know of; nil: nothing is logged.
	Logger *slog.Logger
}

// Server is a gateway that serves. It is safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	proxies  *proof.Proxies
	users    *users.Table
	streams  *gate.Gate
	reports  *gate.Gate // of snapshots, made whole
	openings *openings
	visits   *visits
	listener net.Listener
	http     *http.Server
	host     string   // of this machine, for the locations of blocks
	names    []string // by which it may be called
	life     context.Context
	kill     context.CancelFunc
	served   chan struct{} // closed when it serves no more; then err is set
	err      error

	mu     sync.Mutex
	closed bool           // then work only falls
	work   sync.WaitGroup // requests and goroutines
}

// Start begins to serve. It needs no namenode to answer yet. InvalidArgument: the
// configuration makes no sense. The context governs Start alone; Close ends the Server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	const op = "webhdfs"
	cfg.Listen = cmp.Or(cfg.Listen, DefaultListen)
	cfg.Streams = cmp.Or(cfg.Streams, DefaultStreams)
	cfg.Idle = cmp.Or(cfg.Idle, DefaultIdle)
	if cfg.Streams < 1 || cfg.Idle < time.Second {
		return nil, fserror.New(fserror.InvalidArgument, op, "", "%d files at once and %s of silence are too few; allow 1 and 1s at least", cfg.Streams, cfg.Idle)
	}
	if cfg.Advertise != "" {
		if _, _, err := net.SplitHostPort(cfg.Advertise); err != nil {
			return nil, fserror.New(fserror.InvalidArgument, op, cfg.Advertise, "the address for clients is no HOST:PORT: %s", err)
		}
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, time.Duration) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	proxies, err := hadoop.Proxies(op, cfg.Proxies)
	if err != nil {
		return nil, err
	}
	l, err := hadoop.Listen(ctx, op, cfg.Listen, cfg.TrustClients || cfg.Guard != nil && cfg.TLS != nil)
	if err != nil {
		return nil, err
	}
	table := conns.New(maxConns, 0)
	table.EndUnanswered(max(cfg.Idle, shortTime)) // a reader may pause
	s := &Server{
		cfg: cfg, log: cfg.Logger, proxies: proxies,
		streams:  gate.New(int64(cfg.Streams), gateTime),
		reports:  gate.New(hadoop.MaxReports, gateTime),
		listener: table.Listener(l),
		served:   make(chan struct{}),
	}
	if s.host, err = os.Hostname(); err != nil || s.host == "" {
		s.host = "localhost"
	}
	for _, name := range append([]string{"localhost", s.host, cfg.Listen, cfg.Advertise}, cfg.Names...) {
		s.names = append(s.names, hostOf(name))
	}
	if cfg.TrustClients && cfg.Guard == nil {
		s.log.Warn(hadoop.WarnOfTrust, "listen", s.Addr())
	}
	s.life, s.kill = context.WithCancel(context.Background())
	if cfg.Client, err = users.Proves(cfg.Client); err != nil {
		_ = l.Close()
		return nil, fserror.With(err, op, "")
	}
	cfg.Client.Timeout = cmp.Or(cfg.Client.Timeout, DefaultTimeout)
	cfg.Client.WriteAhead, cfg.Client.ReadAhead = 0, 1
	cfg.Client.Umask, cfg.Client.Logger = nil, cfg.Logger
	cfg.Client.OnWait = func(w client.Waiting) {
		cfg.Logger.Warn("waiting", "op", w.Op, "path", w.Path, "for", w.For, "cause", w.Cause)
	}
	s.users = users.New(s.life, cfg.Client, maxUsers, s.log)
	s.openings = &openings{server: s, byID: map[string]*opening{}, writing: map[*opening]http.ResponseWriter{}}
	s.visits = &visits{log: s.log, tls: cfg.TLS != nil, still: still.New(nil), of: map[net.Conn]*visit{}}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headTime,
		IdleTimeout:       headTime,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return s.life },
		ConnContext:       s.visits.connContext,
		ConnState: func(c net.Conn, state http.ConnState) {
			s.visits.note(c, state)
			// Idle connections make room for others, see package conns.
			if cc, ok := plain(c).(*conns.Conn); ok && state == http.StateActive {
				cc.MarkBusy()
			} else if ok && state == http.StateIdle {
				cc.MarkIdle()
			}
		},
		TLSConfig:    cfg.TLS,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // a broken body ends a connection of its own: no HTTP/2
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.work.Go(func() {
		defer close(s.served)
		serve := s.http.Serve
		if cfg.TLS != nil {
			serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
		}
		if err := serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.err = fserror.New(fserror.Internal, op, cfg.Listen, "serves no more: %s", err)
		}
	})
	s.work.Go(s.sweep)
	s.work.Go(func() {
		s.visits.still.Run(s.life, func(d time.Duration) {
			s.log.Warn("the process stood still; connections of WebHDFS that are there change nothing more, since clients may have made their requests elsewhere", "for", d)
		})
	})
	return s, nil
}

// Addr is the address at which it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// InUse tells how many sessions of the library there are, and how many files are read and written.
func (s *Server) InUse() (sessions, streams int) {
	sessions, _ = s.users.InUse()
	return sessions, int(s.streams.Used())
}

// Done is closed when it serves no more.
func (s *Server) Done() <-chan struct{} { return s.served }

// Err says why it serves no more, after Done; nil if Close was called.
func (s *Server) Err() error { return s.err }

// Close ends the Server: no new request is taken, those under way may finish until the
// context ends. Then files that are being written are closed at what has arrived. It
// waits until nothing of the Server is left.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.kill()
	if err != nil {
		s.log.Warn("ended with requests under way", "streams", s.streams.Used())
		err = s.http.Close()
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.openings.close()
	s.work.Wait()
	s.users.Close()
	return err
}

// sweep ends what nobody uses any more.
func (s *Server) sweep() {
	t := time.NewTicker(claimTime / 4)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.openings.endOld()
			s.users.EndIdle()
		case <-s.life.Done():
			return
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	served(r)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff") // no browser takes a file for a page
	if !s.admit() {
		fail(w, hadoop.Refuse(hadoop.Retriable, "the gateway is ending; ask another one, or try again later"))
		return
	}
	defer s.work.Done()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a request ended in a fault of the gateway", "method", r.Method, "path", r.URL.Path, "query", shown(r.URL), "fault", p, "stack", string(debug.Stack()))
			fail(w, hadoop.Refuse(hadoop.RuntimeException, "a fault of the gateway: its log tells more"))
		}
	}()
	began := time.Now()
	err := s.serve(w, r)
	class := ""
	if err != nil {
		class = hadoop.ClassOf(err)
	}
	s.cfg.Observe(class, time.Since(began))
	switch {
	case errors.Is(err, errCut):
		s.cut(w)
	case err != nil:
		s.log.Debug("refused", "method", r.Method, "path", r.URL.Path, "query", shown(r.URL), "cause", err)
		fail(w, err)
	}
}

// admit counts a request, unless the Server has ended.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Add(1)
	}
	return !s.closed
}

// cut closes the connection of a request.
func (s *Server) cut(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		s.log.Debug("a broken connection could not be closed", "cause", err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	patient(w, shortTime)
	if err := s.fromHere(r); err != nil {
		return err
	}
	path, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok || path != "" && path[0] != '/' {
		return hadoop.Refuse(hadoop.FileNotFound, "%.200q is not below %s/", r.URL.Path, prefix)
	}
	p, err := parseParams(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if r.Method == http.MethodOptions && s.cfg.Guard != nil { // with which Hadoop's client begins
		if _, err := s.proven(w, r, auth.Sent{}, p); err != nil {
			return err
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
	f, op, err := find(r.Method, p)
	if err != nil {
		return err
	}
	if path, err = fspath.Clean(cmp.Or(path, "/")); err != nil {
		return err
	}
	who, err := s.who(w, r, sent(op, path, p), p)
	if err != nil {
		return err
	}
	u, err := s.users.Get(r.Context(), users.Key{User: who.user})
	if err != nil {
		return err
	}
	defer s.users.Release(u)
	return f(&request{Server: s, w: w, r: r, ctx: r.Context(), op: op, path: path, user: u, who: who, fs: hadoop.FS{FS: u.FS, User: u.User, Log: s.log}, params: p})
}

// fromHere refuses what a page in a browser sends: it could make a user's browser
// call a gateway that the page's author does not reach. A page that gives its own name
// the address of the gateway is told by that name.
func (s *Server) fromHere(r *http.Request) error {
	if o := r.Header.Get("Origin"); o != "" {
		return hadoop.Refuse(hadoop.AccessControl, "the request comes from a page of %.100q in a browser; the gateway serves programs only", o)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return hadoop.Refuse(hadoop.AccessControl, "the request comes from a page of another host in a browser (Sec-Fetch-Site is %s); the gateway serves programs only", site)
	}
	host := hostOf(r.Host)
	if host == "" || slices.ContainsFunc(s.names, func(name string) bool { return strings.EqualFold(name, host) }) {
		return nil // every browser says a host
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return hadoop.Refuse(hadoop.AccessControl, "the gateway does not know that it is called %.100q; use its IP address or the name of its machine, or let whoever runs it advertise that name (docs/HADOOP.md, Trust)", host)
}

// hostOf is the host of what may have a port.
func hostOf(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		address = h
	}
	return strings.TrimSuffix(strings.Trim(address, "[]"), ".")
}

// taker is who takes a share of the streams.
func (q *request) taker() share.Taker {
	t := share.Taker{Names: []string{"user " + q.user.User}}
	if a, err := netip.ParseAddrPort(q.r.RemoteAddr); err == nil && !a.Addr().IsLoopback() {
		t.Names = append(t.Names, "address "+conns.AddressName(a.Addr()))
	}
	return t
}
