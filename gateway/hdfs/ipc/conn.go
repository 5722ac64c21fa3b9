package ipc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/share"
)

// conn is a connection.
type conn struct {
	server *Server
	nc     net.Conn
	in     *bufio.Reader
	life   context.Context // ends with the connection
	kill   context.CancelFunc
	user   string // "": not known yet
	real   string
	taker  share.Taker
	slots  chan struct{}  // one for each call under way
	calls  sync.WaitGroup // those

	steps  int              // of the proof
	begun  map[string]Proof // that the client can choose from, by their methods
	proof  Proof            // nil: none was begun
	method string           // that of proof
	proven bool

	out   sync.Mutex // for answers to be written whole
	wraps bool       // they are protected

	mu      sync.Mutex
	queue   []answered // to be written, the oldest first
	writing bool       // somebody writes them
}

// answered is the frame of an answer, and what ends its call when that is written.
type answered struct {
	frame []byte
	end   func()
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, nc: nc, in: bufio.NewReaderSize(nc, smallFrame), slots: make(chan struct{}, maxCalls), taker: conns.Taker(nc.RemoteAddr())}
	c.life, c.kill = context.WithCancel(s.life)
	return c
}

// end closes the connection.
func (c *conn) end() {
	c.kill()
	_ = c.nc.Close() // nobody could do anything about it
}

// readNoMore makes the reader stop at the next frame.
func (c *conn) readNoMore() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

func (c *conn) serve() {
	defer c.end()
	defer c.calls.Wait()
	defer func() {
		if p := recover(); p != nil {
			c.server.log.Error("a connection ended in a fault of the gateway", "from", c.nc.RemoteAddr().String(), "fault", p, "stack", string(debug.Stack()))
		}
	}()
	err := c.read()
	var b *badFrame
	isBad := errors.As(err, &b)
	if isBad || !errors.Is(err, io.EOF) && c.life.Err() == nil && !c.server.isEnding() {
		c.server.log.Debug("a client was cut off", "from", c.nc.RemoteAddr().String(), "user", c.user, "cause", err)
	}
	if isBad {
		c.fatal(b.code, hadoop.ClassOf(err), b.text)
	}
	if !c.server.isEnding() && !errors.Is(err, errExpired) {
		c.kill() // whoever is gone waits for nothing
	}
}

// errExpired ends a connection when its calls have ended: the client makes another one, and
// proves again who it is.
var errExpired = errors.New("the proof of who the client is has expired")

// JavaClass says what Hadoop calls it.
func (e *badFrame) JavaClass() string {
	switch e.code {
	case pb.RpcResponseHeaderProto_FATAL_VERSION_MISMATCH:
		return hadoop.VersionMismatch
	case pb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED:
		return hadoop.Authorization
	default:
		return hadoop.RPCServer
	}
}

// read reads until the client ends, or has to be ended.
func (c *conn) read() error {
	sasl, err := c.preamble()
	if err != nil {
		return err
	}
	for {
		if err := c.await(); err != nil {
			return err
		}
		held, who := int64(0), c.taker
		frame, err := readFrame(c.in, c.server.cfg.Message, func(n int) error {
			if !c.server.room.Take(int64(n), who) {
				return bad(pb.RpcResponseHeaderProto_FATAL_UNKNOWN, "there is no room for a large message now; try again later")
			}
			held += int64(n)
			return nil
		})
		free := func() { c.server.room.Give(held, who) }
		if err == nil {
			var again bool
			if again, err = c.message(frame, sasl, free); err == nil && again {
				continue // free is called when the call has ended
			}
		}
		free()
		if err != nil {
			return err
		}
	}
}

