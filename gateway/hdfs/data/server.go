package data

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/gate"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/share"
)

// Limits and defaults.
const (
	// DefaultConns is how many connections there may be.
	DefaultConns = 4096
	// DefaultIdle is how long a client that has a block open may be silent. Hadoop's
	// sends something every 30 s.
	DefaultIdle = 10 * time.Minute

	maxMessage = 64 << 10         // of a request
	headTime   = 20 * time.Second // for a request, once it has begun
	betweenOps = time.Minute      // until the next one begins
	moveTime   = time.Minute      // for a packet, once it has begun, and for an answer
	aheadOf    = 64               // readers for which blocks are fetched ahead
	sumsOf     = 32               // checksums that are being made
	sumTime    = 20 * time.Second // for others to be made
)

// Config says how a Server serves. The zero value of a field that is not needed stands for
// its default.
type Config struct {
	Files *files.Table // needed
	Users *users.Table // needed
	// Listener is where clients connect; needed. The Server closes it.
	Listener net.Listener
	// Conns is how many connections there may be; idle ones make room. 0: DefaultConns.
	Conns int
	// Idle is for how long a client with a block may be silent. 0: DefaultIdle.
	Idle time.Duration
	// Logger gets what an operator should know of; nil: nothing is logged.
	Logger *slog.Logger
}

// Server serves data connections. It is safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	listener net.Listener
	ahead    *share.Limit
	sums     *gate.Gate      // for checksums of whole blocks
	life     context.Context //nolint:containedctx // of the server
	kill     context.CancelFunc
	served   chan struct{}
	err      error
	whole    time.Duration // wholePause

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	work   sync.WaitGroup
}

// Start begins to serve. Close ends it.
func Start(cfg Config) *Server {
	cfg.Conns = cmp.Or(cfg.Conns, DefaultConns)
	cfg.Idle = cmp.Or(cfg.Idle, DefaultIdle)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	table := conns.New(cfg.Conns, 0)
	table.EndUnanswered(cfg.Idle) // a reader may pause, see push
	table.ShareLocally()
	s := &Server{
		cfg: cfg, log: cfg.Logger, listener: table.Listener(cfg.Listener),
		ahead: share.New(aheadOf), sums: gate.New(sumsOf, sumTime), served: make(chan struct{}), whole: wholePause, open: map[net.Conn]struct{}{},
	}
	s.life, s.kill = context.WithCancel(context.Background())
	s.work.Go(s.accept)
	return s
}

// Addr is the address at which it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Done is closed when it serves no more.
func (s *Server) Done() <-chan struct{} { return s.served }

// Err says why it serves no more, after Done; nil if Close was called.
func (s *Server) Err() error { return s.err }

// Close ends all connections, and returns when nothing of the Server is left. What has
// arrived of open files stays with package files.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.kill()
	_ = s.listener.Close()
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

func (s *Server) accept() {
	defer close(s.served)
	for {
		c, err := s.listener.Accept()
		if err != nil {
			var ne net.Error
			switch {
			case s.life.Err() != nil:
				return
			case errors.As(err, &ne) && ne.Temporary(): //nolint:staticcheck // there is nothing better to tell too many open files by
				select {
				case <-time.After(100 * time.Millisecond):
				case <-s.life.Done():
				}
				continue
			}
			s.err = fserror.New(fserror.Internal, "hdfs", s.Addr(), "serves no more data: %s", err)
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.open[c] = struct{}{}
		s.work.Go(func() { s.serve(c) })
		s.mu.Unlock()
	}
}

// conn is one connection.
type conn struct {
	*Server
	net.Conn
	in   *bufio.Reader
	busy bool    // its request has shown a good token
	read reading // the last file that was read
}

// inBuffer is large enough that a packet of a stream is taken by few calls.
const inBuffer = 128 << 10

// buffers are Readers of that size that no connection has: most connections are for one
// small file.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, inBuffer) }}

func (s *Server) serve(raw net.Conn) {
	c := &conn{Server: s, Conn: raw, in: bufio.NewReaderSize(raw, 4<<10)}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a data connection ended in a fault of the gateway", "from", raw.RemoteAddr().String(), "fault", p, "stack", string(debug.Stack()))
		}
		c.read.close()
		_ = raw.Close()
		if c.in.Size() == inBuffer {
			c.in.Reset(nil)
			buffers.Put(c.in)
		}
		s.mu.Lock()
		delete(s.open, raw)
		s.mu.Unlock()
	}()
	for {
		err := c.one()
		if err != nil {
			if !errors.Is(err, io.EOF) && s.life.Err() == nil {
				s.log.Debug("a data connection ended", "from", raw.RemoteAddr().String(), "cause", err)
			}
			return
		}
	}
}

