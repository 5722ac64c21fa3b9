package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/serve"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func dial(t *testing.T, n *env.Namenode) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(n.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// One connection has at most MaxStreams calls under way; the next waits until
// one of them ends, and other connections do not notice.
func TestMaxStreams(t *testing.T) {
	const most = 3
	n := env.Start(t, func(c *namenode.Config) { c.MaxStreams = most })
	who := n.Raw(t, "a").Who
	nn := pb.NewNamenodeClient(dial(t, n))
	stat := func(ctx context.Context, nn pb.NamenodeClient) error {
		_, err := nn.Stat(ctx, &pb.StatRequest{Caller: who, At: pb.At("/")})
		return err
	}
	if err := stat(t.Context(), nn); err != nil { // the limit comes with the server's first frame
		t.Fatal(err)
	}
	var end context.CancelFunc
	for range most {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		end = cancel
		st, err := nn.Session(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: n.Raw(t, "s").Who}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := stat(ctx, nn); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("call %d of one connection: %v", most+1, err)
	}
	if err := stat(t.Context(), pb.NewNamenodeClient(dial(t, n))); err != nil {
		t.Errorf("another connection: %v", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- stat(t.Context(), nn) }()
	end()
	if err := <-waiting; err != nil {
		t.Errorf("after one ended: %v", err)
	}
}

// heldFS holds every sync of a file back while it is closed.
type heldFS struct {
	vfs.FS
	gate *sync.RWMutex
}

func (h heldFS) Create(name string) (vfs.File, error) { return h.file(h.FS.Create(name)) }
func (h heldFS) CreateExclusive(name string) (vfs.File, error) {
	return h.file(h.FS.CreateExclusive(name))
}
func (h heldFS) OpenWrite(name string) (vfs.File, error) { return h.file(h.FS.OpenWrite(name)) }

func (h heldFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return heldFile{f, h.gate}, nil
}

type heldFile struct {
	vfs.File
	gate *sync.RWMutex
}

func (h heldFile) Sync() error {
	h.gate.RLock()
	defer h.gate.RUnlock()
	return h.File.Sync()
}

// At most MaxInFlight calls are served at once. More are told when to try
// again, and those that only wait for others do not count.
func TestMaxInFlight(t *testing.T) {
	const most = 4
	var gate sync.RWMutex
	n := env.Start(t, func(c *namenode.Config) { c.MaxInFlight, c.FS = most, heldFS{vfs.OS(), &gate} })
	r := n.Raw(t, "a")
	r.Create("/held")
	fs := n.Client(t)
	waiter := n.Raw(t, "waits")
	answered := make(chan struct{})
	parked, unpark := context.WithCancel(t.Context())
	defer unpark()
	go func() {
		defer close(answered)
		_, _ = waiter.NN.GetFile(parked, &pb.GetFileRequest{Caller: waiter.Who, At: pb.Follow("/held"), WaitBeyond: 1, WaitMs: 60_000}) // it is given up
	}()

	gate.Lock()
	made := make(chan error, most)
	for i := range most {
		go func() {
			for {
				_, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(fmt.Sprintf("/d%d", i))})
				if !errors.Is(err, fserror.Retry) { // the call below may be in its place
					made <- err
					return
				}
			}
		}()
	}
	var refused *fserror.Error
	for refused == nil { // until all are in
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/over")})
		cancel()
		if errors.Is(err, fserror.Retry) {
			errors.As(err, &refused)
		} else if !errors.Is(err, fserror.Deadline) {
			t.Fatal(err)
		}
	}
	if refused.RetryAfter <= 0 || !strings.Contains(refused.Error(), "overloaded") {
		t.Errorf("%v", refused)
	}
	// The library tries again by itself, and comes through.
	later := make(chan error, 1)
	go func() { later <- fs.Mkdir(t.Context(), "/later", 0o755) }()
	gate.Unlock()
	for range most {
		if err := <-made; err != nil {
			t.Error(err)
		}
	}
	if err := <-later; err != nil {
		t.Error(err)
	}
	unpark()
	<-answered
}