// preamble reads what every connection begins with.
func (c *conn) preamble() (sasl bool, err error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(frameTime))
	head, err := c.in.Peek(len(magic) + 3)
	if len(head) >= len(magic) && string(head[:len(magic)]) != magic {
		switch string(head[:len(magic)]) {
		case "GET ", "POST", "HEAD", "PUT ":
			_ = c.nc.SetWriteDeadline(time.Now().Add(writeTime))
			_, _ = io.WriteString(c.nc, "HTTP/1.1 404 Not Found\r\nContent-type: text/plain\r\nConnection: close\r\n\r\nThis port speaks hdfs://, not HTTP. WebHDFS has a port of its own.\r\n")
		}
		return false, fmt.Errorf("the connection begins with %q, not %q", head[:len(magic)], magic)
	}
	if err != nil {
		return false, err
	}
	if v := head[4]; v != version {
		return false, bad(pb.RpcResponseHeaderProto_FATAL_VERSION_MISMATCH, "Server IPC version %d cannot communicate with client version %d", version, v)
	}
	auth := head[6]
	_, _ = c.in.Discard(len(head)) // they are there
	if auth == authNone && len(c.server.cfg.Mechanisms) > 0 {
		return false, unauthorized("SIMPLE authentication is not enabled.  Available:%s", c.server.methods())
	}
	if auth != authNone && auth != authSASL {
		return false, bad(pb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED, "Unknown auth protocol:%d; this server knows NONE (0) and SASL (%d)", auth, authSASL)
	}
	return auth == authSASL, nil
}

// await waits for the beginning of a frame, and gives the client a while for the rest.
func (c *conn) await() error {
	for {
		idle := c.server.cfg.Idle
		if c.user == "" {
			idle = frameTime
		}
		if c.proven {
			if left := time.Until(c.proof.Until()); left <= 0 {
				return errExpired
			} else if left < idle {
				idle = left
			}
		}
		if c.in.Buffered() == 0 {
			_ = c.nc.SetReadDeadline(time.Now().Add(idle))
		}
		if c.server.isEnding() {
			return io.EOF // readNoMore may have come before
		}
		_, err := c.in.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.server.isEnding() && (len(c.slots) > 0 || c.proven && !time.Now().Before(c.proof.Until())) {
			continue // it waits for an answer, or has proven nothing any more
		}
		if err != nil {
			return err
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(frameTime))
		return nil
	}
}

// message deals with a frame. If it is a call, free is called when that has ended, and
// again is true.
func (c *conn) message(frame []byte, sasl bool, free func()) (again bool, err error) {
	const invalid = pb.RpcResponseHeaderProto_FATAL_INVALID_RPC_HEADER
	var h pb.RpcRequestHeaderProto
	rest, err := take(frame, &h)
	if err != nil {
		return false, bad(invalid, "the header of a call cannot be decoded: %s", err)
	}
	if n := len(h.GetClientId()); n > maxClientID { // it is kept with answers
		return false, bad(invalid, "the client's ID has %d bytes; HDFS's have 16, and %d are the most", n, maxClientID)
	}
	switch id := h.GetCallId(); {
	case id == pingCall:
		return false, nil
	case id == saslCall && sasl && c.user == "" && !c.proven:
		return false, c.negotiate(&h, rest)
	case id == contextID && c.user == "" && (c.proven || len(c.server.cfg.Mechanisms) == 0):
		return false, c.introduce(rest)
	case id < 0:
		return false, bad(invalid, "a call has the number %d at a point where it makes no sense", id)
	case c.user == "":
		return false, bad(pb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED, "a call came before the connection said who asks")
	case h.GetRpcOp() == opClose:
		return false, io.EOF
	case h.GetRpcOp() != opCall || h.GetRpcKind() != kindProto:
		return false, bad(pb.RpcResponseHeaderProto_FATAL_UNSUPPORTED_SERIALIZATION, "a call is of kind %d, operation %d; this server takes protocol buffers (%d), operation %d", h.GetRpcKind(), h.GetRpcOp(), kindProto, opCall)
	}
	var r pb.RequestHeaderProto
	if rest, err = take(rest, &r); err != nil {
		return false, bad(pb.RpcResponseHeaderProto_FATAL_DESERIALIZING_REQUEST, "the method of a call cannot be decoded: %s", err)
	}
	call := &Call{Protocol: r.GetDeclaringClassProtocolName(), Method: r.GetMethodName(), User: c.user, Real: c.real, Proof: c.method, Local: c.nc.LocalAddr(), Repeated: h.GetRetryCount() > 0, Taker: c.taker, body: rest}
	c.slots <- struct{}{} // while there is none, nothing more is read
	if cc, ok := c.nc.(*conns.Conn); ok {
		cc.MarkBusy() // it does not make room for others, see package conns
	}
	c.calls.Add(1)
	end := func() {
		if cc, ok := c.nc.(*conns.Conn); ok {
			cc.MarkIdle()
		}
		<-c.slots
		free()
		c.calls.Done()
	}
	c.server.workers.do(func() {
		frame, leave := c.run(&h, call)
		c.answer(answered{frame, func() { leave(); end() }})
	})
	return true, nil
}

