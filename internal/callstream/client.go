package callstream

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/tracing"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// prefix begins the full names of methods that can be carried.
	prefix = "/leasefs.v1."
	// maxCarried is how many bytes a carried request has at most: a large one would
	// hold up those behind it.
	maxCarried = 64 << 10
	// maxMessage is how many bytes of requests one message has at most, but for one
	// request more.
	maxMessage = 256 << 10
	// maxTogether is how many calls one message carries at most.
	maxTogether = 1000
	// maxUnderWay is how many calls of a stream are without an answer at most, if the
	// server allows so many.
	maxUnderWay = 4096
	// idleAfter is how long a stream is unused before it ends, to at most twice as long.
	idleAfter = 30 * time.Second
	// againAfter is how long after the failure of a stream another one is opened.
	againAfter = time.Second
)

// Conn is a connection whose unary calls travel together. It is safe for concurrent use.
type Conn struct {
	*grpc.ClientConn

	ctx     context.Context //nolint:containedctx // until Close
	cancel  context.CancelFunc
	line    atomic.Pointer[line] // calls go over it; nil: none is open
	opening atomic.Bool

	mu sync.Mutex // Close against a stream that is being opened
	wg sync.WaitGroup
}

// NewClient is grpc.NewClient. Interceptors among the options see each call.
func NewClient(target string, opts ...grpc.DialOption) (*Conn, error) {
	c := &Conn{}
	cc, err := grpc.NewClient(target, append(opts[:len(opts):len(opts)], grpc.WithChainUnaryInterceptor(c.invoke))...)
	if err != nil {
		return nil, err
	}
	c.ClientConn = cc
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the connection and all calls. It returns when nothing of them is left.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	err := c.ClientConn.Close()
	c.wg.Wait()
	return err
}

// invoke is the innermost interceptor.
func (c *Conn) invoke(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, unary grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, span := tracing.Call(ctx, method)
	err := c.send(ctx, span.Parent(), method, req, reply, cc, unary, opts)
	span.EndCall(err)
	return err
}

// send makes a call, over the stream if it can; parent is its span for the server.
func (c *Conn) send(ctx context.Context, parent, method string, req, reply any, cc *grpc.ClientConn, unary grpc.UnaryInvoker, opts []grpc.CallOption) error {
	name, ours := strings.CutPrefix(method, prefix)
	in, isIn := req.(proto.Message)
	out, isOut := reply.(proto.Message)
	if l := c.open(); l != nil && ours && isIn && isOut {
		if body, err := proto.Marshal(in); err == nil && len(body) <= maxCarried {
			if w := l.send(ctx, name, parent, body); w != nil {
				return l.wait(ctx, w, out, opts)
			}
		}
	}
	if parent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, tracing.Header, parent)
	}
	return unary(ctx, method, req, reply, cc, opts...)
}

// open returns the open stream. If there is none it begins to open one and returns nil.
func (c *Conn) open() *line {
	l := c.line.Load()
	if l == nil && c.opening.CompareAndSwap(false, true) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ctx.Err() == nil {
			c.wg.Add(1)
			go c.run()
		}
	}
	return l
}

// run opens a stream and receives its answers until it ends.
func (c *Conn) run() {
	defer c.wg.Done()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	most := 0
	s, err := pb.NewCallsClient(c.ClientConn).Carry(ctx)
	if err == nil {
		// Who serves it says so at once. Else a server without it would cost the
		// first calls an attempt.
		most, err = allowed(s)
	}
	if err != nil {
		c.pause()
		return
	}
	l := &line{conn: c, stream: s, cancel: cancel, most: min(most, maxUnderWay), waiting: map[uint64]*waiter{}}
	l.peer, _ = peer.FromContext(s.Context())
	l.idle = time.AfterFunc(idleAfter, l.endIdle)
	c.line.Store(l)
	if l.receive() {
		c.pause() // a server that breaks each stream would break each call
		return
	}
	c.opening.Store(false)
}

// pause lets another stream be opened after a while.
func (c *Conn) pause() {
	if clock.Pause(c.ctx, againAfter) == nil {
		c.opening.Store(false)
	}
}

// allowed is how many calls at once the server takes.
func allowed(s pb.Calls_CarryClient) (int, error) {
	md, err := s.Header()
	if err != nil {
		return 0, err
	}
	if v := md.Get(carries); len(v) == 1 {
		return strconv.Atoi(v[0])
	}
	return 0, errors.New("the server does not serve the stream")
}

// line is one open stream.
type line struct {
	conn   *Conn
	stream pb.Calls_CarryClient
	cancel context.CancelFunc
	peer   *peer.Peer
	most   int // calls without an answer, as the server allows
	idle   *time.Timer

	mu      sync.Mutex
	last    uint64             // id of a call
	waiting map[uint64]*waiter // calls without an answer; nil: sent, and nobody waits for it any more
	queue   []*pb.CarriedCall  // calls to be sent, those included that are no longer in waiting
	cancels []uint64           // to be sent
	sending bool               // a goroutine sends what there is
	used    bool               // since endIdle looked last
	ended   bool
}

