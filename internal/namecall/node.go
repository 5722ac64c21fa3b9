package namecall

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxNodes bounds how many addresses are known, once those of the
	// configuration are.
	maxNodes = 64
	// maxReceive is what an answer may have: a page of a listing or of blocks.
	maxReceive = 32 << 20
)

// Node is one namenode: its address and the connections to it, which are made
// at the first call.
type Node struct {
	Address string

	conns []*callstream.Conn
	turn  atomic.Uint32
}

// Conn is a connection to the namenode: each of them in turn.
func (n *Node) Conn() *callstream.Conn {
	if len(n.conns) == 1 {
		return n.conns[0]
	}
	return n.conns[n.turn.Add(1)%uint32(len(n.conns))]
}

// Status asks the namenode, active or not, how it is.
func (n *Node) Status(ctx context.Context, caller *pb.Caller) (*pb.StatusResponse, error) {
	r := new(pb.StatusResponse)
	err := n.Conn().Invoke(ctx, pb.Admin_Status_FullMethodName, &pb.StatusRequest{Caller: caller}, r, grpc.StaticMethod())
	return r, err
}

// Config says how to reach a namespace. Namenodes, Caller, Timeout, Attempt and Conns are needed.
type Config struct {
	Namenodes []string      // HOST:PORT each, all different; one at least
	Caller    *pb.Caller    // who asks namenodes how they are
	Timeout   time.Duration // for how long a call is tried
	Attempt   time.Duration // for how long one attempt may take, but for Call.Wait
	Conns     int           // connections to each namenode
	TLS       *tls.Config   // nil: plain text
	// Roots are who signs namenodes, asked for at each handshake; nil: those of TLS.
	Roots func() *x509.CertPool
	// Token returns the bearer token that proves who the caller is; nil: there is none. It
	// is sent only over TLS, or to a loopback address.
	Token func(context.Context) (string, error)
	// Show proves who the caller is; nil: Token does, if anything. What it shows is sent as
	// a token is.
	Show        Shower
	DialOptions []grpc.DialOption
	// Inactive is told of a namenode that was asked and is not active.
	Inactive func(*Node)
	// OnWait is told what a call waits for; nil: nobody is.
	OnWait func(Waiting)
	// Clock is the caller's clock; nil: the machine's. Which one tells that a call was
	// under way for longer than Timeout though the process stood still.
	Clock clock.Clock
}

// Shower shows who a caller is.
type Shower interface {
	// Header returns the header "authorization" for the namenode of a host, new each time.
	Header(ctx context.Context, host string) (string, error)
	// Close ends what it does in the background.
	Close()
}

// Namenodes are those of one namespace. It is safe for concurrent use.
type Namenodes struct {
	cfg     Config
	ids     *IDs
	opts    []grpc.DialOption
	ctx     context.Context //nolint:containedctx // until Close
	cancel  context.CancelFunc
	active  atomic.Pointer[Node] // is believed to be
	search  search
	notes   notes
	retries atomic.Uint64

	mu   sync.Mutex
	list []*Node // those of the configuration first
}

// New returns the namenodes of a configuration. It connects to none. The context
// governs all calls until Close, which has to follow.
func New(ctx context.Context, cfg Config) (*Namenodes, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = trusting{credentials.NewTLS(cfg.TLS), &cfg}
	}
	cfg.Clock = cmp.Or[clock.Clock](cfg.Clock, clock.System{})
	s := &Namenodes{cfg: cfg, ids: NewIDs(cfg.Caller.GetSession())}
	s.opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// Retrying is ours: only we know which calls may happen once.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		// A namenode that comes back is found within a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithInitialWindowSize(1 << 20),
		grpc.WithInitialConnWindowSize(4 << 20),
	}, cfg.DialOptions...)
	s.ctx, s.cancel = context.WithCancel(ctx)
	for _, a := range cfg.Namenodes {
		if _, err := s.addLocked(a); err != nil {
			s.Close()
			return nil, err
		}
	}
	s.active.Store(s.list[0])
	return s, nil
}

// Close ends all calls and connections. It returns when nothing of them is left.
func (s *Namenodes) Close() {
	s.mu.Lock()
	s.cancel()
	for _, e := range s.list {
		for _, c := range e.conns {
			_ = c.Close() // its only error is that it was closed before
		}
	}
	s.mu.Unlock()
	s.search.wait()
	if s.cfg.Show != nil {
		s.cfg.Show.Close()
	}
}

// Err is nil, and of kind Closed once no call is sent any more.
func (s *Namenodes) Err() error {
	if s.ctx.Err() != nil {
		return fserror.New(fserror.Closed, "", "", "the client is closed")
	}
	return nil
}

// IDs number the calls of the configuration's caller.
func (s *Namenodes) IDs() *IDs { return s.ids }

