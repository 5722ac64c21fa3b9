//go:build torture

package torture

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/upgrade"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
	"github.com/leasefs/leasefs/test/sim"
)

var (
	minutes = flag.Float64("minutes", 1, "how long rounds of faults are begun")
	seed    = flag.Uint64("seed", 1, "decides what clients do and what fails; even: blocks are in an S3 store")
	only    = flag.String("faults", "", "a regular expression: only faults whose names it matches")
	soak    = flag.String("soak", "", "the folder for samples of all processes, which must not grow; namenodes change between two releases meanwhile")
	traces  = flag.String("trace", "", "the folder to which the history is written, whether promises are broken or not")
)

const (
	namenodes, servers, clients = 3, 3, 6
	clientMachines              = 2
	sessionTimeout              = 3 * time.Second
	softLimit                   = 8 * time.Second
	hardLimit                   = 45 * time.Second
	roundLength                 = 90 * time.Second
	// settled is what takes 30 s in simulated time: here other processes of the machine
	// take their share.
	settled = 2 * time.Minute
	// checked is how long after the last fault all that is promised is checked.
	checked = 5 * time.Minute
)

// fleet is all processes and machines.
type fleet struct {
	t        *testing.T
	lab      *env.Lab
	zk       *env.ZooKeeper
	store    *s3env.Server // nil: blocks are in a folder that all share
	blocks   string        // the folder in which they are in the end
	nodes    []*node
	machines []string          // names of all
	addrs    map[string]string // of namenodes, by their names
	kinds    []fault
	rand     *rand.Rand
	w        *sim.Work

	program string // of the namenodes
	last    string // that of the last release, in a soak

	hit   map[string]bool // machines with a fault
	began int             // faults
}

const storeName = "s3"

func clientsName(i int) string { return fmt.Sprint("clients", i) }

func TestTorture(t *testing.T) {
	f := start(t)
	running, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, n := range f.nodes {
		all.Go(func() { n.run(running, f.w) })
	}
	t.Cleanup(func() {
		end()
		all.Wait()
		f.report()
	})
	if err := f.w.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.w.End)
	before := f.w.Base(f.used)
	sampled := f.sample()
	length := time.Duration(*minutes * float64(time.Minute))
	for began, round := time.Now(), 1; round == 1 || time.Since(began) < length && len(f.w.Broken()) == 0; round++ {
		ctx, cancel := context.WithTimeout(t.Context(), min(roundLength, length))
		f.w.Do(ctx, func() { f.fail(ctx) })
		cancel()
		f.w.Note("world", "all is healed; checking")
		f.check(fmt.Sprintf("after round %d", round))
		t.Logf("round %d: %v, %d faults, %v", round, time.Since(began).Round(time.Second), f.began, f.w.Done())
	}
	sampled()
	f.upgrade()
	f.checkEach()
	f.w.Leave()
	f.w.CheckGone(before, f.used)
}

// start starts all but the namenodes.
func start(t *testing.T) *fleet {
	t.Helper()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-faults: %v", err)
	}
	f := &fleet{t: t, hit: map[string]bool{}, addrs: map[string]string{}, rand: rand.New(rand.NewPCG(*seed, 0))} //nolint:gosec // reproducible
	var zk []string
	for i := range namenodes {
		f.machines = append(f.machines, fmt.Sprint("nn", i))
	}
	for i := range servers {
		zk = append(zk, fmt.Sprint("zk", i))
	}
	f.machines = append(f.machines, zk...)
	if *seed%2 == 0 {
		f.machines = append(f.machines, storeName)
	}
	lanes := f.machines
	for i := range clientMachines {
		f.machines = append(f.machines, clientsName(i))
	}
	f.lab = env.StartLab(t, f.machines...)
	var at []*env.Machine
	for _, name := range zk {
		at = append(at, f.lab.Machine(name))
	}
	f.zk = env.StartZooKeeperWith(t, env.ZooKeeperConfig{Machines: at})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.program = build(t, "../..", dir)
	formats := f.program
	if *soak != "" {
		f.last = lastRelease(t, filepath.Join(dir, "last"))
		formats = f.last // else the namespace begins at a level that this does not know
	}
	f.blocks = filepath.Join(dir, "blocks")
	blocks := "file://" + f.blocks
	var keys []string
	if *seed%2 == 0 {
		m := f.lab.Machine(storeName)
		f.store = s3env.StartAt(t, s3env.Place{Root: f.blocks, Via: m.Via(), Addr: m.Addr(9000), Dial: newHost(f.lab.Observer(), nil).DialContext})
		f.kinds = storeFaults
		blocks, keys = f.store.URL("torture"), f.store.Env()
	}
	if *soak != "" {
		f.kinds = append(f.kinds, upgrades...)
	}
	f.kinds = slices.DeleteFunc(slices.Concat(faults, f.kinds), func(k fault) bool { return !wanted.MatchString(k.name) })
	if len(f.kinds) == 0 {
		t.Fatalf("-faults: no fault matches %q", *only)
	}
	ensemble := []string{"--zookeeper", strings.Join(f.zk.Addrs(), ","), "--namespace", "torture", "--session-timeout", sessionTimeout.String(), "--blocks", blocks}
	flags := append([]string{"--soft-limit", softLimit.String(), "--hard-limit", hardLimit.String(), "--cache-term", "4s", "--delete-after", "20s"}, ensemble...)
	if *soak != "" {
		flags = append(flags, "--pprof") // which collects garbage when it is asked to
	}
	var names []string
	for i := range namenodes {
		n := newNode(t, f.lab, fmt.Sprint("nn", i), filepath.Join(dir, fmt.Sprint(i)), f.program, keys, flags...)
		f.nodes = append(f.nodes, n)
		names = append(names, n.name+":8020")
		for _, port := range []int{8020, 8021} {
			f.addrs[fmt.Sprint(n.name, ":", port)] = n.machine.Addr(port)
		}
	}
	f.nodes[0].command(t, append([]string{formats, "admin", "format"}, ensemble...))
	f.w = sim.NewWork(sim.WorkConfig{
		Seed: *seed, S3: f.store != nil, Clients: clients, Namenodes: names, Host: f.host, Machines: lanes,
		Soft: softLimit, Hard: hardLimit, Settled: settled, Largest: 2 << 20, KeepLevel: *soak != "",
	})
	return f
}

