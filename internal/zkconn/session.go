package zkconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/clock"
)

// DefaultSessionTimeout is what Dial asks for when the Config does not say.
const DefaultSessionTimeout = 2 * time.Second

// Config says how to reach an ensemble.
type Config struct {
	// Servers are the ensemble's members as host:port; without a port 2181 is
	// meant. Names are resolved again at each connection. See CheckServers.
	Servers []string
	// SessionTimeout is asked for; 0 means DefaultSessionTimeout. ZooKeeper
	// grants between 2 and 20 of its ticks; Session.Timeout says how much.
	SessionTimeout time.Duration
	// User and Password are shown to ZooKeeper (its digest scheme) if User is
	// not empty, and nodes made with Session.ACL are then this user's alone.
	User, Password string
	// AlsoUser and AlsoPassword are shown besides, and those nodes are this
	// user's, too: while a password is being changed. They need a User.
	AlsoUser, AlsoPassword string
	// TLS, if not nil, is spoken to the servers. An empty ServerName is filled
	// in with the host of each server.
	TLS *tls.Config
	// FirstTime makes Dial end with ErrUnfit, at once, when each server has failed
	// for a reason that waiting does not mend: its name does not exist, its
	// certificate is not trusted, ours is refused, or what answers is no ZooKeeper
	// server. Without it such are waited for, too: who has been connected before
	// should, since names and certificates come and go.
	FirstTime bool
	// Dial opens a connection; nil means TCP. TLS, if any, goes over it.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	Logger *slog.Logger // nil: slog.Default()
}

// Errors of a session. Those of a request are of package zk.
var (
	// ErrExpired: ZooKeeper has ended the session; its ephemeral nodes are gone.
	ErrExpired = errors.New("zookeeper session expired")
	// ErrClosed: the session was closed here.
	ErrClosed = errors.New("zookeeper session closed")
	// ErrUnfit: no server can be reached with these settings, however long one
	// waits: see Config.FirstTime.
	ErrUnfit = errors.New("these settings do not fit the ensemble")
)

// Session is one ZooKeeper session. Its methods are safe for concurrent use.
type Session struct {
	cfg    Config
	conn   *zk.Conn
	id     int64
	log    *slog.Logger
	acl    []zk.ACL
	life   context.Context // ended with the session; dials hang on it
	cancel context.CancelFunc

	connSet chan struct{} // closed when conn is assigned
	timeout atomic.Int64  // granted, nanoseconds
	watches atomic.Int64  // that the client has set

	done     chan struct{} // closed when the session is over
	loopDone chan struct{} // closed when the client's goroutine has ended
	hosts    *hosts

	mu     sync.Mutex
	err    error         // why it is over
	wire   *wire         // the connection of now
	online chan struct{} // closed while requests can be sent; then another one takes its place

	calls callQueue
}

// Dial opens a session and waits until it is established. An ensemble that is
// out of reach is tried until ctx ends; the error then names the servers and the
// last failure.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	if err := CheckServers(cfg.Servers); err != nil {
		return nil, err
	}
	if cfg.SessionTimeout <= 0 {
		cfg.SessionTimeout = DefaultSessionTimeout
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		s, err := open(ctx, cfg)
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrExpired) {
			return s, err
		}
		cfg.Logger.Warn("a ZooKeeper session ended as soon as it was there; opening another", "servers", cfg.Servers, "cause", err)
		if over := clock.Pause(ctx, pause); over != nil {
			return nil, fmt.Errorf("connect to ZooKeeper at %s: %w (last failure: %w)", strings.Join(cfg.Servers, ","), over, err)
		}
	}
}

// open is Dial, unless the session ends before it can be used.
func open(ctx context.Context, cfg Config) (*Session, error) {
	s := &Session{
		cfg: cfg, log: cfg.Logger, acl: zk.WorldACL(zk.PermAll),
		connSet: make(chan struct{}), online: make(chan struct{}), done: make(chan struct{}), loopDone: make(chan struct{}),
	}
	if logins := cfg.logins(); len(logins) > 0 {
		s.acl = nil
		for _, l := range logins {
			s.acl = append(s.acl, zk.DigestACL(zk.PermAll, l.user, l.password)...)
		}
	}
	s.life, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.hosts = newHosts(s)
	s.calls.s = s
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(s.hosts), zk.WithEventCallback(s.event),
		zk.WithLogger(quietLog{s.log}), zk.WithLogInfo(false))
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	s.conn = conn
	close(s.connSet)
	go func() {
		for range events { // they come to s.event too; the channel ends with the client
		}
		close(s.loopDone)
	}()
	if err := s.establish(ctx); err != nil {
		s.expire(ErrClosed)
		<-s.loopDone
		return nil, err
	}
	return s, nil
}

