package experiments

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/sim/s3model"
	"github.com/leasefs/leasefs/test/sim/simnet"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

// oneWay is how long a message is on its way in a fleet.
const oneWay = time.Millisecond

// fleet is namenodes and clients in a bubble. Of one namenode it has no ZooKeeper.
type fleet struct {
	t       testing.TB
	cfg     fleetConfig
	net     *simnet.Network
	zk      *zkmodel.Ensemble
	nodes   []*node
	clients []*machine
	blocks  string
	running sync.WaitGroup
	ends    []func()
}

// fleetConfig says what a fleet is. Zero values are the product's defaults.
type fleetConfig struct {
	namenodes int // 0: 1
	session   time.Duration
	times     namenode.LeaseTimes
}

// machine is where a client runs.
type machine struct {
	name  string
	host  *simnet.Host
	clock *machineClock
	fs    *client.FS
	count counter
}

// node is a machine with a namenode that can be killed and started.
type node struct {
	f      *fleet
	name   string
	host   *simnet.Host
	disk   *crashfs.FS
	server *namenode.Server // nil: it does not run
	cancel context.CancelFunc
}

func newFleet(t testing.TB, cfg fleetConfig) *fleet {
	t.Helper()
	cfg.namenodes = max(cfg.namenodes, 1)
	f := &fleet{t: t, cfg: cfg, net: simnet.New()}
	if cfg.namenodes > 1 {
		f.serveZooKeeper()
		f.serveStore()
	}
	for i := range cfg.namenodes {
		name := fmt.Sprintf("nn%d", i)
		f.nodes = append(f.nodes, &node{f: f, name: name, host: f.net.Host(name), disk: crashfs.New(1)})
	}
	if cfg.namenodes > 1 {
		how, err := f.nodes[0].config().Offline()
		if err == nil {
			_, err = offline.Format(t.Context(), how)
		}
		must(t, err)
	}
	for _, n := range f.nodes {
		n.start()
	}
	f.waitActive()
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) listen(host, port string) net.Listener {
	l, err := f.net.Host(host).Listen("tcp", port)
	must(f.t, err)
	f.ends = append(f.ends, func() { _ = l.Close(); f.net.Host(host).Crash() })
	return l
}

func (f *fleet) serveZooKeeper() {
	f.zk = zkmodel.New(zkmodel.Config{Servers: 1, Seed: 1, Tick: min(500*time.Millisecond, f.cfg.session/2)})
	l := f.listen("zk", ":2181")
	f.running.Go(func() { _ = f.zk.Server(0).Serve(l) }) // until it is closed
	f.ends = append(f.ends, f.zk.Close)
}

func (f *fleet) serveStore() {
	f.t.Setenv("AWS_ACCESS_KEY_ID", "sim")
	f.t.Setenv("AWS_SECRET_ACCESS_KEY", "sim")
	store := s3model.New(s3model.Config{Bucket: "blocks", Region: "here", AccessKey: "sim", SecretKey: "sim", Seed: 1})
	srv := &http.Server{Handler: store, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}
	l := f.listen("s3", ":9000")
	f.running.Go(func() { _ = srv.Serve(l) }) // until it is closed
	f.ends = append(f.ends, func() { _ = srv.Close() })
	f.blocks = "s3://blocks/x?region=here&endpoint=http://s3:9000"
}

func (n *node) config() namenode.Config {
	f := n.f
	cfg := namenode.Config{
		Data: "/data", Listen: ":8020", HTTP: ":8021", OpenPort: n.host.Listen,
		Advertise: n.name + ":8020", AdvertiseHTTP: n.name + ":8021",
		Blocks: f.blocks, StoreTransport: &http.Transport{DialContext: n.host.DialContext, IdleConnTimeout: 10 * time.Second},
		FS: n.disk, Clock: newMachineClock(1), LeaseTimes: f.cfg.times,
		Limits:   namenode.Limits{Reserve: 1, MemoryLimit: 1 << 50},
		Identity: identity.Config{TrustClients: true}, Superuser: "root", Supergroup: "root", Groups: func(string) []string { return nil },
		Logger: slog.New(slog.DiscardHandler),
	}
	if f.cfg.namenodes > 1 {
		cfg.HA = &namenode.HA{ZooKeeper: []string{"zk:2181"}, Name: "x", SessionTimeout: f.cfg.session, Dial: n.host.DialContext}
	}
	return cfg
}

// start starts the namenode; of several, behind.
func (n *node) start() {
	n.host.Restart()
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.f.t.Context()))
	s, err := namenode.Start(ctx, n.config())
	must(n.f.t, err)
	n.server, n.cancel = s, cancel
}

