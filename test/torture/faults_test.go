//go:build torture

package torture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasefs/leasefs/test/env"
)

// fault is one way to fail. on chooses the machines that it hits; none, if those have
// a fault already. do begins it; it is over at once if heal is nil.
type fault struct {
	name string
	most time.Duration // that it lasts; 0: usualFault
	on   func(f *fleet) []string
	do   func(f *fleet, on []string) (heal func())
}

const (
	usualFault = 20 * time.Second
	longStop   = time.Minute
	faultPause = 8 * time.Second // the longest between two
	atOnce     = 2
)

var faults = []fault{
	{name: "kill -9 a namenode", on: (*fleet).someNode, do: func(f *fleet, on []string) func() { return f.node(on[0]).kill() }},
	{name: "end a namenode in order", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		f.node(on[0]).signal(syscall.SIGTERM)
		return nil
	}},
	{name: "kill -9 who is active, and then who takes over", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		heals := []func(){f.node(on[0]).kill()}
		f.rest(2 * sessionTimeout)
		if more := f.someNode(); more != nil {
			f.hit[more[0]] = true
			heals = append(heals, f.node(more[0]).kill(), func() { delete(f.hit, more[0]) })
		}
		return func() { all(heals) }
	}},
	{name: "stop a namenode", most: longStop, on: (*fleet).someNode, do: stop},
	{name: "stop a namenode", most: 2 * sessionTimeout, on: (*fleet).someNode, do: stop},
	{name: "cut a namenode off from ZooKeeper", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		return f.cut(on[0], f.rand.IntN(3), "zk")
	}},
	{name: "cut a namenode off from all", on: (*fleet).someNode, do: func(f *fleet, on []string) func() { return f.cut(on[0], 0, "") }},
	{name: "cut clients off from a namenode", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		return f.cut(on[0], f.rand.IntN(3), clientsName(f.rand.IntN(clientMachines)))
	}},
	{name: "depose a namenode that some still ask", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		heals := []func(){f.cut(on[0], 0, "zk"), f.cut(on[0], 0, clientsName(0))}
		return func() { all(heals) }
	}},
	{name: "fill a namenode's disk", on: (*fleet).someNode, do: func(f *fleet, on []string) func() { return f.node(on[0]).fill(f.t) }},
	{name: "step a namenode's clock", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		n, steps := f.node(on[0]), []time.Duration{time.Hour, -time.Hour, 11 * time.Minute, -3 * time.Second, 400 * 24 * time.Hour}
		n.setClock(f.t, steps[f.rand.IntN(len(steps))])
		return func() { n.setClock(f.t, 0) }
	}},
	{name: "stop a ZooKeeper server", most: longStop, on: (*fleet).someServer, do: func(f *fleet, on []string) func() {
		s := f.server(on[0])
		s.Pause(f.t)
		return func() { s.Continue(f.t) }
	}},
	{name: "kill -9 a ZooKeeper server", on: (*fleet).someServer, do: func(f *fleet, on []string) func() {
		s := f.server(on[0])
		s.Kill(f.t)
		return func() { s.Start(f.t) }
	}},
	{name: "cut a ZooKeeper server off from the others", on: (*fleet).someServer, do: func(f *fleet, on []string) func() { return f.cut(on[0], f.rand.IntN(3), "zk") }},
}

// storeFaults are those of the store.
var storeFaults = []fault{
	{name: "stop the store", most: longStop, on: (*fleet).theStore, do: func(f *fleet, _ []string) func() {
		f.store.Pause(f.t)
		return func() { f.store.Continue(f.t) }
	}},
	{name: "cut namenodes off from the store", on: (*fleet).theStore, do: func(f *fleet, on []string) func() { return f.cut(on[0], f.rand.IntN(3), "nn") }},
	{name: "cut clients off from the store", on: (*fleet).theStore, do: func(f *fleet, on []string) func() { return f.cut(on[0], f.rand.IntN(3), "clients") }},
}

