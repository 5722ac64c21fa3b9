package client

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// maxEndpoints bounds how many addresses are followed that no
	// configuration named.
	maxEndpoints = 64
	// maxReceive is what an answer may have: a page of a listing or of blocks.
	maxReceive = 32 << 20
)

// endpoint is one namenode's address and the connections to it. They are made
// at the first call.
type endpoint struct {
	address string
	conns   []*grpc.ClientConn
	turn    atomic.Uint32
}

func (e *endpoint) conn() *grpc.ClientConn {
	if len(e.conns) == 1 {
		return e.conns[0]
	}
	return e.conns[e.turn.Add(1)%uint32(len(e.conns))]
}

// endpoints knows all addresses and which one is believed to be active.
type endpoints struct {
	opts    []grpc.DialOption
	conns   int
	current atomic.Pointer[endpoint]

	mu     sync.Mutex
	list   []*endpoint // those of the configuration first
	closed bool
}

func newEndpoints(cfg *Config) (*endpoints, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	s := &endpoints{conns: cfg.Conns}
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
	for _, a := range cfg.Namenodes {
		if _, err := s.addLocked(a); err != nil {
			s.close()
			return nil, err
		}
	}
	s.current.Store(s.list[0])
	return s, nil
}

// addLocked makes an endpoint. The caller holds mu, or is alone.
func (s *endpoints) addLocked(address string) (*endpoint, error) {
	e := &endpoint{address: address}
	for range s.conns {
		cc, err := grpc.NewClient("passthrough:///"+address, s.opts...)
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

// moveOn leaves from, which did not serve: for the address hinted at, else for
// the next of the list. If another call moved on already, that holds. It
// reports whether the hint was followed.
func (s *endpoints) moveOn(from *endpoint, hint string) bool {
	if s.current.Load() != from {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	to := from
	for i, e := range s.list {
		if hint != "" && e.address == hint {
			to = e
			break
		}
		if hint == "" && e == from {
			to = s.list[(i+1)%len(s.list)]
			break
		}
	}
	followed := to != from
	if hint != "" && to == from && hint != from.address && len(s.list) < maxEndpoints {
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
	s.current.CompareAndSwap(from, to)
	return hint != "" && followed
}

// at returns the endpoint of an address, which is added if it is new; nil if that
// cannot be.
func (s *endpoints) at(address string) *endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.list {
		if e.address == address {
			return e
		}
	}
	if s.closed || len(s.list) >= maxEndpoints {
		return nil
	}
	e, err := s.addLocked(address)
	if err != nil {
		return nil
	}
	return e
}

// configured returns the endpoints of the configuration, n of them.
func (s *endpoints) configured(n int) []*endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*endpoint(nil), s.list[:n]...)
}

func (s *endpoints) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, len(s.list))
	for i, e := range s.list {
		names[i] = e.address
	}
	return strings.Join(names, ", ")
}

func (s *endpoints) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.list {
		for _, c := range e.conns {
			_ = c.Close() // its only error is that it was closed before
		}
	}
}