// introduce reads who asks.
func (c *conn) introduce(rest []byte) error {
	var m pb.IpcConnectionContextProto
	if _, err := take(rest, &m); err != nil {
		return unauthorized("the context of a connection cannot be decoded: %s", err)
	}
	user, by := m.GetUserInfo().GetEffectiveUser(), m.GetUserInfo().GetRealUser()
	if by == "" {
		by = user
	}
	if c.proven {
		var err error
		if user, by, err = c.proof.User(user); err != nil {
			return unauthorized("%s", hadoop.Message(err))
		}
	}
	for _, name := range []string{user, by} {
		if name == "" || len(name) > 255 || !utf8.ValidString(name) || !isPrint(name) {
			return unauthorized("a connection says that its user is %.300q; a name has 1 to 255 bytes, and only characters that can be printed", name)
		}
	}
	who := Client{User: user, By: by, From: c.nc.RemoteAddr()}
	if c.proven {
		who.Proof = c.method
	}
	if err := c.server.cfg.Admit(who); err != nil {
		return unauthorized("%s", hadoop.Message(err))
	}
	c.user, c.real = user, by
	c.taker = share.Taker{Names: []string{"user " + by}}
	if a, err := netip.ParseAddrPort(c.nc.RemoteAddr().String()); err == nil && !a.Addr().IsLoopback() {
		c.taker.Names = append(c.taker.Names, "address "+conns.AddressName(a.Addr()))
	}
	return nil
}

func isPrint(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// run makes a call and returns its answer. leave gives back what the call has taken.
func (c *conn) run(h *pb.RpcRequestHeaderProto, call *Call) (frame []byte, leave func()) {
	s := c.server
	life := c.life
	once := len(h.GetClientId()) > 0 && s.cfg.Once(call.Protocol, call.Method)
	if once {
		life = s.life
	}
	ctx, cancel := context.WithTimeout(life, callTime)
	out, err := s.calls.Enter(ctx, c.taker)
	if err != nil {
		return c.failure(h, err), cancel
	}
	leave = func() { call.end(); out(); cancel() }
	var mine *answer
	if once {
		body, a, err := s.answers.claim(ctx, callKey{c.user, string(h.GetClientId()), h.GetCallId()})
		if err != nil {
			return c.failure(h, err), leave
		}
		if a == nil {
			return c.success(h, body), leave
		}
		mine = a
	}
	if (once || s.cfg.Changes(call.Protocol, call.Method)) && c.isGone() {
		if mine != nil {
			s.answers.record(mine, nil)
		}
		return c.failure(h, hadoop.Refuse(hadoop.Retriable, "%s: the client had gone before the call began", call.Method)), leave
	}
	body, err := c.make(ctx, call)
	if mine != nil {
		s.answers.record(mine, body)
	}
	if err != nil {
		s.log.Debug("refused", "method", call.Method, "user", c.user, "cause", err)
		return c.failure(h, err), leave
	}
	return c.success(h, body), leave
}

// isGone tells whether the client may have given up, and made the call by another gateway: then
// this one must not make it later. The connection ends.
func (c *conn) isGone() bool {
	cc, ok := c.nc.(*conns.Conn)
	gone := c.life.Err() != nil || c.server.cfg.Still.For() > 0 || ok && cc.Gone()
	if gone {
		c.end()
	}
	return gone
}

// make makes a call; the answer is nil if it failed.
func (c *conn) make(ctx context.Context, call *Call) (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.log.Error("a call ended in a fault of the gateway", "protocol", call.Protocol, "method", call.Method, "user", c.user, "fault", p, "stack", string(debug.Stack()))
			body, err = nil, hadoop.Refuse(hadoop.RuntimeException, "%s: a fault of the gateway: its log tells more", call.Method)
		}
	}()
	m, err := c.server.cfg.Handle(ctx, call)
	if err != nil {
		return nil, err
	}
	return put(make([]byte, 0, proto.Size(m)+8), m)
}

// callID is a call's number as an answer has it.
func callID(id int32) *uint32 { return proto.Uint32(uint32(id)) } //nolint:gosec // Java has no unsigned int