// upgrades are faults of a fleet that is replaced by another release meanwhile, in both
// directions. There are two, so that they are as frequent as kills.
var upgrades = []fault{
	{name: "start a namenode with the program of the last release", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		f.node(on[0]).replace(f.last)
		return nil
	}},
	{name: "start a namenode with the new program", on: (*fleet).someNode, do: func(f *fleet, on []string) func() {
		f.node(on[0]).replace(f.program)
		return nil
	}},
}

func stop(f *fleet, on []string) func() {
	n := f.node(on[0])
	n.signal(syscall.SIGSTOP)
	return func() { n.signal(syscall.SIGCONT) }
}

// kill ends the namenode, which is not started again until the machine is healed.
func (n *node) kill() (heal func()) {
	n.off.Lock()
	n.signal(syscall.SIGKILL)
	return n.off.Unlock
}

func all(heals []func()) {
	for _, heal := range heals {
		heal()
	}
}

// someNode is the active namenode in half of the cases, else any.
func (f *fleet) someNode() []string {
	name := f.nodes[f.rand.IntN(len(f.nodes))].name
	if f.rand.IntN(2) == 0 {
		name = cmp.Or(f.active(f.t.Context()), name)
	}
	return f.unhit(name)
}

func (f *fleet) someServer() []string { return f.unhit(fmt.Sprint("zk", f.rand.IntN(servers))) }

func (f *fleet) theStore() []string { return f.unhit(storeName) }

func (f *fleet) unhit(name string) []string {
	if f.hit[name] {
		return nil
	}
	return []string{name}
}

func (f *fleet) node(name string) *node {
	return f.nodes[slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == name })]
}

func (f *fleet) server(name string) *env.ZooKeeperServer {
	return f.zk.Server(int(name[len(name)-1] - '0'))
}

// cut cuts a machine off from all others whose names begin so: both ways (0), to it,
// or from it.
func (f *fleet) cut(name string, way int, others string) (heal func()) {
	var heals []func()
	drop := func(from, to *env.Machine) {
		f.lab.Drop(from, to)
		heals = append(heals, func() { f.lab.Mend(from, to) })
	}
	m := f.lab.Machine(name)
	for _, other := range f.machines {
		if other == name || !strings.HasPrefix(other, others) {
			continue
		}
		if way != 2 {
			drop(f.lab.Machine(other), m)
		}
		if way != 1 {
			drop(m, f.lab.Machine(other))
		}
	}
	return func() { all(heals) }
}

// rest is a part of a fault that lasts up to so long.
func (f *fleet) rest(most time.Duration) {
	select {
	case <-time.After(time.Duration(f.rand.Int64N(int64(most)))):
	case <-f.t.Context().Done():
	}
}

// fail lets things fail, up to two at once, until ctx ends; then all heals.
func (f *fleet) fail(ctx context.Context) {
	type present struct {
		until time.Time
		heal  func()
	}
	var there []present
	healed := func(now time.Time) {
		there = slices.DeleteFunc(there, func(p present) bool {
			if now.Before(p.until) {
				return false
			}
			p.heal()
			return true
		})
	}
	defer func() { healed(time.Now().Add(longStop)) }()
	pause := func() time.Time { return time.Now().Add(time.Duration(f.rand.Int64N(int64(faultPause)))) }
	for next := pause(); ctx.Err() == nil; {
		wake := next
		for _, p := range there {
			if p.until.Before(wake) {
				wake = p.until
			}
		}
		select {
		case <-time.After(time.Until(wake)):
		case <-ctx.Done():
			return
		}
		healed(time.Now())
		if time.Now().Before(next) {
			continue
		}
		next = pause()
		k := f.kinds[f.rand.IntN(len(f.kinds))]
		on := k.on(f)
		if len(there) == atOnce || on == nil {
			continue
		}
		long := time.Duration(f.rand.Int64N(int64(cmp.Or(k.most, usualFault))))
		for _, name := range on {
			f.hit[name] = true
		}
		over := f.w.Fault(k.name, on...)
		heal := k.do(f, on)
		f.began++
		there = append(there, present{time.Now().Add(long), func() {
			if heal != nil {
				heal()
			}
			for _, name := range on {
				delete(f.hit, name)
			}
			over()
		}})
		if heal == nil {
			there[len(there)-1].until = time.Now()
		}
	}
}