// waiter is a call without an answer.
type waiter struct {
	call   *pb.CarriedCall
	sent   bool // or about to be
	done   chan struct{}
	answer *pb.CarriedAnswer // once done, if err is nil
	err    error
}

// send has a call sent. It returns nil if the stream does not take it.
func (l *line) send(ctx context.Context, method, parent string, body []byte) *waiter {
	call := &pb.CarriedCall{Method: method, Request: body, Traceparent: parent}
	if end, ok := ctx.Deadline(); ok {
		call.TimeoutMs = max(1, int64((time.Until(end)+time.Millisecond-1)/time.Millisecond))
	}
	w := &waiter{call: call, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.waiting) >= l.most || len(l.queue) >= l.most || ctx.Err() != nil {
		return nil
	}
	l.last++
	call.Id = l.last
	l.waiting[call.Id] = w
	l.queue = append(l.queue, call)
	l.used = true
	l.kick()
	return w
}

// kick sees to it that what is queued is sent. The caller holds mu.
func (l *line) kick() {
	if !l.sending {
		l.sending = true
		l.conn.wg.Add(1) // that of run is still held
		go l.drain()     // and not here, where sending may wait for a slow server
	}
}

// drain sends what is queued until there is no more.
func (l *line) drain() {
	defer l.conn.wg.Done()
	for m := l.take(); m != nil; m = l.take() {
		if err := l.stream.Send(m); err != nil {
			l.cancel() // receive tells the waiters
			return
		}
	}
}

// take returns the next message. If there is none, the sender has to end.
func (l *line) take() *pb.CarryRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > len(l.queue) { // others have called before, and may be about to call again
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	m := &pb.CarryRequest{Cancel: l.cancels}
	l.cancels = nil
	size, n := 0, 0
	for ; n < len(l.queue) && len(m.Calls) < maxTogether && size < maxMessage; n++ {
		call := l.queue[n]
		if w := l.waiting[call.GetId()]; w != nil {
			w.sent = true
			m.Calls = append(m.Calls, call)
			size += len(call.GetRequest())
		}
	}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	if l.ended || len(m.Calls) == 0 && len(m.Cancel) == 0 {
		l.sending = false
		return nil
	}
	return m
}

// wait waits for the answer to a call.
func (l *line) wait(ctx context.Context, w *waiter, reply proto.Message, opts []grpc.CallOption) error {
	select {
	case <-w.done:
	case <-ctx.Done():
		l.abandon(w)
	}
	if w.sent && l.peer != nil {
		for _, o := range opts {
			if p, ok := o.(grpc.PeerCallOption); ok {
				*p.PeerAddr = *l.peer
			}
		}
	}
	switch {
	case w.err != nil:
		return w.err
	case w.answer == nil:
		return status.FromContextError(ctx.Err()).Err()
	case w.answer.GetCode() != 0:
		st := status.New(codes.Code(w.answer.GetCode()), w.answer.GetMessage())
		if d := w.answer.GetDetail(); d != nil {
			if with, err := st.WithDetails(d); err == nil {
				st = with
			}
		}
		return st.Err()
	}
	if err := proto.Unmarshal(w.answer.GetResponse(), reply); err != nil {
		return status.Errorf(codes.Internal, "the answer cannot be read: %v", err)
	}
	return nil
}

// abandon waits no longer for an answer, unless it is there.
func (l *line) abandon(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.answer != nil || w.err != nil:
	case w.sent:
		l.waiting[w.call.Id] = nil
		l.cancels = append(l.cancels, w.call.Id)
		l.kick()
	default:
		delete(l.waiting, w.call.Id)
		w.call.Request = nil // it stays in the queue
	}
}

// receive hands answers to those who wait for them, until the stream ends. It reports
// whether it broke.
func (l *line) receive() (broke bool) {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return l.failWaiters(err)
		}
		l.mu.Lock()
		for _, a := range m.GetAnswers() {
			if w := l.waiting[a.GetId()]; w != nil {
				w.answer = a
				close(w.done)
			}
			delete(l.waiting, a.GetId())
		}
		l.mu.Unlock()
	}
}

// failWaiters tells all who wait that the stream has ended. What became of a call is unknown if
// it was sent. It reports whether the stream broke.
func (l *line) failWaiters(err error) (broke bool) {
	l.conn.line.CompareAndSwap(l, nil)
	why := status.Convert(err).Message()
	if errors.Is(err, io.EOF) {
		why = "the namenode takes no more calls on this connection"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	broke = !l.ended
	l.ended = true
	l.idle.Stop()
	for _, w := range l.waiting {
		if w != nil {
			w.err = status.Error(codes.Unavailable, why)
			close(w.done)
		}
	}
	l.waiting, l.queue, l.cancels = nil, nil, nil
	return broke
}

// endIdle ends the stream if nobody uses it.
func (l *line) endIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	if l.used || l.sending || len(l.waiting) > 0 {
		l.used = false
		l.idle.Reset(idleAfter)
		return
	}
	l.ended = true
	l.conn.line.CompareAndSwap(l, nil)
	_ = l.stream.CloseSend() // receive learns of all errors
}
