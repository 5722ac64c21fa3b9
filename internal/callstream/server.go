package callstream

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// carries is the header by which a server says that it serves the stream, and how many
// calls at once.
const carries = "leasefs-carries"

const (
	// maxAnswers is how many bytes of answers one message has at most, but for one
	// answer more.
	maxAnswers = 256 << 10
	// maxUnsent is how many bytes of answers wait for a slow client before no more
	// calls are read from it.
	maxUnsent = 4 << 20
	// maxAnswer is how large one answer may be, less than what a client reads.
	maxAnswer = 16 << 20
)

// Server serves the stream of calls. RegisterService comes before the first stream;
// then it is safe for concurrent use.
type Server struct {
	pb.UnimplementedCallsServer
	intercept grpc.UnaryServerInterceptor
	most      int
	methods   map[string]method
}

type method struct {
	impl    any
	handler grpc.MethodHandler
}

// NewServer returns a server of unary methods, each called through intercept (nil:
// nothing), at most so many of one stream at once.
func NewServer(intercept grpc.UnaryServerInterceptor, most int) *Server {
	return &Server{intercept: intercept, most: most, methods: map[string]method{}}
}

// Register returns a registrar of services that are served by s as well as by r.
// The stream itself is registered with r.
func (s *Server) Register(r grpc.ServiceRegistrar) grpc.ServiceRegistrar {
	pb.RegisterCallsServer(r, s)
	return both{s, r}
}

type both struct {
	s *Server
	r grpc.ServiceRegistrar
}

// RegisterService implements grpc.ServiceRegistrar.
func (b both) RegisterService(desc *grpc.ServiceDesc, impl any) {
	b.r.RegisterService(desc, impl)
	service := strings.TrimPrefix(desc.ServiceName, prefix[1:])
	for _, m := range desc.Methods {
		b.s.methods[service+"/"+m.MethodName] = method{impl, m.Handler}
	}
}

// served is one stream.
type served struct {
	*Server
	stream pb.Calls_CarryServer
	ctx    context.Context //nolint:containedctx // of its calls: until it breaks
	wg     sync.WaitGroup  // calls under way, their answers included

	mu      sync.Mutex
	sent    sync.Cond // answers were sent, or cannot be
	closed  bool      // no more calls are taken
	last    uint64    // id of a call
	under   map[uint64]context.CancelFunc
	answers []*pb.CarriedAnswer // to be sent
	unsent  int                 // bytes of them, those included that are being sent
	sending bool
}

// Carry implements the service. When the stream's context ends before the client does,
// which is when the namenode stops, the calls under way are answered.
func (s *Server) Carry(stream pb.Calls_CarryServer) error {
	if err := stream.SendHeader(metadata.Pairs(carries, strconv.Itoa(s.most))); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(stream.Context()))
	defer cancel()
	l := &served{Server: s, stream: stream, ctx: ctx, under: map[uint64]context.CancelFunc{}}
	l.sent.L = &l.mu
	read := make(chan error, 1)
	go func() {
		err := l.read()
		if !errors.Is(err, io.EOF) {
			cancel() // nobody waits for the answers
		}
		read <- err
	}()
	var err error
	select {
	case err = <-read:
	case <-stream.Context().Done():
		err = context.Cause(stream.Context())
	}
	l.mu.Lock()
	l.closed = true
	l.sent.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read begins the calls that arrive, until the stream ends.
func (l *served) read() error {
	for l.room() {
		m, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if n := len(m.GetCalls()); n > maxTogether {
			return status.Errorf(codes.InvalidArgument, "a message carries at most %d calls, not %d", maxTogether, n)
		}
		for _, c := range m.GetCalls() {
			if err := l.begin(c); err != nil {
				return err
			}
		}
		l.cancelCalls(m.GetCancel())
	}
	return nil
}

// room waits until the answers that are not sent yet leave room for more. It reports
// false if no more calls are taken.
func (l *served) room() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unsent > maxUnsent && !l.closed {
		l.sent.Wait()
	}
	return !l.closed
}

func (l *served) begin(c *pb.CarriedCall) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil
	case c.GetId() <= l.last:
		return status.Errorf(codes.InvalidArgument, "call %d comes after call %d: ids of calls have to grow", c.GetId(), l.last)
	}
	l.last = c.GetId()
	if len(l.under) >= l.most {
		return status.Errorf(codes.ResourceExhausted, "more than %d calls of one stream at once", l.most)
	}
	ctx, cancel := l.ctx, context.CancelFunc(nil)
	if ms := c.GetTimeoutMs(); ms > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(ms, maxTimeout.Milliseconds()))*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	l.under[c.GetId()] = cancel
	l.wg.Add(1)
	go l.serve(ctx, c)
	return nil
}

// maxTimeout is the longest time limit, longer than any call.
const maxTimeout = 24 * time.Hour

func (l *served) cancelCalls(ids []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if cancel := l.under[id]; cancel != nil {
			cancel()
		}
	}
}

func (l *served) serve(ctx context.Context, c *pb.CarriedCall) {
	defer l.wg.Done()
	a := &pb.CarriedAnswer{Id: c.GetId()}
	resp, err := l.call(ctx, c)
	if err == nil {
		a.Response, err = proto.Marshal(resp)
	}
	if err == nil && len(a.Response) > maxAnswer {
		a.Response, err = nil, status.Errorf(codes.ResourceExhausted, "the answer has %d bytes, more than %d", len(a.Response), maxAnswer)
	}
	if err != nil {
		st := status.Convert(err)
		a.Code, a.Message = uint32(st.Code()), st.Message()
		for _, d := range st.Details() {
			if d, ok := d.(*pb.ErrorDetail); ok {
				a.Detail = d
			}
		}
	}
	l.answer(a)
}

func (l *served) call(ctx context.Context, c *pb.CarriedCall) (proto.Message, error) {
	m, ok := l.methods[c.GetMethod()]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %q", c.GetMethod())
	}
	resp, err := m.handler(m.impl, ctx, func(req any) error {
		if err := proto.Unmarshal(c.GetRequest(), req.(proto.Message)); err != nil {
			return status.Errorf(codes.InvalidArgument, "the request cannot be read: %v", err)
		}
		return nil
	}, l.intercept)
	if err != nil {
		return nil, err
	}
	return resp.(proto.Message), nil
}

// answer sends an answer, with all that are ready by then, unless another goroutine
// is sending and will take it along.
func (l *served) answer(a *pb.CarriedAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under[a.GetId()]()
	delete(l.under, a.GetId())
	l.answers = append(l.answers, a)
	l.unsent += len(a.GetResponse())
	if l.sending {
		return
	}
	l.sending = true
	for len(l.answers) > 0 {
		n, size := 0, 0
		for n < len(l.answers) && size < maxAnswers {
			size += len(l.answers[n].GetResponse())
			n++
		}
		m := &pb.CarryResponse{Answers: l.answers[:n]}
		l.answers = l.answers[n:]
		l.mu.Unlock()
		err := l.stream.Send(m)
		l.mu.Lock()
		l.unsent -= size
		if err != nil { // the client is gone: so says the end of read, too
			l.answers = nil
			l.closed = true
		}
		l.sent.Signal()
	}
	l.sending = false
}
