package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/sim/zkmodel"
	"github.com/leasefs/leasefs/vfs/crashfs"
)

// fault is one way to fail. It begins what it says and returns how to end it; nil
// if it is over at once.
type fault struct {
	name  string
	begin func(*World, *rand.Rand) (heal func())
}

// often is how many times as often as others a fault is chosen that hits calls
// under way.
const often = 4

var allFaults = slices.Concat(rareFaults, slices.Repeat([]fault{loseAnswers, depose}, often))

// depose has a namenode succeeded that does not know, while half of the clients
// ask it still, and the others ask its successor.
var depose = fault{"depose a namenode that some still ask", func(w *World, r *rand.Rand) func() {
	n := w.someNode(r)
	var heals []func()
	for i := range w.cfg.ZooKeeper {
		heals = append(heals, w.cut(n.name, zkName(i), 0))
	}
	for i, c := range w.clients {
		if i%2 == 1 {
			heals = append(heals, w.cut(c.name, n.name, 0))
			w.net.Reset(n.name, c.name)
		}
	}
	<-time.After(time.Duration(r.Int64N(int64(sessionTimeout / 3))))
	for _, id := range w.zk.SessionsFrom(n.name) {
		w.zk.Expire(id)
	}
	return func() { all(heals) }
}}

var loseAnswers = fault{"lose a namenode's answers, then crash its machine", func(w *World, r *rand.Rand) func() {
	n := w.someNode(r)
	var heals []func()
	for _, c := range w.clients {
		heals = append(heals, w.cut(c.name, n.name, 1))
	}
	<-time.After(time.Duration(r.Int64N(int64(time.Second))))
	n.kill(crashfs.Kill)
	all(heals)
	return n.start
}}

var rareFaults = []fault{
	{"crash a namenode's machine", func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		n.kill([]crashfs.Mode{crashfs.Strict, crashfs.Torn, crashfs.Kill}[r.IntN(3)])
		return n.start
	}},
	{"restart a namenode", func(w *World, r *rand.Rand) func() { w.someNode(r).restart(); return nil }},
	{"cut a namenode off from ZooKeeper", func(w *World, r *rand.Rand) func() {
		n, way := w.someNode(r), r.IntN(3)
		var heals []func()
		for i := range w.cfg.ZooKeeper {
			heals = append(heals, w.cut(n.name, zkName(i), way))
		}
		return func() { all(heals) }
	}},
	{"cut a namenode off from all", func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		var heals []func()
		for _, other := range w.machines() {
			if other != n.name {
				heals = append(heals, w.cut(n.name, other, 0))
			}
		}
		return func() { all(heals) }
	}},
	{"cut a client off from a namenode", func(w *World, r *rand.Rand) func() {
		return w.cut(w.clients[r.IntN(len(w.clients))].name, w.someNode(r).name, r.IntN(3))
	}},
	{"slow the lines of a machine", func(w *World, r *rand.Rand) func() {
		all, d := w.machines(), time.Duration(r.Int64N(int64(800*time.Millisecond)))
		name := all[r.IntN(len(all))]
		set := func(d time.Duration) {
			for _, other := range all {
				w.net.Line(name, other).SetDelay(d)
				w.net.Line(other, name).SetDelay(d)
			}
		}
		set(d)
		return func() { set(usualDelay) }
	}},
	{"reset a namenode's connections", func(w *World, r *rand.Rand) func() { w.net.Reset(w.someNode(r).name, ""); return nil }},
	{"forget a namenode's connections", func(w *World, r *rand.Rand) func() { w.net.Forget(w.someNode(r).name, ""); return nil }},
	{"break ZooKeeper's connections", func(w *World, r *rand.Rand) func() { w.someServer(r).Break(); return nil }},
	{"expire a ZooKeeper session", func(w *World, r *rand.Rand) func() {
		if ids := w.zk.Sessions(); len(ids) > 0 {
			w.zk.Expire(ids[r.IntN(len(ids))])
		}
		return nil
	}},
	{"lose requests to ZooKeeper", func(w *World, r *rand.Rand) func() {
		w.someServer(r).Lose(zkmodel.LostRequest, 1+r.IntN(3))
		return nil
	}},
	{"lose replies of ZooKeeper", func(w *World, r *rand.Rand) func() {
		w.someServer(r).Lose(zkmodel.LostReply, 1+r.IntN(3))
		return nil
	}},
	{"have a ZooKeeper server lag", func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.SetLag(time.Duration(r.Int64N(int64(2 * time.Second))))
		return func() { s.SetLag(0) }
	}},
	{"have a ZooKeeper server stand still", func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.Hold()
		return s.Release
	}},
	{"stop a ZooKeeper server", func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.Stop()
		return s.Start
	}},
	{"isolate a ZooKeeper server", func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.Isolate(time.Duration(r.Int64N(int64(3 * time.Second))))
		return s.Heal
	}},
	{"leave ZooKeeper without a leader", func(w *World, r *rand.Rand) func() {
		w.zk.Elect(time.Duration(r.Int64N(int64(4 * time.Second))))
		return nil
	}},
	{"set a namenode's clock", func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		n.clock.SetSkew(skews[r.IntN(len(skews))])
		return func() { n.clock.SetSkew(0) }
	}},
	{"fill a namenode's disk", func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		n.mu.Lock()
		disk := n.disk
		n.mu.Unlock()
		disk.Capacity(1)
		return func() { disk.Capacity(1 << 50) }
	}},
	{"crash who is active, and then who takes over", func(w *World, r *rand.Rand) func() {
		a := w.someNode(r)
		a.kill(crashfs.Torn)
		<-time.After(time.Duration(r.Int64N(int64(2 * sessionTimeout))))
		b := w.someNode(r)
		b.kill(crashfs.Strict)
		return func() { a.start(); b.start() }
	}},
	{"fail what a namenode writes to its disk", func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		n.mu.Lock()
		disk := n.disk
		n.mu.Unlock()
		if r.IntN(2) == 0 {
			disk.FailSync("*", nil)
		} else {
			disk.FailWrite("*", nil)
		}
		return disk.Heal
	}},
	{"fail what is written to the shared folder", func(w *World, r *rand.Rand) func() {
		if r.IntN(2) == 0 {
			w.shared.FailSync("*", nil)
		} else {
			w.shared.FailWrite("*", nil)
		}
		return w.shared.Heal
	}},
	{"fill the shared folder", func(w *World, _ *rand.Rand) func() {
		w.shared.Capacity(1)
		return func() { w.shared.Capacity(1 << 50) }
	}},
}

