package callstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// side is a server and a client of it. Calls go to do, by path.
type side struct {
	pb.UnimplementedNamenodeServer
	cc   *callstream.Conn
	nn   pb.NamenodeClient
	t    *testing.T
	stop context.Context //nolint:containedctx // of the server
	end  context.CancelFunc
	do   func(ctx context.Context, path string) (*pb.StatResponse, error)
	srv  *grpc.Server

	proof context.Context //nolint:containedctx // of streams; nil: theirs never ends

	served  chan error   // how streams ended, as their server saw it
	unary   atomic.Int64 // calls that did not go over the stream
	carried atomic.Int64
	streams atomic.Int64
	sent    []int                        // calls of each message
	hold    chan struct{}                // messages are sent once it is closed; nil: at once
	bad     map[string]callstream.Answer // answers to stats of those paths
	final   chan struct{}                // answers to stats of "final" may be given once it is closed
	mu      sync.Mutex
}

func (s *side) Stat(ctx context.Context, r *pb.StatRequest) (*pb.StatResponse, error) {
	return s.do(ctx, r.GetAt().GetPath())
}

// bound is a stream with another context.
type bound struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // its own
}

func (b bound) Context() context.Context { return b.ctx }

// echo answers with the path.
func echo(_ context.Context, p string) (*pb.StatResponse, error) {
	return &pb.StatResponse{Path: p}, nil
}

// counted notes messages of the stream as they are sent.
type counted struct {
	grpc.ClientStream
	s *side
}

func (c counted) SendMsg(m any) error {
	c.s.mu.Lock()
	c.s.sent = append(c.s.sent, len(m.(*pb.CarryRequest).GetCalls()))
	hold := c.s.hold
	c.s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return c.ClientStream.SendMsg(m)
}

func start(t *testing.T, most int, do func(context.Context, string) (*pb.StatResponse, error)) *side {
	t.Helper()
	s := &side{t: t, do: do, served: make(chan error, 1000)}
	s.stop, s.end = context.WithCancel(t.Context())
	lis := bufconn.Listen(1 << 20)
	s.srv = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		s.unary.Add(1)
		resp, err := h(ctx, req)
		return resp, wire.ToStatus(err)
	}), grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if s.proof != nil {
			ss = bound{ss, s.proof}
		}
		err := h(srv, ss)
		s.served <- err
		return err
	}))
	var r grpc.ServiceRegistrar = s.srv
	if most > 0 {
		around := callstream.AtOnce(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			s.carried.Add(1)
			resp, err := h(ctx, req)
			return resp, wire.ToStatus(err)
		})
		r = callstream.NewServer(s.stop, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) callstream.Answer {
			a := around(ctx, req, info, h)
			if bad := s.bad[req.(*pb.StatRequest).GetAt().GetPath()]; bad != nil {
				return bad
			}
			if s.final != nil && req.(*pb.StatRequest).GetAt().GetPath() == "final" {
				return final{a, s.final}
			}
			return a
		}, most).Register(s.srv)
	}
	pb.RegisterNamenodeServer(r, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.srv.Serve(lis) }()
	var err error
	s.cc, err = callstream.NewClient("passthrough:///nn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s.streams.Add(1)
			cs, err := open(ctx, desc, cc, method, opts...)
			return counted{cs, s}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	s.nn = pb.NewNamenodeClient(s.cc)
	t.Cleanup(func() {
		_ = s.cc.Close()
		s.srv.Stop()
		<-done
	})
	return s
}

func (s *side) stat(ctx context.Context, p string, opts ...grpc.CallOption) (string, error) {
	r, err := s.nn.Stat(ctx, &pb.StatRequest{At: &pb.Ref{Path: p}}, opts...)
	return r.GetPath(), err
}

// open makes calls until one goes over the stream.
func (s *side) open() {
	s.t.Helper()
	for s.carried.Load() == 0 {
		if _, err := s.stat(s.t.Context(), "open"); err != nil {
			s.t.Fatal(err)
		}
		synctest.Wait()
	}
}