// Operations that clients ask for.
const (
	version       = 28
	opWrite       = 80
	opRead        = 81
	opChecksum    = 85
	saslVersion   = 0xDEAD // the first half of SASL's magic number
	opsFrom       = 80
	opsUntil      = 90
	unsupportedIs = "this gateway reads, writes and checks blocks; it does not copy or replace them, or lend them to processes of its machine"
)

// one serves one request.
func (c *conn) one() error {
	_ = c.SetReadDeadline(time.Now().Add(betweenOps))
	var head [3]byte
	if _, err := io.ReadFull(c.in, head[:1]); err != nil {
		return err
	}
	defer c.endRequest()
	_ = c.SetDeadline(time.Now().Add(headTime))
	if _, err := io.ReadFull(c.in, head[1:]); err != nil {
		return err
	}
	switch v := binary.BigEndian.Uint16(head[:]); v {
	case version:
	case saslVersion:
		return errors.New("the client wants SASL for data; set dfs.data.transfer.protection and dfs.encrypt.data.transfer to nothing for it")
	default:
		return fmt.Errorf("the client speaks version %d of the protocol, and not %d", v, version)
	}
	switch op := head[2]; op {
	case opWrite:
		m := new(hadoop.OpWriteBlockProto)
		if err := c.receive(m); err != nil {
			return err
		}
		return c.write(m)
	case opRead:
		m := new(hadoop.OpReadBlockProto)
		if err := c.receive(m); err != nil {
			return err
		}
		return c.send(m)
	case opChecksum:
		m := new(hadoop.OpBlockChecksumProto)
		if err := c.receive(m); err != nil {
			return err
		}
		return c.checksum(m)
	default:
		if op >= opsFrom && op <= opsUntil {
			_ = c.refuse(hadoop.Status_ERROR_UNSUPPORTED, errors.New(unsupportedIs))
		}
		return fmt.Errorf("operation %d is not served", op)
	}
}

func (c *conn) receive(m proto.Message) error {
	return protodelim.UnmarshalOptions{MaxSize: maxMessage}.UnmarshalFrom(c.in, m)
}

// answer sends a message.
func (c *conn) answer(m proto.Message) error {
	_ = c.SetWriteDeadline(time.Now().Add(moveTime))
	_, err := protodelim.MarshalTo(c.Conn, m)
	return err
}

// refuse answers with why a request is not served, and returns that.
func (c *conn) refuse(status hadoop.Status, why error) error {
	if err := c.answer(&hadoop.BlockOpResponseProto{Status: status.Enum(), Message: proto.String(why.Error())}); err != nil {
		return err
	}
	return why
}

// allowed opens the token that came with a request. If it is good, the connection makes no room for
// others until the request ends.
func (c *conn) allowed(h *hadoop.BaseHeaderProto, write bool) (files.Grant, error) {
	t := h.GetToken()
	g, err := c.cfg.Files.Check(t.GetIdentifier(), t.GetPassword(), int64(h.GetBlock().GetBlockId()), write) //nolint:gosec // as bits
	if cc, ok := c.Conn.(*conns.Conn); ok && err == nil && !c.busy {
		c.busy = true
		cc.MarkBusy()
	}
	return g, err
}

func (c *conn) endRequest() {
	if cc, ok := c.Conn.(*conns.Conn); ok && c.busy {
		c.busy = false
		cc.MarkIdle()
	}
}

// session returns the session of a user, to be given back.
func (c *conn) session(name string) (*users.User, error) {
	ctx, cancel := context.WithTimeout(c.life, moveTime)
	defer cancel()
	return c.cfg.Users.Get(ctx, users.Key{User: name})
}
