package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// How long sessions last. ZooKeeper grants from 1 s to a minute with a tickTime of
// 500 ms.
const (
	// calmSession is of tests in which no session is to end: nothing of theirs
	// waits for it, and a machine that is busy for some seconds ends none.
	calmSession = 10 * time.Second
	// lossSession is of tests in which one ends, and no other: a machine that is busy
	// for some seconds ends none.
	lossSession = 6 * time.Second
)

func session(d time.Duration) func(*namenode.Config) {
	return func(c *namenode.Config) { c.HA.SessionTimeout = d }
}

// pair is namenodes of one namespace in this process, over one ZooKeeper server,
// each with a way of its own to it.
type pair struct {
	t      *testing.T
	blocks string
	zk     *env.ZooKeeper
}

func newPair(t *testing.T) *pair {
	t.Helper()
	return &pair{t: t, blocks: t.TempDir(), zk: env.LendZooKeeper(t)}
}

// config is that of one more namenode.
func (p *pair) config(mods ...func(*namenode.Config)) (namenode.Config, *zkproxy.Proxy) {
	p.t.Helper()
	way, err := zkproxy.New(p.zk.Server(0).Addr())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = way.Close() })
	cfg := namenode.Config{
		Data: p.t.TempDir(), Listen: p.port(), HTTP: p.port(), OpenPort: env.OpenPort, Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Limits: namenode.Limits{Reserve: 1 << 20}, Blocks: "file://" + p.blocks, Upkeep: namenode.Upkeep{CheckpointEvery: time.Hour, DeleteAfter: time.Nanosecond},
		HA: &namenode.HA{ZooKeeper: []string{way.Addr()}, Name: "pair", SessionTimeout: calmSession}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	return cfg, way
}

// ports are those of this process's own address that were given out.
var ports sync.Map

// port is one that a namenode finds free again when it restarts: of an address
// that only this process uses, and not given out before.
func (p *pair) port() string {
	p.t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.1:0", 200+os.Getpid()%50, os.Getpid()/50%250))
		if err != nil {
			p.t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if _, again := ports.LoadOrStore(l.Addr().String(), true); !again {
			return l.Addr().String()
		}
	}
}

// format makes the namespace, if it is missing, past the namenode's own way.
func (p *pair) format(cfg namenode.Config) {
	p.t.Helper()
	ha := *cfg.HA
	ha.ZooKeeper, ha.SessionTimeout = p.zk.Addrs(), calmSession
	cfg.HA = &ha
	env.Format(p.t, cfg)
}

