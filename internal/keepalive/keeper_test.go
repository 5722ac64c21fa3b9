package keepalive

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// namenode is one as a test makes it: each lease that it has lives on for its time.
type namenode struct {
	pb.UnimplementedNamenodeServer

	mu      sync.Mutex
	leases  map[uint64]*pb.LeaseAlive
	refuse  error // of a stream
	silent  bool
	streams int
	open    int // streams, now
	asked   [][]uint64
	current pb.Namenode_KeepAliveServer
	hangUp  context.CancelFunc
}

func (n *namenode) KeepAlive(st pb.Namenode_KeepAliveServer) error {
	ctx, cancel := context.WithCancel(st.Context())
	n.mu.Lock()
	n.streams++
	n.open++
	n.current, n.hangUp = st, cancel
	refuse := n.refuse
	n.mu.Unlock()
	defer func() { n.mu.Lock(); n.open--; n.mu.Unlock() }()
	if refuse != nil {
		return refuse
	}
	over := make(chan error, 1)
	go func() {
		for {
			m, err := st.Recv()
			if err == nil {
				err = n.answer(st, m)
			}
			if err != nil {
				over <- err
				return
			}
		}
	}()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return errors.New("hung up")
	}
}

func (n *namenode) answer(st pb.Namenode_KeepAliveServer, m *pb.KeepAliveRequest) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, m.GetIds())
	if n.silent {
		return nil
	}
	resp := new(pb.KeepAliveResponse)
	for _, id := range m.GetIds() {
		l := n.leases[id]
		if l == nil {
			l = &pb.LeaseAlive{Id: id}
		}
		resp.Leases = append(resp.Leases, l)
	}
	return st.Send(resp)
}

func (n *namenode) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// end says that a lease has ended, without being asked.
func (n *namenode) end(id uint64, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.current.Send(&pb.KeepAliveResponse{Ended: true, Leases: []*pb.LeaseAlive{{Id: id, Reason: reason}}})
}

// counts is how many streams and messages there were, and how many streams are up.
func (n *namenode) counts() (streams, asked, open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.streams, len(n.asked), n.open
}

// bubble is the clock of a synctest bubble, plus what a test moves it by.
type bubble struct {
	began time.Time
	ahead atomic.Int64 // what Boot is ahead: a machine that was suspended
}

func (b *bubble) Wall() time.Time     { return time.Now() }
func (b *bubble) Mono() time.Duration { return time.Since(b.began) }
func (b *bubble) Boot() time.Duration { return b.Mono() + time.Duration(b.ahead.Load()) }

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

type rig struct {
	*Keeper
	t      *testing.T
	nn     *namenode
	clock  *bubble
	closed atomic.Bool // the client
	end    context.CancelFunc
}

// in runs a test in a bubble, with a Keeper of a namenode that has a lease 1 of 30 s and
// a lease 2 of another user.
func in(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &namenode{leases: map[uint64]*pb.LeaseAlive{1: {Id: 1, TtlMs: 30_000}, 2: {Id: 2, Owner: "bob"}}}
		lis := bufconn.Listen(64 << 10)
		server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
		pb.RegisterNamenodeServer(server, n)
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(lis) }()
		caller := &pb.Caller{User: "ann"}
		nn, err := namecall.New(t.Context(), namecall.Config{
			Namenodes: []string{"nn"}, Caller: caller, Timeout: time.Minute, Attempt: 10 * time.Second, Conns: 1,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, nn: n, clock: &bubble{began: time.Now()}}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		r.end = cancel
		r.Keeper = New(ctx, Config{
			Namenodes: nn, Caller: caller, Clock: r.clock, Logger: slog.New(slog.DiscardHandler),
			Go: func(fn func()) bool {
				if !r.closed.Load() {
					wg.Go(fn)
				}
				return !r.closed.Load()
			},
		})
		defer func() {
			cancel()
			wg.Wait()
			nn.Close()
			server.Stop()
			<-served
		}()
		fn(t, r)
	})
}