// kill ends the process as kill -9 does: its connections are reset.
func (n *node) kill() {
	for _, m := range n.f.clients {
		n.f.net.Reset(m.name, n.name)
	}
	n.crash()
}

// crash ends the machine: nothing that it says from now on arrives anywhere, and nobody
// is told.
func (n *node) crash() {
	n.disk = n.disk.Crash(crashfs.Kill)
	n.host.Crash()
	s := n.server
	n.server = nil
	n.cancel()
	n.f.running.Go(func() { _ = s.Close() }) // it was killed
}

func (f *fleet) active() *node {
	for _, n := range f.nodes {
		if n.server != nil && n.server.Role() == "active" {
			return n
		}
	}
	return nil
}

func (f *fleet) waitActive() *node {
	for began := time.Now(); time.Since(began) < 10*time.Minute; <-time.After(5 * time.Millisecond) {
		if n := f.active(); n != nil {
			return n
		}
	}
	f.t.Fatal("nobody is active")
	return nil
}

// client connects a client on a machine of its own.
func (f *fleet) client(name string, mods ...func(*machine, *client.Config)) *machine {
	f.t.Helper()
	m := &machine{name: name, host: f.net.Host(name), clock: newMachineClock(1)}
	var addrs []string
	for _, n := range f.nodes {
		addrs = append(addrs, n.name+":8020")
		f.net.Line(name, n.name).SetDelay(oneWay)
		f.net.Line(n.name, name).SetDelay(oneWay)
	}
	cfg := client.Config{
		Namenodes: addrs, User: "root", Client: name, Host: name, PID: 1, Clock: m.clock, Timeout: 2 * time.Minute,
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: m.host.DialContext, IdleConnTimeout: 10 * time.Second}},
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return m.host.DialContext(ctx, "tcp", addr)
			}),
			grpc.WithStatsHandler(&m.count),
		},
	}
	for _, mod := range mods {
		mod(m, &cfg)
	}
	var err error
	m.fs, err = client.New(f.t.Context(), cfg)
	must(f.t, err)
	f.clients = append(f.clients, m)
	return m
}

// caching keeps what the client reads.
func caching(_ *machine, c *client.Config) { c.Cache = true }

// silence cuts the client from all namenodes, until heal is called.
func (f *fleet) silence(m *machine) (heal func()) {
	m.host.Pause()
	return m.host.Resume
}

// end ends all of the fleet, which takes some simulated time.
func (f *fleet) end() {
	for _, m := range f.clients {
		f.running.Go(func() { _ = m.fs.Close() }) // those that are silent, too
	}
	<-time.After(5 * time.Second)
	for _, m := range f.clients {
		m.host.Resume()
	}
	for _, n := range f.nodes {
		if n.server != nil {
			n.kill()
		}
	}
	for _, end := range f.ends {
		end()
	}
	for _, m := range f.clients {
		m.host.Crash()
	}
	f.running.Wait()
	<-time.After(3 * time.Minute) // for what ends by itself
}

// machineClock is the bubble's time at a rate of its own, as a machine sees it that
// stands still now and then.
type machineClock struct {
	began time.Time
	mu    sync.Mutex
	rate  float64
	still time.Time // since when it stands still; zero: it does not
}

func newMachineClock(rate float64) *machineClock { return &machineClock{began: time.Now(), rate: rate} }

func (c *machineClock) stop()   { c.mu.Lock(); c.still = time.Now(); c.mu.Unlock() }
func (c *machineClock) resume() { c.mu.Lock(); c.still = time.Time{}; c.mu.Unlock() }

// Mono implements clock.Clock.
func (c *machineClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.still.IsZero() {
		now = c.still
	}
	return time.Duration(float64(now.Sub(c.began)) * c.rate)
}

// Boot implements clock.Clock.
func (c *machineClock) Boot() time.Duration { return c.Mono() }

// Wall implements clock.Clock.
func (c *machineClock) Wall() time.Time { return c.began.Add(c.Mono()) }

// counter counts messages of gRPC, both ways.
type counter struct {
	mu        sync.Mutex
	out, back int
}

func (c *counter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out + c.back
}

// TagRPC implements stats.Handler.
func (c *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (c *counter) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC implements stats.Handler.
func (c *counter) HandleRPC(_ context.Context, s stats.RPCStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.(type) {
	case *stats.OutPayload:
		c.out++
	case *stats.InPayload:
		c.back++
	}
}
