package sim

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/sim/s3model"
	"github.com/leasefs/leasefs/test/sim/simnet"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

// fault is one way to fail. It begins what it says and returns how to end it; nil
// if it is over at once.
type fault struct {
	name  string
	begin func(*World, *rand.Rand) (heal func())
	most  time.Duration // that it lasts; 0: usualFault
}

// usualFault is how long most faults last at most.
const usualFault = 20 * time.Second

// often is how many times as often as others a fault is chosen that hits calls
// under way.
const often = 4

// kinds are the faults that can be in this world, as often as they are chosen.
func (w *World) kinds() []fault {
	frequent := []fault{loseAnswers, depose, pause}
	kinds := slices.Concat(rareFaults, folderFaults, slices.Repeat(frequent, often))
	if w.store != nil {
		kinds = slices.Concat(rareFaults, storeFaults, slices.Repeat(append(frequent, latePuts), often))
	}
	return slices.DeleteFunc(kinds, func(f fault) bool { return w.cfg.Faults != nil && !w.cfg.Faults.MatchString(f.name) })
}

// depose has a namenode succeeded that does not know, while the busy clients, who
// look most, ask it still, and the others, who append, ask its successor.
var depose = fault{name: "depose a namenode that some still ask", begin: func(w *World, r *rand.Rand) func() {
	n := w.someNode(r)
	var heals []func()
	for i := range w.cfg.ZooKeeper {
		heals = append(heals, w.cut(n.name, zkName(i), 0))
	}
	if r.IntN(2) == 0 {
		<-time.After(time.Duration(r.Int64N(int64(sessionTimeout / 3))))
	}
	for _, id := range w.zk.SessionsFrom(n.name) {
		w.zk.Expire(id)
	}
	// Who loses it now finds its successor at once, and does not first come back to it
	// because the others say that it is active.
	<-time.After(time.Duration(r.Int64N(int64(sessionTimeout / 10))))
	for _, c := range w.clients {
		if !c.busy {
			heals = append(heals, w.cut(c.name, n.name, 0))
			w.net.Reset(n.name, c.name)
		}
	}
	return func() { all(heals) }
}}

// forget has a namenode that knows of a client's silence hear of it, and crash before
// it has journalled that, while the client is silent again: what it was told must be
// what a successor keeps.
var forget = fault{name: "hear of a silent holder, then crash who heard", begin: func(w *World, r *rand.Rand) func() {
	c := w.someHolder(r)
	mend := w.cutOff(c) // it has renewed within half the limit; its age is journalled after three quarters
	<-time.After(softLimit/2 + time.Duration(r.Int64N(int64(softLimit/3))))
	mend()
	<-time.After(time.Duration(r.Int64N(int64(softLimit / 4))))
	mend = w.cutOff(c)
	n := w.someNode(r)
	n.kill(crashfs.Kill)
	for _, id := range w.zk.SessionsFrom(n.name) {
		w.zk.Expire(id)
	}
	return func() { mend(); n.start() }
}}