// establish waits until a server has answered, says every five seconds that it
// does, and shows it the users.
func (s *Session) establish(ctx context.Context) error {
	unfit := s.hosts.unfit
	if !s.cfg.FirstTime {
		unfit = nil
	}
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for connected := false; !connected; {
		select {
		case <-s.connection():
			connected = true
		case <-ctx.Done():
			return fmt.Errorf("connect to ZooKeeper at %s: %w (last failure: %w)", strings.Join(s.cfg.Servers, ","), context.Cause(ctx), s.hosts.lastFailure())
		case <-unfit:
			return fmt.Errorf("connect to ZooKeeper: %w: %s", ErrUnfit, s.hosts.failures())
		case <-s.done:
			return s.Err()
		case <-tick.C:
			s.log.Warn("waiting for ZooKeeper", "servers", s.cfg.Servers, "last failure", s.hosts.lastFailure())
		}
	}
	for _, l := range s.cfg.logins() {
		err := s.Retry(ctx, func() error {
			_, err := do(ctx, s, func() (struct{}, error) {
				return struct{}{}, s.conn.AddAuth("digest", []byte(l.user+":"+l.password))
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("ZooKeeper does not take the user %q: %w", l.user, err)
		}
	}
	return nil
}

type login struct{ user, password string }

// logins are those shown to ZooKeeper.
func (c *Config) logins() (all []login) {
	for _, l := range []login{{c.User, c.Password}, {c.AlsoUser, c.AlsoPassword}} {
		if l.user != "" {
			all = append(all, l)
		}
	}
	return all
}

// event is called by the client's goroutine and must not wait for it.
func (s *Session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		<-s.connSet
		switch id := s.conn.SessionID(); s.id {
		case 0:
			s.id = id
		case id:
		default: // never, since a dead session dials no more
			s.expire(ErrExpired)
			return
		}
		s.hosts.success()
		s.reconnected()
	case zk.StateExpired:
		s.expire(ErrExpired)
	}
}

// connection is closed while requests can be sent, or was when it was asked for.
func (s *Session) connection() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online
}

func (s *Session) reconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.hold() // it is, by the wire before
		close(s.online)
	}
}

// disconnected holds requests back from now on if w, which is broken, is what
// they would be sent on.
func (s *Session) disconnected(w *wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire == w {
		s.wire = nil
		s.hold()
	}
}

// hold holds requests back. The lock is held.
func (s *Session) hold() {
	select {
	case <-s.online:
		s.online = make(chan struct{})
	default:
	}
}

// expire makes the session over: nothing is sent on it, or on a later one, again.
func (s *Session) expire(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = why
	s.hold()
	s.cancel()
	close(s.done)
	if s.wire != nil {
		s.wire.shut()
	}
	go func() {
		<-s.connSet
		s.conn.Close()
	}()
}

// Close ends the session at ZooKeeper, so that its ephemeral nodes go at once
// and not after the time-out, if that can be done within a second; and here in
// any case. It waits for the goroutines of the session.
func (s *Session) Close() error {
	if s.Connected() {
		s.conn.Close()
	}
	s.expire(ErrClosed)
	<-s.loopDone
	return nil
}

// Abandon ends the session here only: ZooKeeper keeps its ephemeral nodes until
// the time-out, as when the process had died.
func (s *Session) Abandon() {
	s.expire(ErrClosed)
	<-s.loopDone
}

// Done is closed when the session is over for good.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session is over: ErrExpired or ErrClosed; nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// ID is ZooKeeper's number of the session. It never changes.
func (s *Session) ID() int64 { return s.id }

// Server is the address of the server that it is, or last was, connected to.
func (s *Session) Server() string { return s.conn.Server() }

// Connected reports whether there is a connection now. A session without one
// lives on at ZooKeeper for its time-out, and may be expired without knowing.
func (s *Session) Connected() bool {
	select {
	case <-s.connection():
		return true
	default:
		return false
	}
}

// Timeout is the session time-out that ZooKeeper granted.
func (s *Session) Timeout() time.Duration { return time.Duration(s.timeout.Load()) }

// ACL is who may use nodes that are to belong to whoever has this
// configuration: its user, and the one besides, alone, or everybody if it names
// none.
func (s *Session) ACL() []zk.ACL { return s.acl }

// quietLog takes the client's lines, which say nothing that the callers' errors
// do not, as debug output.
type quietLog struct{ log *slog.Logger }

// Printf implements zk.Logger.
func (q quietLog) Printf(format string, args ...any) {
	q.log.Debug("zookeeper: " + fmt.Sprintf(format, args...))
}