// TestCallsTravelTogether: calls that come while a message is being sent leave in the
// next one, and each gets its own answer.
func TestCallsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, echo)
		s.open()
		const n = 500
		s.mu.Lock()
		s.sent, s.hold = nil, make(chan struct{})
		s.mu.Unlock()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if got, err := s.stat(t.Context(), fmt.Sprint(i)); err != nil || got != fmt.Sprint(i) {
					t.Errorf("%d: %q, %v", i, got, err)
				}
			})
		}
		synctest.Wait() // the first is being sent
		close(s.hold)
		wg.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		sum := 0
		for _, calls := range s.sent {
			sum += calls
		}
		if len(s.sent) > 2 || sum != n {
			t.Errorf("messages of %v calls for %d that came while the first was being sent", s.sent, n)
		}
	})
}

// TestASlowCallHoldsUpNoOther: it is answered last, whenever it came.
func TestASlowCallHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "slow" {
				<-release
			}
			return echo(ctx, p)
		})
		s.open()
		slow := make(chan error, 1)
		go func() { _, err := s.stat(t.Context(), "slow"); slow <- err }()
		synctest.Wait()
		for i := range 100 {
			if _, err := s.stat(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-slow:
			t.Fatal("it is answered:", err)
		default:
		}
		close(release)
		if err := <-slow; err != nil {
			t.Error(err)
		}
	})
}

// TestErrorsArriveWhole: with kind, reason, holder and all.
func TestErrorsArriveWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &fserror.Error{Kind: fserror.Held, Op: "stat", Path: "/a", Message: "m", Holder: &fserror.Holder{User: "ann", PID: 7}, TakeableIn: time.Second}
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "held" {
				return nil, held
			}
			return echo(ctx, p)
		})
		s.open()
		unary := s.unary.Load()
		var from peer.Peer
		_, err := s.stat(t.Context(), "held", grpc.Peer(&from))
		var got *fserror.Error
		if !errors.As(wire.FromStatus(err), &got) || got.Kind != fserror.Held || got.Holder == nil || *got.Holder != *held.Holder || got.TakeableIn != time.Second || got.Path != "/a" {
			t.Errorf("%+v", got)
		}
		if from.Addr == nil {
			t.Error("nobody knows that it was sent")
		}
		if s.unary.Load() != unary {
			t.Error("it did not go over the stream")
		}
		err = s.cc.Invoke(t.Context(), "/leasefs.v1.Namenode/Nonsense", &pb.StatRequest{}, &pb.StatResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Error("an unknown method:", err)
		}
	})
}

