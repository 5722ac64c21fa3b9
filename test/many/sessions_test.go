package many

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/frames"
)

func statOf(who *pb.Caller, path string) *pb.StatRequest {
	return &pb.StatRequest{Caller: who, At: pb.At(path)}
}

// crowd is sessions that live until the benchmark ends.
type crowd struct {
	t       testing.TB
	at      []string // the namenodes' addresses
	all     []*session
	back    atomic.Int64 // sessions whose renewal was answered since the last reset
	lost    atomic.Int64 // files that are not theirs any more
	terms   atomic.Int64 // terms of caches that were given
	held    atomic.Int64 // answers that may be kept
	revoked atomic.Int64 // times that some were revoked
	dials   atomic.Int64
	wg      sync.WaitGroup
	stop    context.CancelFunc
}

// session is one client: a connection, the stream of its session, and a file open for write.
type session struct {
	*crowd
	from  string
	who   *pb.Caller
	cache bool
	open  []*pb.OpenRef

	dialed int // how often it has connected

	mu     sync.Mutex
	c      *frames.Client
	stream uint32
	seq    uint64
	renew  *time.Timer
}

// perAddress is how many sessions come from one address.
const perAddress = 50

// newCrowd connects sessions, each on its own connection and with its own file open, to n, and to
// one of the others when it is gone.
func newCrowd(t testing.TB, n *namenode, sessions int, cache bool, others ...*namenode) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the cleanup ends it
	c := &crowd{t: t, at: []string{n.listen}, stop: cancel, all: make([]*session, sessions)}
	for _, o := range others {
		c.at = append(c.at, o.listen)
	}
	t.Cleanup(func() {
		cancel()
		for _, s := range c.all {
			s.drop()
		}
		c.wg.Wait()
	})
	maker := env.RawAt(t, n.listen, "maker")
	if _, err := maker.NN.Mkdir(ctx, &pb.MkdirRequest{Call: maker.Call(), Caller: maker.Who, At: pb.At("/many")}); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	g.SetLimit(32)
	for i := range c.all {
		s := &session{crowd: c, from: fmt.Sprintf("127.200.%d.%d", i/perAddress/250, 1+i/perAddress%250), cache: cache,
			who: &pb.Caller{User: "root", Client: fmt.Sprint("client", i), Session: pb.NewSession("root"), Host: "h", Pid: 1}}
		c.all[i] = s
		g.Go(func() error {
			resp, err := maker.NN.Create(ctx, &pb.CreateRequest{Call: &pb.CallId{Session: s.who.Session, Seq: 1}, Caller: s.who, At: pb.At(fmt.Sprintf("/many/f%d", i))})
			if err != nil {
				return err
			}
			s.open = []*pb.OpenRef{{Inode: resp.GetWriter().GetInode(), Epoch: resp.GetWriter().GetEpoch()}}
			c.wg.Add(1)
			go s.run(ctx)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// await waits until all are back.
func (c *crowd) await() {
	c.t.Helper()
	env.Eventually(c.t, "all sessions are back", func() bool { return c.back.Load() >= int64(len(c.all)) })
}

// run connects again and again, as the library does.
func (s *session) run(ctx context.Context) {
	defer s.wg.Done()
	for wait := 20 * time.Millisecond; ctx.Err() == nil; wait = min(wait*8/5, time.Second) {
		if s.serve(ctx) {
			wait = 20 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait*7/10 + rand.N(wait*6/10)): //nolint:gosec // jitter is no secret
		}
	}
}

// drop ends the connection.
func (s *session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		_ = s.c.Close()
	}
	if s.renew != nil {
		s.renew.Stop()
	}
}

// serve opens the session's stream and follows it until it breaks.
func (s *session) serve(ctx context.Context) (welcomed bool) {
	s.dials.Add(1)
	c, err := frames.Connect(ctx, s.at[s.dialed%len(s.at)], s.from)
	s.dialed++
	if err != nil {
		return false
	}
	defer s.drop()
	s.mu.Lock()
	s.c = c
	s.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	hello := &pb.Hello{Caller: s.who, Cache: s.cache, Stream: uint64(time.Now().UnixNano())} //nolint:gosec // positive
	if s.stream, err = c.Open(pb.Namenode_Session_FullMethodName, &pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: hello}}); err != nil {
		return false
	}
	for first := true; ; {
		from, b, err := c.Next()
		if err == nil && from != s.stream {
			if err := s.answer(b); err != nil {
				s.t.Error(err)
			}
			continue
		}
		if from != s.stream && errors.Is(err, frames.ErrEnded) {
			continue // a call
		}
		if err != nil {
			return welcomed
		}
		m := new(pb.SessionResponse)
		if err := proto.Unmarshal(b, m); err != nil {
			s.t.Error(err)
			return false
		}
		switch {
		case m.GetWelcome() != nil:
			welcomed = true
			s.sendRenewal(true)
			s.renewCache()
		case m.GetRenewed() != nil:
			r := m.GetRenewed()
			s.lost.Add(int64(len(r.GetLost()) + len(r.GetUnknown())))
			if first {
				s.back.Add(1)
				first = false
			}
			every := time.Duration(r.GetNextRenewalMs()) * time.Millisecond
			s.mu.Lock()
			if s.renew != nil {
				s.renew.Stop()
			}
			s.renew = time.AfterFunc(every-rand.N(every*15/100+1), func() { s.sendRenewal(false) }) //nolint:gosec // as above
			s.mu.Unlock()
		case m.GetCacheTerm().GetTermMs() > 0:
			s.terms.Add(1)
		case m.GetCacheRevocation() != nil:
			s.send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: &pb.CacheAck{Seq: m.GetCacheRevocation().GetSeq()}}})
			s.revoked.Add(1)
		}
	}
}

