package ipc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/gate"
	"github.com/leasefs/leasefs/gateway/still"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/share"
)

// Limits and defaults.
const (
	// DefaultIdle is for how long a connection may say nothing.
	DefaultIdle = 10 * time.Minute
	// DefaultMessage is the size of the largest message, in bytes.
	DefaultMessage = 4 << 20
	// DefaultCalls is how many calls are under way at once.
	DefaultCalls = 256
	// DefaultConns is how many connections there are at once.
	DefaultConns = 1024

	maxCalls  = 64               // of one connection
	gateTime  = 20 * time.Second // for other calls to end
	frameTime = 20 * time.Second // for a message, once it has begun
	writeTime = time.Minute      // for a client to read an answer
	callTime  = 2 * time.Minute  // for a call
	bodies    = 64 << 20         // bytes of messages under way that are not small
)

// Call is one call of a client.
type Call struct {
	Protocol, Method string      // their Java and their own name
	User             string      // for whom it is made
	Real             string      // who makes it; mostly the same
	Proof            string      // the Method by which that was proven; empty: nobody has asked
	Local            net.Addr    // where the client has reached the server
	Repeated         bool        // the client has made it before, perhaps elsewhere, and got no answer
	Taker            share.Taker // who takes a share of what there is only so much of

	body     []byte
	answered []func()
}

// Answered has f called when the answer is written, or the client is gone: for what an
// answer takes while a client does not read it. It is not safe for concurrent use.
func (c *Call) Answered(f func()) { c.answered = append(c.answered, f) }

func (c *Call) end() {
	for _, f := range c.answered {
		f()
	}
}

// Decode decodes what the call is given.
func (c *Call) Decode(m proto.Message) error {
	_, err := take(c.body, m)
	return err
}

// Client is one who has made a connection.
type Client struct {
	User, By string // for whom it asks, and who it says or has proven that it is
	Proof    string // the Method of the Mechanism by which; empty: it only says so
	From     net.Addr
}

// Config says how a Server serves. The zero value of a field that is not needed stands
// for its default.
type Config struct {
	// Handle makes a call; needed. Its context ends when the connection does, unless the
	// call is one of Once, and after two minutes. The client is told an error by its Java
	// name (package gateway/hadoop) and text. A panic ends the call alone.
	Handle func(context.Context, *Call) (proto.Message, error)
	// Mechanisms are the ways for clients to prove who they are, one of which each has to
	// take. None: they say it.
	Mechanisms []Mechanism
	// Admit is asked whether a client may ask for its User; needed.
	Admit func(c Client) error
	// Once tells whether a call must not happen twice; nil: none.
	Once func(protocol, method string) bool
	// Changes tells whether another call than those of Once changes something: it is not made
	// late either, when its client may have made it elsewhere, and more since then; nil: none does.
	Changes func(protocol, method string) bool
	// Idle is for how long a connection may say nothing and wait for nothing. 0: DefaultIdle.
	Idle time.Duration
	// Message is the largest message in bytes, Calls how many calls are under way at once, and
	// Conns how many connections there are. 0: their defaults.
	Message, Calls, Conns int
	// Now is the time, with a monotonic clock; nil: time.Now.
	Now func() time.Time
	// Still notices that the process stood still; nil: one by the machine's clock.
	Still *still.Watch
	// Logger gets what an operator should know of; nil: nothing is logged.
	Logger *slog.Logger
}

// Server serves until it is closed. It is safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	listener net.Listener
	calls    *gate.Gate
	room     *share.Limit // for messages that are not small
	answers  *answers
	workers  *workers
	life     context.Context
	kill     context.CancelFunc
	served   chan struct{}
	err      error          // once served is closed
	watches  sync.WaitGroup // Config.Still

	mu     sync.Mutex
	open   map[*conn]struct{}
	ending bool
	work   sync.WaitGroup // connections
}

// Serve begins to serve the connections that l accepts, and closes l in the end.
func Serve(l net.Listener, cfg Config) *Server {
	cfg.Idle = cmp.Or(cfg.Idle, DefaultIdle)
	cfg.Message = cmp.Or(cfg.Message, DefaultMessage)
	cfg.Calls = cmp.Or(cfg.Calls, DefaultCalls)
	cfg.Conns = cmp.Or(cfg.Conns, DefaultConns)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Still == nil {
		cfg.Still = still.New(nil)
	}
	if cfg.Once == nil {
		cfg.Once = func(string, string) bool { return false }
	}
	if cfg.Changes == nil {
		cfg.Changes = func(string, string) bool { return false }
	}
	table := conns.New(cfg.Conns, 0)
	table.EndUnanswered(writeTime)
	table.ShareLocally()
	s := &Server{
		cfg: cfg, log: cfg.Logger,
		listener: table.Listener(l),
		calls:    gate.New(int64(cfg.Calls), gateTime),
		room:     share.New(bodies),
		answers:  newAnswers(cfg.Now),
		workers:  newWorkers(),
		served:   make(chan struct{}),
		open:     map[*conn]struct{}{},
	}
	s.life, s.kill = context.WithCancel(context.Background())
	s.watches.Go(func() { cfg.Still.Run(s.life, s.stoodStill) })
	s.work.Go(s.accept)
	return s
}

// Addr is the address at which it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Done is closed when it serves no more.
func (s *Server) Done() <-chan struct{} { return s.served }

// Err says why it serves no more, after Done; nil if Close was called.
func (s *Server) Err() error { return s.err }

// Pauses after an Accept that failed, as when there are no descriptors left.
const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

func (s *Server) accept() {
	defer close(s.served)
	for pause := shortPause; ; {
		nc, err := s.listener.Accept()
		switch {
		case err == nil:
			pause = shortPause
			s.welcome(nc)
		case errors.Is(err, net.ErrClosed):
			if !s.isEnding() {
				s.err = err
			}
			return
		default:
			s.log.Warn("cannot accept connections", "cause", err)
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-s.life.Done():
				t.Stop()
				return
			}
			pause = min(2*pause, longPause)
		}
	}
}

// stoodStill ends all connections after the process stood still. What they have sent may be old, and a
// client that has turned to another gateway may not have been able to end its own.
func (s *Server) stoodStill(d time.Duration) {
	s.log.Warn("the process stood still; connections end, since clients may have made their calls elsewhere", "for", d)
	s.endAll()
}

func (s *Server) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.end()
	}
}

// welcome serves a connection.
func (s *Server) welcome(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		c.end()
		return
	}
	s.open[c] = struct{}{}
	s.work.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, c)
	})
}

func (s *Server) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// Close takes no new calls. Those under way may finish until the context ends; then they
// are canceled. It waits until nothing of the Server is left.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	err := s.listener.Close()
	for c := range s.open {
		c.readNoMore()
	}
	s.mu.Unlock()
	ended := context.AfterFunc(ctx, func() {
		s.kill()
		s.endAll()
	})
	s.work.Wait()
	ended()
	s.kill()
	s.watches.Wait()
	s.workers.close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}