// start starts a namenode of a namespace that is made if it is missing.
func (p *pair) start(cfg namenode.Config) *namenode.Server {
	p.t.Helper()
	p.format(cfg)
	s, err := namenode.Start(p.t.Context(), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// again restarts a namenode that ended by itself, as its process does.
func (p *pair) again(s *namenode.Server, cfg namenode.Config) *namenode.Server {
	p.t.Helper()
	if err := s.Err(); !reign.Restartable(err) {
		p.t.Fatalf("a namenode ended with %v", err)
	}
	if err := s.Close(); err != nil {
		p.t.Error(err)
	}
	return p.start(cfg)
}

// active starts a namenode and waits until it is. The machine may be so busy that
// its session ends before.
func (p *pair) active(cfg namenode.Config) *namenode.Server {
	p.t.Helper()
	s := p.start(cfg)
	p.eventually("a namenode is active", func() bool {
		select {
		case <-s.Done():
			s = p.again(s, cfg)
		default:
		}
		return s.Role() == "active"
	})
	return s
}

// lose cuts a namenode from ZooKeeper, and ends its sessions there. It does not
// learn of that.
func (p *pair) lose(way *zkproxy.Proxy) {
	p.t.Helper()
	way.Down()
	if err := way.ExpireAll(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) becomes(s *namenode.Server, role string) {
	p.t.Helper()
	p.eventually("a namenode is "+role, func() bool { return s.Role() == role })
}

// handedOver waits until the reign of one has ended so that it can be started
// again, and the other is active; and closes both.
func (p *pair) handedOver(a, b *namenode.Server) {
	p.t.Helper()
	p.eventually("the reign has ended", func() bool { return a.Err() != nil })
	if err := a.Err(); !reign.Restartable(err) {
		p.t.Errorf("the reign ended with %v", err)
	}
	if err := a.Close(); err != nil {
		p.t.Error(err)
	}
	p.becomes(b, "active")
	if err := b.Close(); err != nil {
		p.t.Error(err)
	}
}

func (p *pair) eventually(what string, ok func() bool) {
	p.t.Helper()
	env.Eventually(p.t, what, ok)
}

func (p *pair) client(addrs ...string) *client.FS {
	p.t.Helper()
	f, err := client.New(p.t.Context(), client.Config{Namenodes: addrs, User: "root", BlockSize: 64 << 10})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = f.Close() })
	return f
}

// A hand-over ends the reign with an error after which the namenode is started
// again, whatever is being done at that moment, by clients or by itself; and
// nothing that was acknowledged is lost.
func TestHandOverUnderLoad(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	busy := func(c *namenode.Config) {
		c.AgesEvery, c.SealAfter, c.CollectEvery = size.Of(5*time.Millisecond, time.Millisecond), time.Millisecond, 5*time.Millisecond
	}
	var cfgs [2]namenode.Config
	var all [2]*namenode.Server
	for i := range cfgs {
		cfgs[i], _ = p.config(busy)
		all[i] = p.start(cfgs[i])
	}
	f := p.client(cfgs[0].Listen, cfgs[1].Listen)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var made [4]int
	for w := range made {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := f.WriteFile(t.Context(), fmt.Sprintf("/%d-%d", w, made[w]), make([]byte, 70<<10)); err != nil {
					t.Error(err)
					return
				}
				made[w]++
			}
		})
	}
	for round := range size.Of(6, 12) {
		var at int
		p.eventually("one is active and the other a standby", func() bool {
			for i, s := range all {
				select {
				case <-s.Done():
					all[i] = p.again(s, cfgs[i])
				default:
				}
			}
			for i := range all {
				if all[i].Role() == "active" && all[1-i].Role() == "standby" {
					at = i
					return true
				}
			}
			return false
		})
		s := all[at]
		if round%3 == 2 {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		} else {
			if _, err := f.Admin().Failover(t.Context()); err != nil {
				t.Errorf("failover: %v", err)
			}
			<-s.Done()
			if err := s.Err(); !reign.Restartable(err) {
				t.Errorf("the reign ended with %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		all[at] = p.start(cfgs[at])
	}
	stop()
	wg.Wait()
	for w, n := range made {
		for i := range n {
			if st, err := f.Stat(t.Context(), fmt.Sprintf("/%d-%d", w, i)); err != nil || st.Length != 70<<10 {
				t.Errorf("/%d-%d: %v, %v", w, i, st, err)
			}
		}
	}
	for _, s := range all {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What a namenode does by itself between the end of its reign and its leaving
// the election is no failure of the journal.
func TestOwnWorkAfterAHandOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, way := p.config(func(c *namenode.Config) { c.MinLeaseTTL = 100 * time.Millisecond })
	bcfg, _ := p.config()
	a := p.start(cfg)
	p.becomes(a, "active")
	b := p.start(bcfg)
	f := p.client(cfg.Listen, bcfg.Listen)
	for i := range 200 { // some end at any moment
		if _, err := f.Leases().Grant(t.Context(), time.Duration(100+20*i)*time.Millisecond, client.LeaseID(i+1)); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
	}
	p.eventually("the first ones have ended", func() bool {
		_, err := f.Leases().TimeToLive(t.Context(), 1, false)
		return errors.Is(err, fserror.NotFound)
	})
	const closeSession = -11
	way.Decide(func(op int32, _ []byte) zkproxy.Action {
		if op == closeSession {
			hold := time.NewTimer(400 * time.Millisecond)
			<-hold.C
		}
		return zkproxy.Forward
	})
	if _, err := f.Admin().Failover(t.Context()); err != nil {
		t.Error(err)
	}
	p.handedOver(a, b)
}

// Grants and keep-alives that a standby refuses reach the active namenode, each once; and
// whoever asks for a lease that lives shorter than a failover takes is told.
func TestGrantsThroughAStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	short := func(c *namenode.Config) { c.MinLeaseTTL = time.Second }
	acfg, _ := p.config(short)
	bcfg, _ := p.config(short)
	a := p.active(acfg)
	b := p.start(bcfg)
	p.becomes(b, "standby")
	outlives := 3 * acfg.HA.SessionTimeout
	for id, ttl := range map[client.LeaseID]time.Duration{1: outlives - time.Millisecond, 2: outlives} {
		f := p.client(bcfg.Listen, acfg.Listen) // a new one asks the standby first
		g, err := f.Leases().Grant(t.Context(), ttl, id)
		if err != nil || g.ID != id || g.TTL != ttl || g.Outlives != (ttl >= outlives) {
			t.Errorf("a lease of %s: %+v, %v", ttl, g, err)
		}
		f = p.client(bcfg.Listen, acfg.Listen)
		kept, err := f.Leases().KeepAlive(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if kept.Remaining() <= 0 {
			t.Errorf("%s remain", kept.Remaining())
		}
		kept.Stop()
		var all []string
		for l, err := range f.Leases().List(t.Context(), client.LeaseFilter{Lease: id.String()}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l.ID)
		}
		if len(all) != 1 {
			t.Errorf("granted %d times: %v", len(all), all)
		}
	}
	for ttl, want := range map[time.Duration]bool{outlives - time.Second: false, outlives: true} {
		f, err := client.New(t.Context(), client.Config{Namenodes: []string{bcfg.Listen, acfg.Listen}, User: "root", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		l, err := f.Lock(t.Context(), "/lock-"+ttl.String(), client.LockOptions{})
		if err != nil || l.Outlives() != want {
			t.Fatalf("a lock of %s: %v, %v", ttl, l.Outlives(), err)
		}
		if err := errors.Join(l.Unlock(t.Context()), f.Close()); err != nil {
			t.Error(err)
		}
	}
	if !a.Reigned() || b.Reigned() {
		t.Error("the standby became active meanwhile")
	}
}

// While ZooKeeper is away a namenode that starts says that it is starting, sends
// clients on, and ends when it is told to.
func TestStartWithoutZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, way := p.config()
	way.Down()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		s, err := namenode.Start(ctx, cfg)
		if err == nil {
			_ = s.Close()
		}
		ended <- err
	}()
	r := env.RawAt(t, cfg.Listen, "a")
	st, err := r.Admin.Status(t.Context(), &pb.StatusRequest{Caller: r.Who})
	if err != nil || st.GetRole() != "starting" {
		t.Errorf("status: %v, %v", st, err)
	}
	for what, call := range map[string]func() error{
		"stat": func() error {
			_, err := r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At("/")})
			return err
		},
		"renew":  func() error { _, err := r.NN.RenewLease(t.Context(), &pb.RenewLeaseRequest{Caller: r.Who}); return err },
		"create": func() error { _, err := r.NN.Create(t.Context(), &pb.CreateRequest{}); return err },
		"session": func() error {
			s, err := r.NN.Session(t.Context())
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	} {
		if err := call(); err == nil || what != "session" && !errors.Is(err, fserror.NotActive) {
			t.Errorf("%s: %v", what, err)
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("started without ZooKeeper")
	}
}

// A namenode that has lost sight of ZooKeeper says so, answers nothing, collects
// nothing, and ends its reign after a while so as to restart, also when
// nobody wants to write.
func TestIsolated(t *testing.T) {
	t.Parallel()
	const urls = 15 * time.Second // longer than until it is isolated, and shorter than until its reign ends
	p := newPair(t)
	cfg, way := p.config(session(lossSession), func(c *namenode.Config) { c.URLLife, c.CollectEvery = urls, 10*time.Millisecond })
	a := p.active(cfg)
	f := p.client(cfg.Listen)
	if err := f.WriteFile(t.Context(), "/f", make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	blocks := func() (n int) {
		_ = filepath.WalkDir(p.blocks, func(path string, _ fs.DirEntry, _ error) error {
			if strings.HasSuffix(path, ".blk") {
				n++
			}
			return nil
		})
		return n
	}
	had := blocks()
	if had == 0 {
		t.Fatal("the file has no block")
	}
	r := env.RawAt(t, cfg.Listen, "a")
	began := time.Now()                                 // before the last write
	if err := f.Remove(t.Context(), "/f"); err != nil { // garbage, as soon as its URLs are over
		t.Fatal(err)
	}
	way.Down()
	p.becomes(a, "isolated")
	_, err := r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At("/")})
	if !errors.Is(err, fserror.NotActive) {
		t.Errorf("stat: %v", err)
	}
	<-a.Done()
	if err := a.Err(); !reign.Restartable(err) {
		t.Errorf("the reign ended with %v", err)
	}
	if passed := time.Since(began); passed < 4*lossSession {
		t.Errorf("it ended after %s already", passed)
	}
	if got := blocks(); got != had {
		t.Errorf("%d of %d blocks are left", got, had)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	way.Up()
	a = p.start(cfg)
	p.becomes(a, "active")
	p.eventually("the garbage is collected", func() bool { return blocks() == 0 })
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// holdImage is a disk on which an image gets its name only when it is let.
type holdImage struct {
	vfs.FS
	reached, release chan struct{}
	once             *sync.Once
}

func (h holdImage) Rename(from, to string) error {
	if strings.HasSuffix(to, ".img") {
		h.once.Do(func() { close(h.reached); <-h.release })
	}
	return h.FS.Rename(from, to)
}

// A deposed namenode that had an image ready publishes nothing and removes
// nothing.
func TestDeposedWithAnImage(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	hold := holdImage{vfs.OS(), make(chan struct{}), make(chan struct{}), new(sync.Once)}
	cfg, way := p.config(session(lossSession), func(c *namenode.Config) { c.FS = hold })
	a := p.start(cfg)
	p.becomes(a, "active")
	// It writes no record by itself: none of the ages of leases, all of which it
	// hears of.
	bcfg, _ := p.config(session(lossSession), func(c *namenode.Config) { c.AgesEvery = time.Hour })
	b := p.start(bcfg)
	ra := env.RawAt(t, cfg.Listen, "a")
	ra.Create("/a")
	said := make(chan error, 1)
	go func() {
		_, err := ra.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: ra.Who})
		said <- err
	}()
	<-hold.reached
	p.lose(way)
	p.becomes(b, "active")
	rb := ra.At(bcfg.Listen)
	var published []uint64
	for i := range 3 {
		rb.Create(fmt.Sprint("/b", i))
		var out *pb.CheckpointResponse
		var err error
		p.eventually("a machine that stalls knows that it is active", func() bool {
			out, err = rb.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: rb.Who})
			return !errors.Is(err, fserror.NotActive)
		})
		if err != nil {
			t.Fatal(err)
		}
		published = append(published, out.GetTxid())
	}
	images := func() (names []string) {
		_ = filepath.WalkDir(p.blocks, func(path string, _ fs.DirEntry, _ error) error {
			if base := filepath.Base(path); strings.HasPrefix(base, "image-") {
				names = append(names, base)
			}
			return nil
		})
		return names
	}
	before := rb.TxID()
	way.Up()
	close(hold.release)
	if err := <-said; err == nil {
		t.Error("the deposed namenode has published an image")
	}
	<-a.Done()
	if err := a.Err(); !reign.Restartable(err) {
		t.Errorf("it ended with %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range published[1:] {
		found := false
		for _, name := range images() {
			found = found || strings.Contains(name, fmt.Sprintf("%020d", want))
		}
		if !found {
			t.Errorf("the image of %d is gone: %v", want, images())
		}
	}
	if st, err := rb.Admin.Status(t.Context(), &pb.StatusRequest{Caller: rb.Who}); err != nil || st.GetImageTxid() != published[2] || rb.TxID() != before {
		t.Errorf("status: %v, %v", st, err)
	}
	// What it left is no trap for those who start.
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	ccfg, _ := p.config()
	c := p.start(ccfg)
	p.becomes(c, "active")
	rc := env.RawAt(t, ccfg.Listen, "c")
	for _, path := range []string{"/a", "/b0", "/b1", "/b2"} {
		rc.File(path)
	}
	if _, err := rc.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: rc.Who}); err != nil {
		t.Fatal(err)
	}
	if got := images(); len(got) != 2 {
		t.Errorf("images: %v", got)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A namenode that is stopped while it still waits for its predecessor, which
// may answer for an hour, does not spare its successor that wait.
func TestCloseWhileThePredecessorMayAnswer(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	a := p.start(cfg)
	p.becomes(a, "active")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	begin := func(lease time.Duration) zk.Handover {
		t.Helper()
		j, err := zk.Open(t.Context(), zk.Config{
			ZooKeeper: zkconn.Config{Servers: p.zk.Addrs(), SessionTimeout: calmSession, Logger: cfg.Logger},
			Path:      "/leasefs/pair/journal", Lease: lease, Logger: cfg.Logger,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		if _, err := j.Replay(t.Context(), 1, func(journal.Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		last, err := j.Term(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := j.TakeOver(t.Context(), last.Term+1, func(journal.Record) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := begin(time.Hour); !h.Released {
		t.Fatalf("hand-over %+v of a namenode that ended", h)
	}
	waits := make(chan struct{})
	logged("waiting until the predecessor answers nothing any more", func() { close(waits) })(&cfg)
	b := p.start(cfg)
	<-waits
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if h := begin(time.Second); h.Released || h.Lease != time.Hour || h.PrevTerm != 3 {
		t.Fatalf("hand-over %+v of a namenode that still waited for another", h)
	}
}

// A namenode that is stopped in the middle of taking over ends, and the next
// one begins.
func TestCloseWhileTakingOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	short := session(time.Second) // some rounds wait until the one before has surely ended
	acfg, _ := p.config(short)
	bcfg, _ := p.config(short)
	for i := range 12 {
		a := p.active(acfg)
		b := p.start(bcfg)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		rest := time.NewTimer(time.Duration(i) * 8 * time.Millisecond)
		<-rest.C
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