// renewCache asks for another term in which it may answer from what it keeps.
func (s *session) renewCache() {
	if s.cache {
		s.send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: 1}}})
	}
}

// stat asks for what it would like to keep.
func (s *session) stat(path string) error {
	r := statOf(s.who, path)
	r.Cache = true
	stream, err := s.c.Open(pb.Namenode_Stat_FullMethodName, r)
	if err == nil {
		err = s.c.Send(stream, nil)
	}
	return err
}

// answer is that of a stat.
func (s *session) answer(b []byte) error {
	m := new(pb.StatResponse)
	err := proto.Unmarshal(b, m)
	if len(m.GetKeys()) > 0 {
		s.held.Add(1)
	}
	return err
}

func (s *session) sendRenewal(set bool) {
	s.mu.Lock()
	s.seq++
	r := &pb.RenewLeaseRequest{Session: s.who.GetSession(), Version: 1, Seq: s.seq, Caller: s.who}
	s.mu.Unlock()
	if set {
		r.HasSet, r.Open = true, s.open
	}
	s.send(&pb.SessionRequest{Kind: &pb.SessionRequest_Renew{Renew: r}})
}

func (s *session) send(m *pb.SessionRequest) {
	s.mu.Lock()
	c := s.c
	s.mu.Unlock()
	_ = c.Send(s.stream, m) // who follows the stream finds out
}

// BenchmarkSessions is so many sessions, each with a connection and a file open for write:
// what they take of the namenode, idle and when all come back after a kill.
func BenchmarkSessions(b *testing.B) {
	for _, sessions := range []int{200, 2000, 9000} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			if most := openFiles(b) * 15 / 32; sessions > most {
				b.Skipf("the limit of open files leaves room for %d sessions", most)
			}
			n := startNamenode(b)
			empty := n.size()
			c := newCrowd(b, n, sessions, false)
			c.await()
			full := n.size()
			n.profile("heap", "heap")
			n.profile("goroutines", "goroutine?debug=1")
			per := float64(sessions)
			b.ReportMetric((full.heap-empty.heap)/per, "heap-B/session")
			b.ReportMetric((full.stacks-empty.stacks)/per, "stack-B/session")
			b.ReportMetric((full.resident-empty.resident)/per, "resident-B/session")
			b.ReportMetric((full.goroutines-empty.goroutines)/per, "goroutines/session")

			wait := n.profileCPU("idle", 20)
			before := n.cpu()
			time.Sleep(20 * time.Second) //nolint:forbidigo // what is measured is this while
			wait()
			b.ReportMetric((n.cpu()-before).Seconds()/20*100, "idle-%-of-a-core")

			n.kill()
			c.back.Store(0)
			c.dials.Store(0)
			killed := time.Now()
			n.start()
			ready := time.Now()
			wait = n.profileCPU("back", 3)
			stop := n.bystander()
			c.await()
			b.ReportMetric(ready.Sub(killed).Seconds(), "s-to-start")
			b.ReportMetric(time.Since(ready).Seconds(), "s-to-all-back")
			b.ReportMetric(n.cpu().Seconds(), "cpu-s-to-all-back")
			b.ReportMetric(float64(c.dials.Load())/per, "dials/session")
			report(b, stop(), "bystander")
			b.ReportMetric(float64(c.lost.Load()), "lost")
			b.ReportMetric(0, "ns/op")
			wait()
		})
	}
}

// BenchmarkKept is a change of what so many sessions have read and keep: each is told, and
// acknowledges, before the change is made.
func BenchmarkKept(b *testing.B) {
	for _, sessions := range []int{200, 2000, 9000} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			if most := openFiles(b) * 15 / 32; sessions > most {
				b.Skipf("the limit of open files leaves room for %d sessions", most)
			}
			n := startNamenode(b)
			c := newCrowd(b, n, sessions, true)
			c.await()
			maker := env.RawAt(b, n.listen, "changer")
			if _, err := maker.NN.Mkdir(b.Context(), &pb.MkdirRequest{Call: maker.Call(), Caller: maker.Who, At: pb.At("/kept")}); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			var cpu time.Duration
			stop := func() []time.Duration { return nil }
			const rounds = 5
			for round := range rounds {
				c.terms.Store(0)
				c.held.Store(0)
				for _, s := range c.all {
					s.renewCache()
				}
				env.Eventually(b, "all may keep what they read", func() bool { return c.terms.Load() == int64(sessions) })
				for _, s := range c.all {
					if err := s.stat("/kept"); err != nil {
						b.Fatal(err)
					}
				}
				env.Eventually(b, "all keep it", func() bool { return c.held.Load() == int64(sessions) })
				if round == 0 {
					stop = n.bystander()
				}
				c.revoked.Store(0)
				before, began := n.cpu(), time.Now()
				if _, err := maker.NN.SetAttr(b.Context(), &pb.SetAttrRequest{Call: maker.Call(), Caller: maker.Who, At: pb.At("/kept"), SetMode: true, Mode: 0o700 + uint32(round)}); err != nil { //nolint:gosec // small
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				cpu += n.cpu() - before
				if got := c.revoked.Load(); got != int64(sessions) {
					b.Errorf("%d of %d sessions were told", got, sessions)
				}
			}
			report(b, stop(), "bystander")
			report(b, took, "change")
			b.ReportMetric(cpu.Seconds()*1e6/rounds/float64(sessions), "cpu-us/session")
			b.ReportMetric(0, "ns/op")
		})
	}
}
