package callstream

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
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
	// maxUnsent is how many bytes of answers wait for a slow client before it may begin
	// no more calls.
	maxUnsent = 4 << 20
	// maxAnswer is how large one answer may be, less than what a client reads.
	maxAnswer = 16 << 20
	// answerCost is what an answer takes in memory besides its bytes.
	answerCost = 128
	// takeWithin is how long a client may take nothing of the answers.
	takeWithin = time.Minute
	// maxStreams is how many streams of calls one connection may have; a client needs one.
	maxStreams = 4
	// maxTimeout is the longest time limit, longer than any call.
	maxTimeout = 24 * time.Hour
)

// DefaultTimeout is how long a call may take that names no time limit, waiting for a holder included.
const DefaultTimeout = 15 * time.Minute

// Server serves the stream of calls. Register comes before the first stream; then it
// is safe for concurrent use.
type Server struct {
	pb.UnimplementedCallsServer
	stop    context.Context //nolint:containedctx // of the whole server
	around  Around
	most    int
	methods map[string]method

	panicked func(method string, p any) error

	mu      sync.Mutex
	streams map[string]int // by the client's address
}

type method struct {
	impl    any
	handler grpc.MethodHandler
}

// Around wraps each call: it carries the call out with h, or refuses it.
type Around func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) Answer

// Answer is the answer of a call that was carried out. It may have to wait until it is
// final.
type Answer interface {
	// Ready reports whether Wait returns at once.
	Ready() bool
	// Wait returns what is to be sent, once it may be sent. It is called once.
	Wait() (any, error)
}

// NewServer returns a server of unary methods, each called through around; most is the
// number of calls of one stream at once. When stop ends, streams end as soon as none of their calls
// is under way; until then around has to refuse new ones. So does a stream whose context ends: it takes
// no more calls, those that wait end with it, and what was answered is sent.
func NewServer(stop context.Context, around Around, most int) *Server {
	return &Server{stop: stop, around: around, most: most, methods: map[string]method{}, streams: map[string]int{}, panicked: failed}
}

// OnPanic has fn say what is answered to a call in which there was a panic. It comes before the
// first stream.
func (s *Server) OnPanic(fn func(method string, p any) error) { s.panicked = fn }

func failed(string, any) error { return status.Error(codes.Internal, "the server failed in this call") }

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
	ctx    context.Context //nolint:containedctx // of its calls
	cancel context.CancelFunc

	mu      sync.Mutex
	changed sync.Cond // any of what follows
	last    uint64    // id of a call
	under   map[uint64]*callContext
	answers []*pb.CarriedAnswer // to be sent
	unsent  int                 // bytes of them, those included that are being sent
	sending bool
	eof     bool  // the client has said that no more calls come
	err     error // the stream is broken: nothing is sent any more
	closed  bool  // no more calls are taken
}

// Carry implements the service.
func (s *Server) Carry(stream pb.Calls_CarryServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := stream.SendHeader(metadata.Pairs(carries, strconv.Itoa(s.most))); err != nil {
		return err
	}
	l := &served{Server: s, stream: stream, ctx: ctx, cancel: cancel, under: map[uint64]*callContext{}}
	l.changed.L = &l.mu
	go func() { l.readEnds(l.read()) }()
	look := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	}
	defer context.AfterFunc(ctx, look)()
	defer context.AfterFunc(s.stop, look)()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.mayEnd() {
		l.changed.Wait()
	}
	l.closed = true
	l.changed.Broadcast()
	if stream.Context().Err() != nil {
		return nil // its client has left, or has to prove again who it is, which is no failure: each call was counted by itself
	}
	return l.err
}

// enter counts a stream of a connection.
func (s *Server) enter(ctx context.Context) (leave func(), err error) {
	var who string
	if p, ok := peer.FromContext(ctx); ok {
		who = p.Addr.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[who] >= maxStreams {
		return nil, status.Errorf(codes.ResourceExhausted, "a connection has at most %d streams of calls: one is enough for all", maxStreams)
	}
	s.streams[who]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[who]--; s.streams[who] == 0 {
			delete(s.streams, who)
		}
	}, nil
}

