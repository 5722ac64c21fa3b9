package sim

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/sim/simnet"
)

// Node is a machine with a namenode that is started again when it ends.
type Node struct {
	w     *World
	name  string
	host  *simnet.Host
	clock *Clock

	mu     sync.Mutex
	disk   *crashfs.FS
	down   bool // it is not to be started again for now
	over   bool // or ever
	change chan struct{}
	live   *life // nil between two
}

// life is one run of the namenode.
type life struct {
	disks  *disks
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it runs
	stop   chan struct{} // closed to end it in order
	server atomic.Pointer[namenode.Server]
	once   sync.Once
}

func newNode(w *World, i int) *Node {
	name := "nn" + string(rune('0'+i))
	return &Node{w: w, name: name, host: w.net.Host(name), clock: newClock(), disk: crashfs.New(w.cfg.Seed + uint64(i)), change: make(chan struct{})} //nolint:gosec // small
}

// changed wakes run. The lock is held.
func (n *Node) changed() {
	close(n.change)
	n.change = make(chan struct{})
}

// run keeps a namenode running, as a service manager does.
func (n *Node) run() {
	for {
		n.mu.Lock()
		if n.over {
			n.mu.Unlock()
			return
		}
		change := n.change
		if n.down {
			n.mu.Unlock()
			<-change
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		l := &life{disks: &disks{own: n.disk, shared: n.w.shared, removing: n.w.cfg.Removing}, cancel: cancel, done: make(chan struct{}), stop: make(chan struct{})}
		n.live = l
		n.mu.Unlock()
		n.serve(ctx, l)
		cancel()
		n.mu.Lock()
		if n.live == l {
			n.live = nil
		}
		close(l.done)
		n.mu.Unlock()
		select {
		case <-change:
		case <-time.After(time.Second):
		}
	}
}

// serve is one life: until the namenode ends, or is told to.
func (n *Node) serve(ctx context.Context, l *life) {
	s, err := namenode.Start(ctx, n.config(l.disks))
	if err != nil {
		n.w.log.note(n.name, "does not start: %v", err)
		return
	}
	l.server.Store(s)
	select {
	case <-s.Done():
		n.w.log.note(n.name, "ended: %v", s.Err())
	case <-l.stop:
	case <-ctx.Done():
	}
	if err := s.Close(); err != nil {
		n.w.log.note(n.name, "close: %v", err)
	}
}

func (n *Node) config(d *disks) namenode.Config {
	return namenode.Config{
		Data: "/data", Listen: ":8020", HTTP: ":8021", OpenPort: n.host.Listen,
		Advertise: n.name + ":8020", AdvertiseHTTP: n.name + ":8021",
		Blocks: n.w.blocks(), StoreTransport: &http.Transport{DialContext: n.host.DialContext, IdleConnTimeout: 10 * time.Second}, FS: d, Clock: n.clock,
		HA: &namenode.HA{
			ZooKeeper: n.w.zkAddrs(), Name: "sim", SessionTimeout: sessionTimeout,
			Dial: dialer(n.host),
		},
		LeaseTimes: namenode.LeaseTimes{SoftLimit: softLimit, HardLimit: hardLimit, CacheTerm: cacheTerm}, BlockSize: blockSize, URLLife: urlLife,
		Limits: namenode.Limits{MaxTail: 16 << 10, TailBudget: n.w.cfg.TailBudget, Reserve: 1, MemoryLimit: 1 << 50},
		Upkeep: namenode.Upkeep{
			SealAfter: 20 * time.Second, CollectEvery: 10 * time.Second, SweepEvery: time.Minute, DeleteAfter: 20 * time.Second,
			CheckpointRecords: 2000, CheckpointEvery: time.Minute,
		},
		Oversight: namenode.Oversight{Archive: n.w.cfg.Archive},
		Identity:  identity.Config{TrustClients: true}, Superuser: "root", Supergroup: "root", Groups: func(string) []string { return nil },
		Logger: slog.New(&logger{h: n.w.log, who: n.name}),
	}
}

// kill ends the machine as a power cut does; what was not synced is lost.
func (n *Node) kill(mode crashfs.Mode) {
	n.mu.Lock()
	n.down = true
	l := n.live
	n.disk = n.disk.Crash(mode)
	if l != nil {
		l.disks.dead.Store(true)
		l.cancel()
	}
	n.host.Crash()
	n.host.Resume() // a machine that boots does not stand still
	n.clock.resume()
	n.changed()
	n.mu.Unlock()
	if l != nil {
		<-l.done
	}
}

// start brings a machine back.
func (n *Node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host.Restart()
	n.down = false
	n.changed()
}

// restart ends the namenode in order; it is started again.
func (n *Node) restart() {
	n.mu.Lock()
	l := n.live
	n.mu.Unlock()
	if l != nil {
		l.once.Do(func() { close(l.stop) })
	}
}

// stop ends the namenode for good.
func (n *Node) stop() {
	n.mu.Lock()
	n.over = true
	l := n.live
	n.changed()
	n.mu.Unlock()
	if l != nil {
		l.once.Do(func() { close(l.stop) })
		l.cancel()
		<-l.done
	}
}

// active reports whether the namenode says that it is the active one.
func (n *Node) active() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live == nil || n.down {
		return false
	}
	s := n.live.server.Load()
	return s != nil && s.Role() == "active"
}

// tree is what the namenode has; nil if it does not run.
func (n *Node) tree() *namespace.Tree {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live == nil || n.live.server.Load() == nil {
		return nil
	}
	return n.live.server.Load().Tree()
}
