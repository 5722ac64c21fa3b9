package session

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// namenode is one as a test makes it, reached by pipes. It welcomes each Hello unless
// hello is set, and answers each renewal by renewal.
type namenode struct {
	pb.UnimplementedNamenodeServer

	hello   func() *pb.SessionResponse // nil: welcome
	welcome *pb.Welcome
	renewal func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse

	mu      sync.Mutex
	hellos  []*pb.Hello
	renewed []*pb.RenewLeaseRequest
	current pb.Namenode_SessionServer
	ended   int // streams that their client ended in order
	calls   int // renewals that came as calls
	hangUp  chan struct{}
}

func (n *namenode) Session(st pb.Namenode_SessionServer) error {
	m, err := st.Recv()
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.hellos = append(n.hellos, m.GetHello())
	hello, hangUp := n.hello, make(chan struct{})
	n.current, n.hangUp = st, hangUp
	n.mu.Unlock()
	answer := &pb.SessionResponse{Kind: &pb.SessionResponse_Welcome{Welcome: n.welcome}}
	if hello != nil {
		answer = hello()
	}
	if answer == nil {
		<-st.Context().Done() // it says nothing
		return st.Context().Err()
	}
	if err := st.Send(answer); err != nil {
		return err
	}
	over := make(chan error, 1)
	go func() {
		for {
			m, err := st.Recv()
			if err != nil {
				over <- err
				return
			}
			if r := m.GetRenew(); r != nil {
				if resp := n.answer(r); resp != nil {
					resp.Seq = r.GetSeq()
					_ = st.Send(&pb.SessionResponse{Kind: &pb.SessionResponse_Renewed{Renewed: resp}})
				}
			}
		}
	}()
	select {
	case err := <-over:
		if st.Context().Err() == nil {
			n.mu.Lock()
			n.ended++
			n.mu.Unlock()
			return nil
		}
		return err
	case <-hangUp:
		return errors.New("hung up")
	}
}

func (n *namenode) RenewLease(ctx context.Context, r *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	n.mu.Lock()
	n.calls++
	n.mu.Unlock()
	if resp := n.answer(r); resp != nil {
		return resp, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (n *namenode) answer(r *pb.RenewLeaseRequest) *pb.RenewLeaseResponse {
	n.mu.Lock()
	n.renewed = append(n.renewed, r)
	fn := n.renewal
	n.mu.Unlock()
	if fn == nil {
		return new(pb.RenewLeaseResponse)
	}
	return fn(r)
}

// set changes how the namenode answers.
func (n *namenode) set(change func(*namenode)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// breakStream ends the stream that is up.
func (n *namenode) breakStream() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.hangUp)
}

// say sends a message on the stream that is up.
func (n *namenode) say(m *pb.SessionResponse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.current.Send(m)
}

// seen is how many streams, renewals and renewals by calls there were.
func (n *namenode) seen() (hellos, renewals, calls int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.hellos), len(n.renewed), n.calls
}

func (n *namenode) last() *pb.RenewLeaseRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.renewed[len(n.renewed)-1]
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// bubble is the clock of a synctest bubble, plus what a test moves it by.
type bubble struct {
	began time.Time
	ahead atomic.Int64 // what Boot is ahead: a machine that was suspended
}

func (b *bubble) Wall() time.Time     { return time.Now() }
func (b *bubble) Mono() time.Duration { return time.Since(b.began) }
func (b *bubble) Boot() time.Duration { return b.Mono() + time.Duration(b.ahead.Load()) }

// file is a file open for write.
type file struct {
	key     Key
	stamp   clock.Stamp
	closing bool
	mu      sync.Mutex
	causes  []*fserror.Error
}

func (f *file) Key() Key            { return f.key }
func (f *file) Stamp() *clock.Stamp { return &f.stamp }
func (f *file) Closing() bool       { return f.closing }

func (f *file) Lose(why *fserror.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.causes = append(f.causes, why)
}

// lost is why the file was lost; nil if it was not.
func (f *file) lost() *fserror.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.causes) == 0 {
		return nil
	}
	return f.causes[0]
}

// cache notes what it is told, in order.
type cache struct {
	mu    sync.Mutex
	calls []string
}

func (c *cache) note(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, s)
}

func (c *cache) Opening()                    { c.note("opening") }
func (c *cache) Opened(*Stream, *pb.Welcome) { c.note("opened") }
func (c *cache) Broken()                     { c.note("broken") }
func (c *cache) Take(m *pb.SessionResponse) bool {
	if m.GetCacheRevocation() == nil {
		return false
	}
	c.note("taken")
	return true
}

func (c *cache) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// rig is a session with its namenode.
type rig struct {
	*Session
	t     *testing.T
	nn    *namenode
	clock *bubble
	cache *cache
	log   *logged
}

// logged has the messages of a log.
type logged struct {
	slog.Handler
	mu   sync.Mutex
	msgs []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.msgs = append(l.msgs, r.Message)
	return nil
}

func (l *logged) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.msgs)
}

// newRig returns a session that is not open yet, in a synctest bubble.
func newRig(t *testing.T) *rig {
	t.Helper()
	n := &namenode{
		welcome: &pb.Welcome{NamespaceId: "ns", SoftLimitMs: 60_000, HardLimitMs: 1_200_000, RenewEveryMs: 30_000},
	}
	lis := bufconn.Listen(64 << 10)
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	pb.RegisterNamenodeServer(server, n)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(lis) }()
	caller := &pb.Caller{User: "ann", Session: []byte("0123456789abcdef")}
	nn, err := namecall.New(t.Context(), namecall.Config{
		Namenodes: []string{"nn"}, Caller: caller, Timeout: time.Minute, Attempt: 10 * time.Second, Conns: 1,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, nn: n, clock: &bubble{began: time.Now()}, cache: new(cache), log: &logged{Handler: slog.DiscardHandler}}
	r.Session = New(t.Context(), Config{
		Namenodes: nn, Addresses: []string{"nn"}, Caller: caller, Timeout: time.Minute, Clock: r.clock, Logger: slog.New(r.log), Cache: r.cache,
	})
	t.Cleanup(func() {
		r.Close()
		nn.Close()
		server.Stop()
		<-served
	})
	return r
}

func (r *rig) open() {
	r.t.Helper()
	if err := r.Open(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// file adds a file that was just opened.
func (r *rig) file(inode uint64) *file {
	r.t.Helper()
	f := &file{key: Key{inode, inode + 100}}
	f.stamp.Renew(r.Now())
	if !r.Add(f) {
		r.t.Fatal("the session has ended")
	}
	return f
}

func wantKind(t *testing.T, what string, err error, kind fserror.Kind) {
	t.Helper()
	if err == nil || fserror.KindOf(err) != kind {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// refusal is an answer that is an error.
func refusal(kind fserror.Kind, text string) *pb.SessionResponse {
	return &pb.SessionResponse{Kind: &pb.SessionResponse_Error{Error: wire.Detail(fserror.New(kind, "", "", "%s", text))}}
}