// TestDeadlinesAndCancellation: a call ends on both sides when its context does.
func TestDeadlinesAndCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "wait" {
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			}
			return echo(ctx, p)
		})
		s.open()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { _, err := s.stat(ctx, "wait"); got <- err }()
		synctest.Wait()
		cancel()
		if err := <-got; status.Code(err) != codes.Canceled {
			t.Error("canceled:", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error("the server's side, canceled:", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := s.stat(ctx, "wait"); status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 1500*time.Millisecond {
			t.Error("late:", err, time.Since(began))
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Error("the server's side, late:", err)
		}
		<-ctx.Done() // the server's side may have been first to end, within the same nanosecond
		if _, err := s.stat(ctx, "over already"); status.Code(err) != codes.DeadlineExceeded {
			t.Error("a call whose time is over:", err)
		}
		if _, err := s.stat(t.Context(), "next"); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeCallsGoAlone: and those beyond what the server takes of a stream.
func TestLargeCallsGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := start(t, 3, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if strings.HasPrefix(p, "wait") {
				<-release
			}
			return echo(ctx, p)
		})
		s.open()
		unary := s.unary.Load()
		large := strings.Repeat("x", 65<<10)
		if got, err := s.stat(t.Context(), large); err != nil || got != large {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if n := s.unary.Load() - unary; n != 1 {
			t.Errorf("%d calls did not go over the stream, want the large one", n)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if _, err := s.stat(t.Context(), fmt.Sprint("wait", i)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := s.unary.Load() - unary; n != 6 {
			t.Errorf("%d calls did not go over the stream, want the large one and the five of eight that it does not take", n)
		}
		close(release)
		wg.Wait()
	})
}

// TestABrokenStream ends its calls as a broken connection does, and is replaced.
func TestABrokenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "wait" {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return echo(ctx, p)
		})
		s.open()
		var from peer.Peer
		got := make(chan error, 1)
		go func() { _, err := s.stat(t.Context(), "wait", grpc.Peer(&from)); got <- err }()
		synctest.Wait()
		// A message that no client of ours sends.
		raw, err := pb.NewCallsClient(s.cc.ClientConn).Carry(t.Context())
		if err == nil {
			err = raw.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{{Id: 5, Method: "Namenode/Stat"}, {Id: 5}}})
		}
		for err == nil {
			_, err = raw.Recv()
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "5") {
			t.Error("the same id twice:", err)
		}
		raw, err = pb.NewCallsClient(s.cc.ClientConn).Carry(t.Context())
		if err == nil {
			err = raw.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{{Id: 1, Method: "Namenode/Stat", Request: make([]byte, 64<<10+1)}}})
		}
		for err == nil {
			_, err = raw.Recv()
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "65537") {
			t.Error("a large request:", err)
		}
		select {
		case err := <-got:
			t.Fatal("another's stream broke:", err)
		default:
		}
		close(release)
		if err := <-got; err != nil || from.Addr == nil {
			t.Error(err, from)
		}
		// One that breaks, with a call under way.
		release = make(chan struct{})
		go func() { _, err := s.stat(t.Context(), "wait", grpc.Peer(&from)); got <- err }()
		synctest.Wait()
		streams := s.streams.Load()
		go s.srv.Stop()
		if err := <-got; status.Code(err) != codes.Unavailable || from.Addr == nil {
			t.Error("its outcome is not known:", err, from)
		}
		if _, err := s.stat(t.Context(), "gone"); status.Code(err) != codes.Unavailable {
			t.Error("to nobody:", err)
		}
		<-time.After(2 * time.Second)
		if _, err := s.stat(t.Context(), "gone"); status.Code(err) != codes.Unavailable {
			t.Error("to nobody:", err)
		}
		synctest.Wait()
		if s.streams.Load() == streams {
			t.Error("no other stream was tried")
		}
	})
}

// TestLastCalls: what is under way is answered after its client has said that no more comes.
func TestLastCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "wait" {
				<-time.After(time.Second) // simulated
			}
			return echo(ctx, p)
		})
		s.open()
		got := make(chan error, 1)
		go func() { _, err := s.stat(t.Context(), "wait"); got <- err }()
		synctest.Wait()
		raw, err := pb.NewCallsClient(s.cc.ClientConn).Carry(t.Context())
		if err == nil {
			err = raw.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{{Id: 1, Method: "Namenode/Stat", Request: marshal(t, &pb.StatRequest{At: &pb.Ref{Path: "wait"}})}}})
		}
		if err == nil {
			err = raw.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := raw.Recv()
		if err != nil || len(m.GetAnswers()) != 1 || m.GetAnswers()[0].GetCode() != 0 {
			t.Error("after its client's last word:", m, err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestIdleStreamsEnd: and the next call opens another.
func TestIdleStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, echo)
		s.open()
		if n := s.streams.Load(); n != 1 {
			t.Fatalf("%d streams", n)
		}
		for range 10 { // in use
			<-time.After(20 * time.Second)
			if _, err := s.stat(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.streams.Load(); n != 1 {
			t.Errorf("%d streams while it is in use", n)
		}
		<-time.After(2 * time.Minute)
		unary := s.unary.Load()
		if _, err := s.stat(t.Context(), "x"); err != nil || s.unary.Load() != unary+1 {
			t.Error("after the stream's end:", err)
		}
		synctest.Wait()
		if _, err := s.stat(t.Context(), "x"); err != nil || s.unary.Load() != unary+1 || s.streams.Load() != 2 {
			t.Error("over the next stream:", err, s.streams.Load())
		}
	})
}

// TestServersWithoutTheStream get plain calls.
func TestServersWithoutTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 0, echo)
		for i := range 100 {
			if got, err := s.stat(t.Context(), fmt.Sprint(i)); err != nil || got != fmt.Sprint(i) {
				t.Fatal(got, err)
			}
			synctest.Wait()
		}
		if n := s.streams.Load(); n != 1 {
			t.Errorf("%d streams were tried at once", n)
		}
		<-time.After(5 * time.Second)
		if _, err := s.stat(t.Context(), "later"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := s.streams.Load(); n != 2 {
			t.Errorf("%d streams were tried, want another one later", n)
		}
	})
}