// mayEnd reports whether the stream may end now. The caller holds mu.
func (l *served) mayEnd() bool {
	switch {
	case len(l.under) > 0:
		return false
	case l.err != nil:
		return true
	}
	return (l.eof || l.stop.Err() != nil || l.ctx.Err() != nil) && !l.sending
}

// fail ends the calls of a broken stream, whose answers nobody gets. The caller holds mu.
func (l *served) fail(err error) {
	if l.err == nil {
		l.err = err
	}
	l.answers = nil
	l.cancel()
	l.changed.Broadcast()
}

// readEnds tells why there are no more calls.
func (l *served) readEnds(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		l.eof = true
		l.changed.Broadcast()
	case err != nil:
		l.fail(err)
	}
}

// read begins the calls that arrive, until no more are taken.
func (l *served) read() error {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if n := len(m.GetCalls()); n > maxTogether {
			return status.Errorf(codes.InvalidArgument, "a message carries at most %d calls, not %d", maxTogether, n)
		}
		b := &batch{served: l}
		for _, c := range m.GetCalls() {
			more, err := b.add(c)
			if !more {
				b.start() // those before it are under way
				return err
			}
		}
		b.start()
		l.cancelCalls(m.GetCancel())
	}
}

func (l *served) cancelCalls(ids []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if call := l.under[id]; call != nil {
			call.cancel()
		}
	}
}

// encode prepares an answer for the wire.
func encode(id uint64, resp any, err error) *pb.CarriedAnswer {
	a := &pb.CarriedAnswer{Id: id}
	if err == nil {
		a.Response, err = proto.Marshal(resp.(proto.Message))
	}
	if err == nil && len(a.Response) > maxAnswer {
		a.Response, err = nil, status.Errorf(codes.ResourceExhausted, "the answer has %d bytes, more than %d", len(a.Response), maxAnswer)
	}
	if err != nil {
		st := status.Convert(err)
		a.Code, a.Message = uint32(st.Code()), strings.ToValidUTF8(st.Message(), "\ufffd")
		for _, d := range st.Details() {
			if d, ok := d.(*pb.ErrorDetail); ok {
				a.Detail = d
			}
		}
	}
	return a
}

// send queues an answer to be sent, which ends its call.
func (l *served) send(a *pb.CarriedAnswer) {
	size := cost(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under[a.GetId()].cancel()
	delete(l.under, a.GetId())
	if l.err != nil {
		l.changed.Broadcast()
		return
	}
	l.answers = append(l.answers, a)
	l.unsent += size
	if !l.sending {
		l.sending = true
		go l.drain() // the end of the stream ends it
	}
}

// cost is what an answer takes in memory while it waits, in bytes.
func cost(a *pb.CarriedAnswer) int {
	return answerCost + len(a.GetResponse()) + len(a.GetMessage()) + proto.Size(a.GetDetail())
}

// drain sends what answers there are until there are no more.
func (l *served) drain() {
	GrowStack()
	late := time.AfterFunc(takeWithin, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fail(status.Errorf(codes.DeadlineExceeded, "nothing of the answers was taken for %s: read on without a pause", takeWithin))
	})
	defer late.Stop()
	for m := l.take(); m != nil; m = l.take() {
		late.Reset(takeWithin)
		l.taken(m, l.stream.Send(m))
	}
}

// take returns the next message of answers. If there is none, the sender has to end.
func (l *served) take() *pb.CarryResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.under) > 0 { // others may be about to be answered
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	if len(l.answers) == 0 {
		l.answers, l.sending = nil, false
		l.changed.Broadcast()
		return nil
	}
	n, size := 0, 0
	for n < len(l.answers) && size < maxAnswers {
		size += cost(l.answers[n])
		n++
	}
	m := &pb.CarryResponse{Answers: slices.Clone(l.answers[:n])}
	clear(l.answers[:n])
	l.answers = l.answers[n:]
	return m
}

// taken notes that a message was sent, or was not.
func (l *served) taken(m *pb.CarryResponse, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range m.GetAnswers() {
		l.unsent -= cost(a)
	}
	if err != nil {
		l.fail(err)
	}
	l.changed.Broadcast()
}