// host is the machine of a client: two clients of three may be cut off together. The
// one that watches, and the operator, nothing is cut off from.
func (f *fleet) host(name string) sim.Host {
	m := f.lab.Observer()
	if i := strings.Index("c0c1c2c3c4c5", name); i >= 0 {
		m = f.lab.Machine(clientsName(i / 2 % clientMachines))
	}
	return newHost(m, f.addrs)
}

// config is that of a client on which nothing fails.
func (f *fleet) config(limit time.Duration) client.Config {
	var names []string
	for _, n := range f.nodes {
		names = append(names, n.name+":8020")
	}
	h := newHost(f.lab.Observer(), f.addrs)
	return client.Config{Namenodes: names, User: "root", Client: "torture", Timeout: limit, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return h.DialContext(ctx, "tcp", addr) }),
	}}
}

// active is the name of the namenode that says that it is; empty: none or several do.
func (f *fleet) active(ctx context.Context) (name string) {
	list, err := client.QueryStatus(ctx, f.config(time.Second))
	if err != nil {
		f.t.Fatal(err)
	}
	for i, s := range list {
		if s.Err == nil && s.Role == "active" {
			if name != "" {
				return ""
			}
			name = f.nodes[i].name
		}
	}
	return name
}

func (f *fleet) check(when string) {
	ctx, cancel := context.WithTimeout(f.t.Context(), checked)
	defer cancel()
	f.w.Check(ctx, when)
}

// checkEach checks all again while each of the namenodes is active: what they have
// replayed is what was applied.
func (f *fleet) checkEach() {
	ctx, cancel := context.WithTimeout(f.t.Context(), checked)
	defer cancel()
	fs, err := client.New(ctx, f.config(time.Minute))
	if err != nil {
		f.w.Break("in the end: %v", err)
		return
	}
	defer func() { _ = fs.Close() }()
	seen := map[string]bool{}
	for ctx.Err() == nil {
		a := f.active(ctx)
		if a == "" {
			continue // one is about to take over
		}
		if !seen[a] {
			f.w.Check(ctx, "with "+a+" active")
			seen[a] = true
		}
		if len(seen) == namenodes {
			return
		}
		if _, err := fs.Admin().Failover(ctx); err != nil {
			f.w.Note("world", "failover: %v", err)
		}
	}
	f.w.Break("only %v have been active, %v after all was healed", seen, checked)
}

// upgrade ends a soak's changes between two releases: all namenodes get the new program, and
// the feature level is raised.
func (f *fleet) upgrade() {
	if *soak == "" {
		return
	}
	for _, n := range f.nodes {
		n.replace(f.program)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), checked)
	defer cancel()
	fs, err := client.New(ctx, f.config(time.Minute))
	if err != nil {
		f.w.Break("after the upgrade: %v", err)
		return
	}
	defer func() { _ = fs.Close() }()
	for {
		if _, err = upgrade.Finish(ctx, fs); err == nil {
			return
		}
		f.w.Note("world", "upgrade finish: %v", err)
		select {
		case <-time.After(time.Second): // namenodes are still starting
		case <-ctx.Done():
			f.w.Break("all namenodes have the new program, and the level cannot be raised: %v", err)
			return
		}
	}
}

// used is what the namenodes and ZooKeeper hold.
func (f *fleet) used(ctx context.Context) (sim.Used, error) {
	now := sim.Used{}
	pipe := &http.Transport{DialContext: newHost(f.lab.Observer(), f.addrs).DialContext, DisableKeepAlives: true}
	for _, n := range f.nodes {
		if err := now.Add(ctx, pipe, n.name+":8021"); err != nil {
			return nil, err
		}
	}
	for i := range servers {
		now["ZooKeeper watches"] += int(f.zk.Server(i).Stat(f.t, "zk_watch_count"))
	}
	now["ZooKeeper sessions"] = int(f.zk.Server(0).Stat(f.t, "zk_global_sessions"))
	return now, nil
}

// report tells of broken promises, and where the history is.
func (f *fleet) report() {
	broken := f.w.Broken()
	f.t.Logf("seed %d: %d faults, %d promises broken: %v", *seed, f.began, len(broken), f.w.Done())
	bad := len(broken) > 0 || f.t.Failed()
	dir := *traces
	if dir == "" && bad {
		dir = os.TempDir() //nolint:usetesting // to be read after the test
	}
	if dir != "" {
		path, err := f.w.WriteTrace(dir, fmt.Sprintf("leasefs-torture-%d", *seed))
		if err != nil {
			f.t.Error(err)
		}
		f.t.Logf("the history is in %s.txt, and %[1]s.html draws it", path)
	}
	if bad {
		f.t.Errorf("seed %d breaks promises", *seed)
	}
	for _, what := range broken[:min(len(broken), 10)] {
		f.t.Error(what)
	}
}