var loseAnswers = fault{name: "lose a namenode's answers, then crash its machine", begin: func(w *World, r *rand.Rand) func() {
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

// pause has a whole machine stand still, as a process that is stopped or collects its
// garbage does, or a machine that is suspended: its clocks stand still and show the
// whole time when it resumes, its connections are open and carry nothing. What its
// goroutines do meanwhile they do with what they knew and at the time that it was: as
// what they were just about to do. Timers fire for code that sees no time pass.
var pause = fault{name: "have a machine stand still", most: time.Minute, begin: func(w *World, r *rand.Rand) func() {
	var host *simnet.Host
	var clock *Clock
	if r.IntN(2) == 0 {
		n := w.someNode(r)
		host, clock = n.host, n.clock
	} else {
		c := w.someClient(r)
		host, clock = w.net.Host(c.name), c.clock
	}
	suspend := r.IntN(2) == 0
	if !clock.stop(suspend) {
		return nil
	}
	host.Pause()
	return func() {
		clock.resume()
		host.Resume()
	}
}}

var rareFaults = []fault{
	forget,
	{name: "crash a namenode's machine", begin: func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		n.kill([]crashfs.Mode{crashfs.Strict, crashfs.Torn, crashfs.Kill}[r.IntN(3)])
		return n.start
	}},
	{name: "restart a namenode", begin: func(w *World, r *rand.Rand) func() { w.someNode(r).restart(); return nil }},
	{name: "cut a namenode off from ZooKeeper", begin: func(w *World, r *rand.Rand) func() {
		n, way := w.someNode(r), r.IntN(3)
		var heals []func()
		for i := range w.cfg.ZooKeeper {
			heals = append(heals, w.cut(n.name, zkName(i), way))
		}
		return func() { all(heals) }
	}},
	{name: "cut a namenode off from all", begin: func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		var heals []func()
		for _, other := range w.machines() {
			if other != n.name {
				heals = append(heals, w.cut(n.name, other, 0))
			}
		}
		return func() { all(heals) }
	}},
	{name: "cut a client off from a namenode", begin: func(w *World, r *rand.Rand) func() {
		return w.cut(w.someClient(r).name, w.someNode(r).name, r.IntN(3))
	}},
	{name: "slow the lines of a machine", begin: func(w *World, r *rand.Rand) func() {
		all, d, name := w.machines(), time.Duration(r.Int64N(int64(800*time.Millisecond))), w.someMachine(r)
		set := func(d time.Duration) {
			for _, other := range all {
				w.net.Line(name, other).SetDelay(d)
				w.net.Line(other, name).SetDelay(d)
			}
		}
		set(d)
		return func() { set(usualDelay) }
	}},
	{name: "reset a namenode's connections", begin: func(w *World, r *rand.Rand) func() { w.net.Reset(w.someNode(r).name, ""); return nil }},
	{name: "forget a namenode's connections", begin: func(w *World, r *rand.Rand) func() { w.net.Forget(w.someNode(r).name, ""); return nil }},
	{name: "break ZooKeeper's connections", begin: func(w *World, r *rand.Rand) func() { w.someServer(r).Break(); return nil }},
	{name: "expire a ZooKeeper session", begin: func(w *World, r *rand.Rand) func() {
		if ids := w.zk.Sessions(); len(ids) > 0 {
			w.zk.Expire(ids[r.IntN(len(ids))])
		}
		return nil
	}},
	{name: "lose requests to ZooKeeper", begin: func(w *World, r *rand.Rand) func() {
		w.someServer(r).Lose(zkmodel.LostRequest, 1+r.IntN(3))
		return nil
	}},
	{name: "lose replies of ZooKeeper", begin: func(w *World, r *rand.Rand) func() {
		w.someServer(r).Lose(zkmodel.LostReply, 1+r.IntN(3))
		return nil
	}},
	{name: "have a ZooKeeper server lag", begin: func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.SetLag(time.Duration(r.Int64N(int64(2 * time.Second))))
		return func() { s.SetLag(0) }
	}},
	{name: "have a ZooKeeper server stand still", begin: func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.Hold()
		return s.Release
	}},
	{name: "stop a ZooKeeper server", begin: func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.Stop()
		return s.Start
	}},
	{name: "isolate a ZooKeeper server", begin: func(w *World, r *rand.Rand) func() {
		s := w.someServer(r)
		s.Isolate(time.Duration(r.Int64N(int64(3 * time.Second))))
		return s.Heal
	}},
	{name: "leave ZooKeeper without a leader", begin: func(w *World, r *rand.Rand) func() {
		w.zk.Elect(time.Duration(r.Int64N(int64(4 * time.Second))))
		return nil
	}},
	{name: "set a namenode's clock", begin: func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		skews := w.skews()
		n.clock.SetSkew(skews[r.IntN(len(skews))])
		return func() { n.clock.SetSkew(0) }
	}},
	{name: "fill a namenode's disk", begin: func(w *World, r *rand.Rand) func() {
		n := w.someNode(r)
		n.mu.Lock()
		disk := n.disk
		n.mu.Unlock()
		disk.Capacity(1)
		return func() { disk.Capacity(1 << 50) }
	}},
	{name: "crash who is active, and then who takes over", begin: func(w *World, r *rand.Rand) func() {
		a := w.someNode(r)
		a.kill(crashfs.Torn)
		<-time.After(time.Duration(r.Int64N(int64(2 * sessionTimeout))))
		b := w.someNode(r)
		b.kill(crashfs.Strict)
		return func() { a.start(); b.start() }
	}},
	{name: "fail what a namenode writes to its disk", begin: func(w *World, r *rand.Rand) func() {
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
}

// folderFaults are those of the folder that all share.
var folderFaults = []fault{
	{name: "fail what is written to the shared folder", begin: func(w *World, r *rand.Rand) func() {
		if r.IntN(2) == 0 {
			w.shared.FailSync("*", nil)
		} else {
			w.shared.FailWrite("*", nil)
		}
		return w.shared.Heal
	}},
	{name: "fill the shared folder", begin: func(w *World, _ *rand.Rand) func() {
		w.shared.Capacity(1)
		return func() { w.shared.Capacity(1 << 50) }
	}},
}

// latePuts has the store carry out PUTs long after their senders gave up: when others
// have put the block, or when it was given up and deleted.
var latePuts = fault{name: "have PUTs land late", begin: func(w *World, r *rand.Rand) func() {
	w.theStore().Late(1+r.IntN(4), time.Duration(r.Int64N(int64(latestPut))))
	return nil
}}

// latestPut is how long after it was sent a PUT can take effect.
const latestPut = 2 * time.Minute

// storeFaults are those of the store.
var storeFaults = []fault{
	{name: "lose requests to the store", begin: func(w *World, r *rand.Rand) func() { w.theStore().Lose(s3model.LostRequest, 1+r.IntN(4)); return nil }},
	{name: "lose replies of the store", begin: func(w *World, r *rand.Rand) func() { w.theStore().Lose(s3model.LostReply, 1+r.IntN(4)); return nil }},
	{name: "have the store in trouble", begin: func(w *World, r *rand.Rand) func() {
		w.theStore().SetTrouble(0.2 + 0.8*r.Float64())
		return func() { w.store.SetTrouble(0) }
	}},
	{name: "have the store's lists lag", begin: func(w *World, r *rand.Rand) func() {
		w.theStore().SetListLag(time.Duration(r.Int64N(int64(10 * time.Second))))
		return func() { w.store.SetListLag(0) }
	}},
	{name: "fill the store", begin: func(w *World, _ *rand.Rand) func() {
		w.theStore().SetFull(true)
		return func() { w.store.SetFull(false) }
	}},
	{name: "cut a machine off from the store", begin: func(w *World, r *rand.Rand) func() {
		return w.cut(w.someMachine(r), storeName, r.IntN(3))
	}},
	{name: "break the store's connections", begin: func(w *World, _ *rand.Rand) func() { w.hit(storeName); w.net.Reset(storeName, ""); return nil }},
}

// skews are by how much a clock's time of day can be wrong. With a store that looks
// at signatures, clocks have to agree to within a part of a URL's life.
func (w *World) skews() []time.Duration {
	if w.store != nil {
		return []time.Duration{urlLife / 3, -urlLife / 3, -3 * time.Second}
	}
	return []time.Duration{time.Hour, -time.Hour, 11 * time.Minute, -3 * time.Second, 400 * 24 * time.Hour}
}

func all(heals []func()) {
	for _, heal := range heals {
		heal()
	}
}

// hit notes that the fault that is about to begin hits a machine.
func (w *World) hit(name string) { w.hits = append(w.hits, name) }

// someNode is the active namenode in half of the cases, else any.
func (w *World) someNode(r *rand.Rand) *Node {
	n := w.nodes[r.IntN(len(w.nodes))]
	if r.IntN(2) == 0 {
		for _, other := range w.nodes {
			if other.active() {
				n = other
				break
			}
		}
	}
	w.hit(n.name)
	return n
}

func (w *World) someServer(r *rand.Rand) *zkmodel.Server {
	i := r.IntN(w.cfg.ZooKeeper)
	w.hit(zkName(i))
	return w.zk.Server(i)
}

func (w *World) theStore() *s3model.Server {
	w.hit(storeName)
	return w.store
}

func (w *World) someClient(r *rand.Rand) *worker {
	c := w.clients[r.IntN(len(w.clients))]
	w.hit(c.name)
	return c
}

// someHolder is a client that has a lock, if there is one.
func (w *World) someHolder(r *rand.Rand) *worker {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	has := map[*worker]bool{}
	for lock, o := range w.truth.locks {
		if lock.Remaining() > 0 {
			has[o.who] = true
		}
	}
	for _, c := range w.clients {
		if has[c] {
			w.hit(c.name)
			return c
		}
	}
	return w.someClient(r)
}

func (w *World) someMachine(r *rand.Rand) (name string) {
	all := w.machines()
	name = all[r.IntN(len(all))]
	w.hit(name)
	return name
}

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
	if w.store != nil {
		names = append(names, storeName)
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

// cutOff cuts a client off from all namenodes.
func (w *World) cutOff(c *worker) (heal func()) {
	var heals []func()
	for _, n := range w.nodes {
		heals = append(heals, w.cut(c.name, n.name, 0))
	}
	return func() { all(heals) }
}

// faults lets things fail in a shift, up to three at once, until ctx ends; then all heal.
func (w *World) faults(ctx context.Context, shift int) {
	r, kinds := w.rand("faults", shift), w.kinds()
	for _, n := range w.nodes {
		if r.IntN(3) == 0 {
			skews := w.skews()
			n.clock.SetSkew(skews[r.IntN(len(skews))])
		}
	}
	var under sync.WaitGroup
	defer under.Wait()
	places := make(chan struct{}, 3)
	between := 12 * time.Second
	if w.cfg.Sparse {
		between = time.Minute
	}
	for {
		select {
		case <-time.After(time.Duration(r.Int64N(int64(between)))):
		case <-ctx.Done():
			return
		}
		f := kinds[r.IntN(len(kinds))]
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		long := time.Duration(r.Int64N(int64(cmp.Or(f.most, usualFault))))
		w.log.note("fault", "%s for %v", f.name, long)
		w.meet(f.name)
		w.hits = nil
		began := &event{Who: "fault", Kind: faultEvent, What: f.name}
		over := w.log.begin(began)
		heal := f.begin(w, r)
		w.log.hits(began, w.hits)
		if heal == nil {
			w.part(f.name)
			over(nil)
			<-places
			continue
		}
		under.Go(func() {
			defer func() { <-places }()
			defer w.part(f.name)
			select {
			case <-time.After(long):
			case <-ctx.Done():
			}
			w.log.note("fault", "heal: %s", f.name)
			heal()
			over(nil)
		})
	}
}