// success is the answer of a call that has returned body.
func (c *conn) success(h *pb.RpcRequestHeaderProto, body []byte) []byte {
	return append(c.frame(&pb.RpcResponseHeaderProto{
		CallId: callID(h.GetCallId()), Status: pb.RpcResponseHeaderProto_SUCCESS.Enum(), ServerIpcVersionNum: proto.Uint32(version),
		ClientId: h.GetClientId(), RetryCount: h.RetryCount,
	}), body...)
}

// maxText is how much of an error's text a client is told.
const maxText = 4 << 10

func short(text string) *string {
	return proto.String(strings.ToValidUTF8(text[:min(len(text), maxText)], "?"))
}

// failure is the answer of a call that has failed.
func (c *conn) failure(h *pb.RpcRequestHeaderProto, err error) []byte {
	class, code := hadoop.ClassOf(err), pb.RpcResponseHeaderProto_ERROR_APPLICATION
	switch class {
	case hadoop.NoSuchMethod:
		code = pb.RpcResponseHeaderProto_ERROR_NO_SUCH_METHOD
	case hadoop.NoSuchProtocol:
		code = pb.RpcResponseHeaderProto_ERROR_NO_SUCH_PROTOCOL
	}
	text := hadoop.Message(err)
	return c.frame(&pb.RpcResponseHeaderProto{
		CallId: callID(h.GetCallId()), Status: pb.RpcResponseHeaderProto_ERROR.Enum(), ServerIpcVersionNum: proto.Uint32(version),
		ExceptionClassName: &class, ErrorMsg: short(text), ErrorDetail: &code,
		ClientId: h.GetClientId(), RetryCount: h.RetryCount,
	})
}

// fatal is the last that a client hears.
func (c *conn) fatal(code pb.RpcResponseHeaderProto_ErrorCode, class, text string) {
	_ = c.write(c.frame(&pb.RpcResponseHeaderProto{
		CallId: callID(-1), Status: pb.RpcResponseHeaderProto_FATAL.Enum(), ServerIpcVersionNum: proto.Uint32(version),
		ExceptionClassName: &class, ErrorMsg: short(text), ErrorDetail: &code,
	}))
}

// frame is what messages are on the wire, but for its length.
func (c *conn) frame(all ...proto.Message) []byte {
	b := make([]byte, 4, 128)
	for _, m := range all {
		var err error
		if b, err = put(b, m); err != nil {
			panic(err) // a field is missing: a mistake in this package
		}
	}
	return b
}

// answer has an answer written, and then ends its call. One who has an answer writes those of
// all, so that calls which end together cost one system call; if that fails, the client is gone.
func (c *conn) answer(a answered) {
	c.mu.Lock()
	c.queue = append(c.queue, a)
	mine := !c.writing
	c.writing = true
	c.mu.Unlock()
	if !mine {
		return
	}
	if len(c.slots) > 1 { // others may be about to be answered
		runtime.Gosched()
	}
	for some := c.take(); len(some) > 0; some = c.take() {
		frames := make([][]byte, len(some))
		for n := range some {
			frames[n] = some[n].frame
		}
		if err := c.write(frames...); err != nil {
			c.server.log.Debug("an answer could not be sent", "from", c.nc.RemoteAddr().String(), "user", c.user, "cause", err)
			c.end()
		}
		for n := range some {
			some[n].end()
		}
		clear(some) // those behind them may stay in their place for long
	}
}

// maxTogether is how many bytes of answers are copied together to be written at once; a larger
// answer goes alone, and is not copied.
const maxTogether = 64 << 10

// take returns answers that wait, the oldest first. If there are none, the writer has to end.
func (c *conn) take() []answered {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for size := 0; n < len(c.queue); n++ {
		if size += len(c.queue[n].frame); n > 0 && size > maxTogether {
			break
		}
	}
	some := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	c.writing = n > 0
	return some
}

// write writes frames, in their order.
func (c *conn) write(frames ...[]byte) error {
	c.out.Lock()
	defer c.out.Unlock()
	var err error
	for n, frame := range frames {
		sized(frame)
		if !c.wraps {
			continue
		}
		if frames[n], err = c.wrap(frame); err != nil {
			return err
		}
		sized(frames[n])
	}
	all := frames[0]
	if len(frames) > 1 {
		all = slices.Concat(frames...)
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = c.nc.Write(all)
	return err
}

// sized writes the length of a frame at its beginning.
func sized(frame []byte) {
	n := len(frame) - 4
	frame[0], frame[1], frame[2], frame[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n) //nolint:gosec // Java's int
}