// TestHostileMessages end their stream and nothing else.
func TestHostileMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 10, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			<-ctx.Done()
			return echo(ctx, p)
		})
		many := make([]*pb.CarriedCall, 1001)
		for i := range many {
			many[i] = &pb.CarriedCall{Id: uint64(i + 1), Method: "Namenode/Stat"}
		}
		for name, m := range map[string]*pb.CarryRequest{
			"too many calls":         {Calls: many},
			"too many calls at once": {Calls: many[:11]},
			"the id 0":               {Calls: []*pb.CarriedCall{{Method: "Namenode/Stat"}}},
		} {
			st, err := pb.NewCallsClient(s.cc.ClientConn).Carry(t.Context())
			if err == nil {
				err = st.Send(m)
			}
			for err == nil {
				_, err = st.Recv()
			}
			if c := status.Code(err); c != codes.InvalidArgument && c != codes.ResourceExhausted {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, c := range map[string]*pb.CarriedCall{
			"no method":      {Id: 1},
			"no such":        {Id: 1, Method: path.Join("Namenode", "None")},
			"no request":     {Id: 1, Method: "Namenode/Stat", Request: []byte{0xff}},
			"another's name": {Id: 1, Method: "/leasefs.v1.Namenode/Stat"},
		} {
			st, err := pb.NewCallsClient(s.cc.ClientConn).Carry(t.Context())
			if err == nil {
				err = st.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{c}, Cancel: []uint64{0, 1, 99}})
			}
			var m *pb.CarryResponse
			if err == nil {
				m, err = st.Recv()
			}
			if err != nil || len(m.GetAnswers()) != 1 || m.GetAnswers()[0].GetCode() == 0 || m.GetAnswers()[0].GetMessage() == "" {
				t.Errorf("%s: %v, %v", name, m, err)
			}
			_ = st.CloseSend()
		}
	})
}

// TestClientsThatDoNotRead hold up their own calls only, and little memory.
func TestClientsThatDoNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int64
		big := strings.Repeat("x", 1<<20)
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "big" {
				served.Add(1)
				return &pb.StatResponse{Path: big}, nil
			}
			return echo(ctx, p)
		})
		st, err := pb.NewCallsClient(s.cc.ClientConn).Carry(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		req := marshal(t, &pb.StatRequest{At: &pb.Ref{Path: "big"}})
		for i := range 100 {
			if err := st.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{{Id: uint64(i + 1), Method: "Namenode/Stat", Request: req}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := served.Load(); n > 20 {
			t.Errorf("%d answers of 1 MiB wait for who does not read", n)
		}
		if _, err := s.stat(t.Context(), "other"); err != nil {
			t.Error(err)
		}
		for i := 0; i < 100; { // now it reads
			m, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			i += len(m.GetAnswers())
		}
	})
}