// skews are by how much a clock's time of day can be wrong.
var skews = []time.Duration{time.Hour, -time.Hour, 11 * time.Minute, -3 * time.Second, 400 * 24 * time.Hour}

func all(heals []func()) {
	for _, heal := range heals {
		heal()
	}
}

// someNode is the active namenode in half of the cases, else any.
func (w *World) someNode(r *rand.Rand) *Node {
	if r.IntN(2) == 0 {
		for _, n := range w.nodes {
			if n.active() {
				return n
			}
		}
	}
	return w.nodes[r.IntN(len(w.nodes))]
}

func (w *World) someServer(r *rand.Rand) *zkmodel.Server { return w.zk.Server(r.IntN(w.cfg.ZooKeeper)) }

func (w *World) machines() (names []string) {
	for _, n := range w.nodes {
		names = append(names, n.name)
	}
	for i := range w.cfg.ZooKeeper {
		names = append(names, zkName(i))
	}
	for _, c := range w.clients {
		names = append(names, c.name)
	}
	return names
}

// cut cuts the line between two machines: both ways (0), there, or back.
func (w *World) cut(a, b string, way int) (heal func()) {
	if way != 1 {
		w.net.Line(a, b).Cut()
	}
	if way != 2 {
		w.net.Line(b, a).Cut()
	}
	return func() {
		w.net.Line(a, b).Mend()
		w.net.Line(b, a).Mend()
	}
}

// faults lets things fail, up to three at once, until ctx ends; then all heal.
func (w *World) faults(ctx context.Context) {
	r := w.rand("faults", 0)
	for _, n := range w.nodes {
		if r.IntN(3) == 0 {
			n.clock.SetSkew(skews[r.IntN(len(skews))])
		}
	}
	var under sync.WaitGroup
	defer under.Wait()
	places := make(chan struct{}, 3)
	for {
		select {
		case <-time.After(time.Duration(r.Int64N(int64(12 * time.Second)))):
		case <-ctx.Done():
			return
		}
		f := allFaults[r.IntN(len(allFaults))]
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		long := time.Duration(r.Int64N(int64(20 * time.Second)))
		w.log.note("fault", "%s for %v", f.name, long)
		heal := f.begin(w, r)
		if heal == nil {
			<-places
			continue
		}
		under.Go(func() {
			defer func() { <-places }()
			select {
			case <-time.After(long):
			case <-ctx.Done():
			}
			w.log.note("fault", "heal: %s", f.name)
			heal()
		})
	}
}
