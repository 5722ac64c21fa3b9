package zkconn

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	opMulti      = 14 // as in ZooDefs.OpCode
	opSetAuth    = 100
	opSetWatches = 101

	firstPause = 20 * time.Millisecond
	longPause  = 500 * time.Millisecond
	watchPause = 100 * time.Millisecond
)

// wire is one connection to one server, between the client and the network.
//
// The client writes each request with one call of Write, in the order in which
// they leave. That is where the order of multis is taken from: the next one is
// handed to the client only when the one before has passed here.
//
// A write that fails is not told to the client: it would answer that request, and
// answer it again when it clears up behind the connection. For the second answer
// of a request to log in, and the third of any, there is no room, and the client
// would stand still for ever, neither reconnecting nor ending. Instead the
// connection is closed, whereupon the client's next Read fails: then it clears
// up, once.
//
// Until the server has answered the greeting, the deadline is the wire's own.
//
// On a new connection the client tells the server its watches and what it saw
// last, so that it learns what it missed. What it saw last it looks up while
// answers already come in (a data race, and a watch that is missed, if an answer
// is newer than the event). So the first answer is held back until the watches
// have been sent; but not those to logging in, which the client waits for first,
// and which say nothing that is new.
type wire struct {
	net.Conn
	s *Session

	greeting bool   // the next Write is the first: the connect request
	hello    []byte // the server's answer to it, as far as it came
	mu       sync.Mutex
	greeted  bool  // hello is whole
	failure  error // of the first Read or Write that failed

	rewatch   sync.Once
	rewatched chan struct{} // closed when the watches were sent, or cannot be
	hold      bool          // the first answer waits for that
	loggingIn atomic.Bool   // the last request was to log in
}

// Write implements net.Conn. It never fails: see above.
func (w *wire) Write(p []byte) (int, error) {
	op := uint32(0)
	switch {
	case w.greeting:
		w.greeting = false
	case len(p) >= 12:
		op = binary.BigEndian.Uint32(p[8:])
	}
	w.loggingIn.Store(op == opSetAuth)
	switch op {
	case opMulti:
		w.s.calls.passed()
	case opSetWatches:
		w.stopHolding()
	}
	if _, err := w.Conn.Write(p); err != nil {
		_ = w.fail(err) // the next Read says so
	}
	return len(p), nil
}

func (w *wire) stopHolding() { w.rewatch.Do(func() { close(w.rewatched) }) }

// fail closes the connection for a Read or a Write that failed, and returns why
// the first one did. What is not with the client yet is kept from it.
func (w *wire) fail(err error) error {
	w.mu.Lock()
	if w.failure == nil {
		w.failure = err
	}
	err = w.failure
	w.mu.Unlock()
	w.shut()
	w.stopHolding()
	w.s.disconnected(w)
	return err
}

// Close implements net.Conn.
func (w *wire) Close() error {
	_ = w.fail(net.ErrClosed)
	return nil
}

// shut ends the connection, without TLS's word of farewell: on a line that is
// stuck it would take five seconds.
func (w *wire) shut() {
	c := w.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close() // that it ends is all
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	greeting := w.ownDeadline()
	n, err := w.Conn.Read(p)
	if err != nil {
		return n, w.fail(err)
	}
	if !greeting {
		if w.hold && !w.loggingIn.Load() {
			w.hold = false
			w.awaitWatches()
		}
		return n, nil
	}
	w.hello = append(w.hello, p[:n]...) // length, version, granted time-out in milliseconds, …
	if len(w.hello) >= 12 && len(w.hello) >= 4+int(binary.BigEndian.Uint32(w.hello)) {
		w.s.timeout.Store(int64(time.Duration(binary.BigEndian.Uint32(w.hello[8:])) * time.Millisecond))
		w.mu.Lock()
		w.greeted = true
		w.mu.Unlock()
		_ = w.Conn.SetDeadline(time.Time{}) // a broken connection shows at the next use
	}
	return n, nil
}

// awaitWatches waits for the watches to leave. They do unless the last one has
// just gone off: then the pause ends it.
func (w *wire) awaitWatches() {
	t := time.NewTimer(watchPause)
	defer t.Stop()
	select {
	case <-w.rewatched:
	case <-t.C:
	case <-w.s.life.Done():
	}
}

func (w *wire) ownDeadline() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.greeted
}

// SetReadDeadline implements net.Conn.
func (w *wire) SetReadDeadline(t time.Time) error {
	if w.ownDeadline() {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (w *wire) SetWriteDeadline(t time.Time) error {
	if w.ownDeadline() {
		return nil
	}
	return w.Conn.SetWriteDeadline(t)
}

// dial is the client's Dialer.
func (s *Session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	patience := max(s.cfg.SessionTimeout/3, 50*time.Millisecond)
	ctx, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	c, err := s.connect(ctx, network, addr)
	if err != nil {
		s.hosts.failure(fmt.Errorf("%s: %w", addr, err))
		return nil, err
	}
	hint := ""
	if s.cfg.TLS == nil {
		hint = ", or it wants TLS"
	}
	s.hosts.failure(fmt.Errorf("%s: takes connections, but does not answer as a ZooKeeper server with a quorum does%s", addr, hint))
	w := &wire{Conn: c, s: s, greeting: true, rewatched: make(chan struct{}), hold: s.watches.Load() > 0}
	_ = c.SetDeadline(time.Now().Add(patience))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		_ = c.Close()
		return nil, s.err
	}
	s.wire = w
	return w, nil
}

func (s *Session) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := s.cfg.Dial(ctx, network, addr)
	if err != nil || s.cfg.TLS == nil {
		return c, err
	}
	conf := s.cfg.TLS.Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(c, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

// hosts is the client's zk.HostProvider: all servers in turn, from one chosen
// at random, with a growing pause after each round without success. The client's
// own provider pauses a second before it tries the only server again, and does
// not pause at all between servers that hang up.
type hosts struct {
	s *Session

	mu      sync.Mutex
	servers []string
	at      int
	misses  int
	last    error
}

func newHosts(s *Session) *hosts { return &hosts{s: s} }

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers = servers // shuffled by the client
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. Its second result, which makes the client
// fail what is queued and look whether it is closed, is true once the session
// is over.
func (h *hosts) Next() (string, bool) {
	h.mu.Lock()
	h.at = (h.at + 1) % len(h.servers)
	server, round := h.servers[h.at], h.misses/len(h.servers)
	pause := h.misses > 0 && h.misses%len(h.servers) == 0
	h.misses++
	h.mu.Unlock()
	if pause {
		d := min(firstPause<<min(round-1, 8), longPause)
		d = d/2 + time.Duration(rand.Int64N(int64(d))) //nolint:gosec // spreads load
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-h.s.life.Done():
		}
	}
	return server, h.s.life.Err() != nil
}

// Connected implements zk.HostProvider. That the session is there is taken from
// its event.
func (h *hosts) Connected() {}

func (h *hosts) success() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.misses, h.last = 0, nil
}

func (h *hosts) failure(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
}

var errNoFailure = errors.New("none yet")

func (h *hosts) lastFailure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		return errNoFailure
	}
	return h.last
}