// Active is the namenode that is believed to be active.
func (s *Namenodes) Active() *Node { return s.active.Load() }

// Configured are the namenodes of the configuration.
func (s *Namenodes) Configured() []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Node(nil), s.list[:len(s.cfg.Namenodes)]...)
}

// Retries is how many calls were sent again.
func (s *Namenodes) Retries() uint64 { return s.retries.Load() }

// addLocked makes a node. The caller holds mu, or is alone.
func (s *Namenodes) addLocked(address string) (*Node, error) {
	e := &Node{Address: address}
	opts := s.opts
	if s.cfg.Token != nil || s.cfg.Show != nil {
		if s.cfg.TLS == nil && !loopback(address) {
			return nil, fserror.New(fserror.InvalidArgument, "connect", "", "without TLS the network would see the proof of identity on its way to %s: connect with TLS", address)
		}
		var shows credentials.PerRPCCredentials = Bearer(s.cfg.Token)
		if s.cfg.Show != nil {
			host, _, _ := net.SplitHostPort(address) // an address that is wrong is reached by nobody
			shows = shower{s.cfg.Show, host}
		}
		opts = append(opts[:len(opts):len(opts)], grpc.WithPerRPCCredentials(shows))
	}
	for range s.cfg.Conns {
		cc, err := callstream.NewClient("passthrough:///"+address, opts...)
		if err != nil {
			for _, c := range e.conns {
				_ = c.Close() // never used
			}
			return nil, fserror.New(fserror.InvalidArgument, "connect", "", "namenode address %q: %v; give HOST:PORT", address, err)
		}
		e.conns = append(e.conns, cc)
	}
	s.list = append(s.list, e)
	return e, nil
}

// Bearer shows a token with each call and each stream.
type Bearer func(context.Context) (string, error)

// trusting are TLS's with the authorities of the moment.
type trusting struct {
	credentials.TransportCredentials
	cfg *Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (t trusting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t.cfg.Roots == nil {
		return t.TransportCredentials.ClientHandshake(ctx, authority, raw)
	}
	now := t.cfg.TLS.Clone()
	now.RootCAs = t.cfg.Roots()
	return credentials.NewTLS(now).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (t trusting) Clone() credentials.TransportCredentials {
	return trusting{t.TransportCredentials.Clone(), t.cfg}
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b Bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b(ctx)
	switch {
	case errors.Is(err, fserror.Unavailable): // trying again may help
		return nil, status.Error(codes.Unavailable, err.Error())
	case err != nil: // as if a namenode had said it: no other one will take it
		return nil, wire.ToStatus(err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Who makes the
// connection has looked at that already.
func (Bearer) RequireTransportSecurity() bool { return false }

// shower shows a header that is new each time.
type shower struct {
	show Shower
	host string
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (s shower) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	header, err := s.show.Header(ctx, s.host)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return map[string]string{"authorization": header}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials, as Bearer does.
func (shower) RequireTransportSecurity() bool { return false }

// loopback reports whether an address is surely this machine's own.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// MoveOn leaves from, which did not serve: for the address hinted at, else for
// the next of the list. If another call moved on already, that holds. It
// reports whether the hint was followed.
func (s *Namenodes) MoveOn(from *Node, hint string) bool {
	if s.active.Load() != from {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	to := from
	for i, e := range s.list {
		if hint != "" && e.Address == hint {
			to = e
			break
		}
		if hint == "" && e == from {
			to = s.list[(i+1)%len(s.list)]
			break
		}
	}
	followed := to != from
	if hint != "" && to == from && hint != from.Address && len(s.list) < maxNodes {
		e, err := s.addLocked(hint)
		if err == nil {
			to, followed = e, true
		}
	}
	if hint != "" && !followed && len(s.list) > 1 {
		// A standby that names itself: ask the next.
		for i, e := range s.list {
			if e == from {
				to = s.list[(i+1)%len(s.list)]
			}
		}
	}
	s.active.CompareAndSwap(from, to)
	return hint != "" && followed
}

// At returns the node of an address, which is added if it is new; nil if that
// cannot be.
func (s *Namenodes) At(address string) *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.list {
		if e.Address == address {
			return e
		}
	}
	if s.ctx.Err() != nil || len(s.list) >= maxNodes {
		return nil
	}
	e, err := s.addLocked(address)
	if err != nil {
		return nil
	}
	return e
}

// others are all nodes but one.
func (s *Namenodes) others(than *Node) []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Node
	for _, e := range s.list {
		if e != than {
			out = append(out, e)
		}
	}
	return out
}

// String lists the addresses.
func (s *Namenodes) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, len(s.list))
	for i, e := range s.list {
		names[i] = e.Address
	}
	return strings.Join(names, ", ")
}
