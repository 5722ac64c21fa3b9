package env

import (
	"context"
	"errors"
	"net"
	"path"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/client"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// ErrLost is what a client sees of a message that went nowhere.
var ErrLost = status.Error(codes.Unavailable, "env: lost on the way")

// Around is called for each message of a client: by its short name ("Close";
// "Renew" for a renewal on the session's stream). It sends the message, or
// does not, and says what the client sees. To lose a reply, it sends and
// returns ErrLost; to delay one, it waits.
type Around func(method string, req any, send func() error) error

// Wire is the line between a client and its namenode. Its zero value delivers.
type Wire struct {
	mu     sync.Mutex
	around Around
	counts map[string]int
	opened map[string]int // streams
	cut    bool
	conns  map[net.Conn]struct{}
	held   [2]chan struct{} // by direction; closed when bytes may pass again
	stuck  [2]int           // connections that wait for that
}

// Directions in which a Wire can be held.
const (
	ToNamenode = iota
	ToClient
)

// Wired is Client with a Wire under it.
func (n *Namenode) Wired(t testing.TB, mods ...func(*client.Config)) (*client.FS, *Wire) {
	t.Helper()
	w := &Wire{}
	mods = append(mods, func(c *client.Config) { c.DialOptions = append(c.DialOptions, w.DialOptions()...) })
	fs := n.Client(t, mods...)
	// Before the client is closed: what it still has to say must get through.
	t.Cleanup(func() { w.Set(nil); w.Mend(); w.Release() })
	return fs, w
}

// Set makes around stand at the line from now on; nil takes it away.
func (w *Wire) Set(around Around) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.around = around
}

// Lose loses all messages with those names, replies never come.
func (w *Wire) Lose(methods ...string) {
	lost := map[string]bool{}
	for _, m := range methods {
		lost[m] = true
	}
	w.Set(func(method string, _ any, send func() error) error {
		switch {
		case !lost[method]:
			return send()
		case method == "Renew":
			return nil // a stream takes it and says nothing
		}
		return ErrLost
	})
}

// LoseReply delivers the next message with that name and loses its reply.
func (w *Wire) LoseReply(method string) {
	var once sync.Once
	w.Set(func(m string, _ any, send func() error) error {
		err := send()
		if m == method {
			once.Do(func() { err = ErrLost })
		}
		return err
	})
}

// Count is how many messages with that name were sent.
func (w *Wire) Count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[method]
}

// Streams is how many streams with that name were opened.
func (w *Wire) Streams(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened[method]
}

// Total is how many messages were sent.
func (w *Wire) Total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.counts {
		n += c
	}
	return n
}

// Cut breaks all connections, and refuses new ones until Mend: to the namenode
// the client is dead.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for c := range w.conns {
		_ = c.Close() // that it ends is all
	}
	w.conns = nil
}

// Mend lets connections through again.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// Hold keeps back all bytes in one direction, without losing any, until
// Release: a slow network, or to the namenode a client that is stopped.
func (w *Wire) Hold(direction int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[direction] == nil {
		w.held[direction] = make(chan struct{})
	}
}

// Release lets bytes through again, both ways.
func (w *Wire) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, held := range w.held {
		if held != nil {
			close(held)
			w.held[i] = nil
		}
	}
}

// Holds reports whether bytes are held in one direction.
func (w *Wire) Holds(direction int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck[direction] > 0
}

// pass waits while bytes are held.
func (w *Wire) pass(direction int, closed <-chan struct{}) {
	for {
		w.mu.Lock()
		held := w.held[direction]
		if held != nil {
			w.stuck[direction]++
		}
		w.mu.Unlock()
		if held == nil {
			return
		}
		over := false
		select {
		case <-held:
		case <-closed:
			over = true
		}
		w.mu.Lock()
		w.stuck[direction]--
		w.mu.Unlock()
		if over {
			return
		}
	}
}

// heldConn is a connection whose bytes can be held.
type heldConn struct {
	net.Conn
	w      *Wire
	once   sync.Once
	closed chan struct{}
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.pass(ToClient, c.closed) // also what was read before the hold, unless it was handed on
	return n, err
}

func (c *heldConn) Write(p []byte) (int, error) {
	c.w.pass(ToNamenode, c.closed)
	return c.Conn.Write(p)
}

func (c *heldConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// DialOptions put the Wire under a client.
func (w *Wire) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(w.dial),
		grpc.WithChainUnaryInterceptor(w.unary),
		grpc.WithChainStreamInterceptor(w.stream),
	}
}

func (w *Wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, errors.New("env: cut")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &heldConn{Conn: conn, w: w, closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = c.Close()
		return nil, errors.New("env: cut")
	}
	if w.conns == nil {
		w.conns = map[net.Conn]struct{}{}
	}
	w.conns[c] = struct{}{}
	return c, nil
}

func (w *Wire) message(method string, req any, send func() error) error {
	w.mu.Lock()
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	w.counts[method]++
	around := w.around
	w.mu.Unlock()
	if around == nil {
		return send()
	}
	return around(method, req, send)
}

func (w *Wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return w.message(path.Base(method), req, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
}

func (w *Wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	if method == pb.Calls_Carry_FullMethodName {
		return s, nil // its calls were seen one by one
	}
	w.mu.Lock()
	if w.opened == nil {
		w.opened = make(map[string]int)
	}
	w.opened[path.Base(method)]++
	w.mu.Unlock()
	return &wireStream{s, w, path.Base(method)}, nil
}

type wireStream struct {
	grpc.ClientStream
	w      *Wire
	method string
}

func (s *wireStream) SendMsg(m any) error {
	name := s.method
	if r, ok := m.(*pb.SessionRequest); ok && r.GetRenew() != nil {
		name = "Renew"
	}
	return s.w.message(name, m, func() error { return s.ClientStream.SendMsg(m) })
}