func (r *rig) keep(id ID) *Lease {
	r.t.Helper()
	l, err := r.Keep(r.t.Context(), id, 30*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// cause is why a lease is not kept alive any more; nil if it is.
func cause(l *Lease) error {
	synctest.Wait()
	return context.Cause(l.Context())
}

func wantKind(t *testing.T, what string, err error, kind fserror.Kind) {
	t.Helper()
	if err == nil || fserror.KindOf(err) != kind {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// A lease is named three times in its time to live, over one stream, for as long as it is
// kept; with the last one the stream goes.
func TestKeep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		l := r.keep(1)
		pass(5*time.Minute + time.Second)
		streams, asked, open := r.nn.counts()
		if streams != 1 || open != 1 || asked < 31 || asked > 33 || cause(l) != nil {
			t.Errorf("%d messages over %d streams, %v", asked, streams, cause(l))
		}
		if left := l.Remaining(); left < 19*time.Second || left > 29*time.Second {
			t.Errorf("%s remain", left)
		}
		l.Stop()
		wantKind(t, "stopped", cause(l), fserror.Closed)
		if l.Remaining() != 0 {
			t.Errorf("%s remain of a lease that is not kept", l.Remaining())
		}
		pass(time.Hour)
		if _, after, open := r.nn.counts(); after != asked || open != 0 {
			t.Errorf("%d messages after the last lease, %d streams up", after-asked, open)
		}
		again := r.keep(1)
		pass(time.Minute)
		if _, _, open := r.nn.counts(); open != 1 || cause(again) != nil {
			t.Errorf("kept again: %d streams up, %v", open, cause(again))
		}
	})
}

// All leases are named in one message, and two keepers of one lease are each told.
func TestTwoLeases(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.nn.leases[3] = &pb.LeaseAlive{Id: 3, TtlMs: 90_000}
		one, other := r.keep(1), r.keep(1)
		long, err := r.Keep(t.Context(), 3, 90*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		pass(25 * time.Second)
		r.nn.mu.Lock()
		last := slices.Clone(r.nn.asked[len(r.nn.asked)-1])
		r.nn.mu.Unlock()
		if slices.Sort(last); !slices.Equal(last, []uint64{1, 1, 3}) {
			t.Errorf("named %v", last)
		}
		r.nn.end(1, "revoked")
		for _, l := range []*Lease{one, other} {
			wantKind(t, "ended", cause(l), fserror.LeaseLost)
			if !strings.Contains(cause(l).Error(), "lease 1 has ended (revoked)") {
				t.Error(cause(l))
			}
		}
		if cause(long) != nil {
			t.Errorf("the other: %v", cause(long))
		}
	})
}

// What cannot be kept is told at once; what may pass is tried until the time is over.
func TestKeepFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		id     ID
		refuse error
		want   fserror.Kind
		took   time.Duration // at least
		text   string
	}{
		{"there is none", 0xabc, nil, fserror.NotFound, 0, "there is no lease abc"},
		{"another's", 2, nil, fserror.Permission, 0, "belongs to user bob"},
		{"refused for good", 1, wire.ToStatus(fserror.New(fserror.InvalidArgument, "", "", "no")), fserror.InvalidArgument, 0, "no"},
		{"refused for now", 1, wire.ToStatus(fserror.New(fserror.Retry, "", "", "later")), fserror.Retry, 50 * time.Second, "later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.nn.refuse = c.refuse
				began := time.Now()
				_, err := r.Keep(t.Context(), c.id, 30*time.Second)
				wantKind(t, c.name, err, c.want)
				if took := time.Since(began); took < c.took || took > time.Minute || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), Op) {
					t.Errorf("after %s: %v", took, err)
				}
				if len(r.ids) != 0 || len(r.kept) != 0 {
					t.Errorf("still kept: %v, %v", r.ids, r.kept)
				}
			})
		})
	}
	t.Run("the context ends", func(t *testing.T) {
		in(t, func(t *testing.T, r *rig) {
			r.nn.silent = true
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := r.Keep(ctx, 1, 30*time.Second)
			wantKind(t, "silent", err, fserror.Deadline)
		})
	})
	t.Run("the client is closed", func(t *testing.T) {
		in(t, func(t *testing.T, r *rig) {
			r.closed.Store(true)
			_, err := r.Keep(t.Context(), 1, 30*time.Second)
			wantKind(t, "closed", err, fserror.Closed)
		})
	})
}

// A lease ends with its context, or with the Keeper's.
func TestContexts(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		l, err := r.Keep(ctx, 1, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		other := r.keep(1)
		cancel()
		wantKind(t, "its context", cause(l), fserror.Canceled)
		if cause(other) != nil {
			t.Errorf("the other: %v", cause(other))
		}
		r.end()
		wantKind(t, "the Keeper's", cause(other), fserror.Closed)
	})
}

// A lease whose end a keep-alive finds has ended at once.
func TestEndIsFound(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		l := r.keep(1)
		r.nn.set(func() { delete(r.nn.leases, 1) })
		pass(11 * time.Second)
		wantKind(t, "ended", cause(l), fserror.LeaseLost)
	})
}