// Of the calls that are served at once the last quarter is for those who make few:
// one address cannot take so many that others are refused.
func TestOneAddressLeavesRoomForCalls(t *testing.T) {
	const most = 16
	var gate sync.RWMutex
	n := env.Start(t, func(c *namenode.Config) { c.MaxInFlight, c.FS = most, heldFS{vfs.OS(), &gate} })
	greedy, modest := n.RawFrom(t, "greedy", "127.0.0.2"), n.RawFrom(t, "modest", "127.0.0.3")
	status := func() error {
		_, err := modest.Admin.Status(t.Context(), &pb.StatusRequest{Caller: modest.Who})
		return err
	}
	if err := status(); err != nil {
		t.Fatal(err)
	}
	root := n.Raw(t, "root")
	if _, err := root.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/"), SetMode: true, Mode: 0o1777}); err != nil {
		t.Fatal(err)
	}
	gate.Lock()
	ended := make(chan error, 2*most)
	for i := range 2 * most {
		go func() {
			_, err := greedy.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: greedy.Call(), Caller: greedy.Who, At: pb.At(fmt.Sprintf("/d%d", i))})
			ended <- err
		}()
	}
	for range most { // more are refused for want of room, and then there is none
		if err := <-ended; !errors.Is(err, fserror.Retry) {
			t.Errorf("a call of one who makes many: %v", err)
		}
	}
	env.Eventually(t, "all others are refused or served", func() bool { return n.Served() >= most*3/4 })
	if err := status(); err != nil {
		t.Errorf("one address makes many calls, and another's is answered with %v", err)
	}
	gate.Unlock()
	for range most {
		if err := <-ended; err != nil && !errors.Is(err, fserror.Retry) {
			t.Error(err)
		}
	}
}

// A message over the limit is refused with its size and the limit, and the
// connection continues; one just below it is read.
func TestMessageSize(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "a")
	w := r.Create("/f")
	_, err := r.NN.AppendTail(t.Context(), &pb.AppendTailRequest{Writer: w, Data: make([]byte, serve.MaxMessage+1)})
	var e *fserror.Error
	if !errors.As(err, &e) || e.Kind == fserror.NoSpace || !strings.Contains(e.Error(), fmt.Sprint(serve.MaxMessage)) {
		t.Errorf("over the limit: %v", err)
	}
	if err := r.Flush(w, 0, strings.Repeat("x", serve.MaxMessage-1000)); !errors.Is(err, fserror.TooLarge) {
		t.Errorf("below the limit of a message, above that of a tail: %v", err)
	}
	if err := r.Flush(w, 0, "goes on"); err != nil {
		t.Error(err)
	}
}

func TestReflection(t *testing.T) {
	n := env.Start(t)
	st, err := reflectionpb.NewServerReflectionClient(dial(t, n)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := st.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var services []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		services = append(services, s.GetName())
	}
	for _, want := range []string{pb.Namenode_ServiceDesc.ServiceName, pb.Admin_ServiceDesc.ServiceName, healthpb.Health_ServiceDesc.ServiceName} {
		if !slices.Contains(services, want) {
			t.Errorf("%s is not among %q", want, services)
		}
		file := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: want}})
		if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s is not described: %v", want, file)
		}
	}
}

// gRPC's own health service says that the namenode serves, and that it ends.
func TestHealth(t *testing.T) {
	n := env.Start(t)
	h := healthpb.NewHealthClient(dial(t, n))
	resp, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(resp, err)
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("of a service that is not there: %v", err)
	}
	st, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := st.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(resp, err)
	}
	n.Stop(t)
	// Its last word, if it comes through before the connection ends, is that it
	// serves no more.
	if resp, err := st.Recv(); err == nil && resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error(resp)
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after its end: %v", err)
	}
}

// Sessions that stay open hold up no calls, however many there are: more than the
// server has workers for calls.
func TestSessionsHoldUpNoCalls(t *testing.T) {
	n := env.Start(t)
	for i := range 100 {
		r := n.Raw(t, fmt.Sprint("s", i))
		t.Cleanup(r.Connect())
	}
	r, f := n.Raw(t, "unary"), n.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var g errgroup.Group
	for i := range 100 {
		g.Go(func() error {
			_, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(fmt.Sprint("/unary", i))})
			return err
		})
		g.Go(func() error { return f.Mkdir(ctx, fmt.Sprint("/carried", i), 0o755) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
