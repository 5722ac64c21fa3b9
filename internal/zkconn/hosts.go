package zkconn

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

const (
	firstPause = 20 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// CheckServers says what is wrong with a Config's Servers, without asking the
// network.
func CheckServers(servers []string) error {
	if len(servers) == 0 {
		return errors.New("no ZooKeeper servers are given; name them as host:port, separated by commas")
	}
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if !strings.Contains(server, ":") {
			host, port, err = server, "2181", nil
		}
		number, perr := strconv.ParseUint(port, 10, 16)
		switch {
		case strings.Contains(server, "/"):
			err = errors.New("a path or a scheme has no place there")
		case strings.ContainsAny(server, " \t;"):
			err = errors.New("several are separated by commas")
		case err != nil && server[0] != '[':
			err = errors.New("an IPv6 address stands in brackets")
		case err == nil && host == "":
			err = errors.New("the host is missing")
		case err == nil && (perr != nil || number == 0):
			err = fmt.Errorf("port %q is not a number from 1 to 65535", port)
		}
		if err != nil {
			return fmt.Errorf("ZooKeeper server %q: %w; name it as HOST:PORT", server, err)
		}
	}
	return nil
}

// silentAtMost is how long a server that takes connections and says nothing is waited
// for, however long a session may be: another one may answer.
const silentAtMost = 5 * time.Second

// dial is the client's Dialer.
func (s *Session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	patience := min(max(s.cfg.SessionTimeout/3, 50*time.Millisecond), silentAtMost)
	ctx, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	c, err := s.cfg.connect(ctx, network, addr)
	if err != nil {
		s.hosts.failure(addr, err)
		return nil, err
	}
	s.hosts.failure(addr, s.cfg.silent())
	w := &wire{Conn: c, s: s, server: addr, greeting: true, rewatched: make(chan struct{}), hold: s.watches.Load() > 0}
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

// connect reaches a server, with TLS if it is set.
func (c *Config) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := c.Dial(ctx, network, addr)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	conf := c.TLS.Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(conn, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("%w: it has no quorum, or does not speak TLS at this port (ZooKeeper's secureClientPort does)", err)
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

// silent is the failure of a server that takes connections and says nothing.
func (c *Config) silent() error {
	hint := ""
	if c.TLS == nil {
		hint = ", or it wants TLS"
	}
	return errors.New("takes connections, but does not answer as a ZooKeeper server with a quorum does" + hint)
}

// errAlien: what was answered is not ZooKeeper's protocol.
var errAlien = errors.New("answers, but not as a ZooKeeper server does: another port of it, or one that wants TLS, or another program")

// alien reports whether an answer to the greeting, of at least four bytes,
// cannot be one of ZooKeeper: its length comes first, and is 36 or 37. The client
// would make room for any.
func alien(hello []byte) bool {
	n := binary.BigEndian.Uint32(hello)
	return n < 36 || n > 1024
}

// lasting reports whether a failure to connect is one that waiting does not mend.
func lasting(err error) bool {
	var name *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &name):
		return name.IsNotFound
	case errors.As(err, &cert), errors.As(err, &record), errors.Is(err, errAlien):
		return true
	}
	return errors.As(err, &op) && op.Op == "remote error" // a TLS alert
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
	last    error            // as text: with the server
	fails   map[string]error // by server: the last one

	unfitOnce sync.Once
	unfit     chan struct{} // closed when the last failure of each server is lasting
}

func newHosts(s *Session) *hosts {
	return &hosts{s: s, fails: map[string]error{}, unfit: make(chan struct{})}
}

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
		_ = clock.Pause(h.s.life, d)                   // the second result says if that is over
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
	clear(h.fails)
}

func (h *hosts) failure(server string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = fmt.Errorf("%s: %w", server, err)
	h.fails[server] = err
	for _, server := range h.servers {
		if err := h.fails[server]; err == nil || !lasting(err) {
			return
		}
	}
	h.unfitOnce.Do(func() { close(h.unfit) })
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

// failures lists the last failure of each server.
func (h *hosts) failures() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for server, err := range h.fails {
		all = append(all, fmt.Sprintf("%s: %v", server, err))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