// Without answers a lease is kept for its time less a little, by this machine's clock,
// and no longer; tries go on until then.
func TestSilence(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		l := r.keep(1)
		r.nn.set(func() { r.nn.silent = true })
		pass(29*time.Second - 10*time.Millisecond)
		if cause(l) != nil {
			t.Errorf("lost early: %v", cause(l))
		}
		pass(20 * time.Millisecond)
		wantKind(t, "after 29 s", cause(l), fserror.LeaseLost)
		if streams, _, _ := r.nn.counts(); streams < 2 {
			t.Errorf("%d streams were tried", streams)
		}
	})
}

// A machine that was suspended knows at once that a lease may have ended.
func TestSuspended(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		l := r.keep(1)
		r.clock.ahead.Store(int64(40 * time.Second))
		if l.Remaining() >= 0 || cause(l) != nil {
			t.Errorf("%s remain, %v", l.Remaining(), cause(l))
		}
	})
}

// A stream that breaks is opened again at once, since what ended meanwhile was not told.
func TestStreamBreaks(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		l := r.keep(1)
		pass(time.Second)
		r.nn.set(func() {
			delete(r.nn.leases, 1)
			r.nn.hangUp()
		})
		pass(2 * time.Second)
		if streams, _, _ := r.nn.counts(); streams < 2 || cause(l) == nil {
			t.Errorf("%d streams, %v", streams, cause(l))
		}
	})
}

// An end that was told before a lease was seen alive is that of an earlier one of its id.
func TestEndOfAnEarlierLease(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		keeps := r.keep(1)
		r.Keeper.mu.Lock()
		early := &Lease{id: 1, k: r.Keeper}
		early.ctx, early.end = context.WithCancelCause(t.Context())
		r.ids[1] = append(r.ids[1], early)
		r.Keeper.mu.Unlock()
		r.nn.end(1, "expired")
		wantKind(t, "the one that was alive", cause(keeps), fserror.LeaseLost)
		if cause(early) != nil {
			t.Errorf("the one that is about to be kept: %v", cause(early))
		}
		early.Stop()
	})
}

// After a long silence a namenode may say less than the whole time: that counts, and the
// lease is named more often until it says the whole.
func TestLessTime(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.nn.leases[1] = &pb.LeaseAlive{Id: 1, TtlMs: 6000}
		l := r.keep(1)
		if left := l.Remaining(); left != 5700*time.Millisecond {
			t.Errorf("%s remain of 6 s, want 5.7 s", left)
		}
		pass(10 * time.Second)
		if _, asked, _ := r.nn.counts(); asked < 9 || cause(l) != nil {
			t.Errorf("asked %d times in 10 s, %v", asked, cause(l))
		}
		r.nn.set(func() { r.nn.leases[1] = &pb.LeaseAlive{Id: 1, TtlMs: 60_000} }) // more than it was granted for
		pass(1100 * time.Millisecond)
		if left := l.Remaining(); left > 29*time.Second || left < 27*time.Second {
			t.Errorf("%s remain of 30 s", left)
		}
	})
}

// More leases than fit into one message are named in several.
func TestManyLeases(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		var all []*Lease
		for id := ID(10); len(all) < batch+1; id++ {
			l := &Lease{id: id, ttl: time.Minute, k: r.Keeper}
			all = append(all, l)
			r.nn.leases[uint64(id)] = &pb.LeaseAlive{Id: uint64(id), TtlMs: 60_000}
		}
		alive, err := r.exchange(t.Context(), all)
		if err != nil || len(alive) != batch+1 || len(r.nn.asked) != 2 || len(r.nn.asked[1]) != 1 {
			t.Errorf("%v, %d alive, %d messages", err, len(alive), len(r.nn.asked))
		}
	})
}

// The limit is a twentieth before the end, at most a second; a renewal moves the stamp
// and the time together.
func TestLimit(t *testing.T) {
	l := &Lease{ttl: 40 * time.Second, k: &Keeper{cfg: Config{Clock: new(clock.Fake)}}}
	l.ctx = t.Context()
	for _, c := range []struct{ lives, want time.Duration }{
		{10 * time.Second, 9500 * time.Millisecond}, {40 * time.Second, 39 * time.Second}, {time.Hour, 39 * time.Second},
	} {
		if l.alive(clock.Reading{Boot: 0, Wall: 1}, c.lives); l.limit() != c.want {
			t.Errorf("of %s: %s, want %s", c.lives, l.limit(), c.want)
		}
	}
	if ID(0xab).String() != "ab" {
		t.Error(ID(0xab))
	}
}
