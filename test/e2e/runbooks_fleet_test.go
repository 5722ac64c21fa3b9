package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/altered"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// ofSeveral are the alarms of which TestRunbooksOfSeveral tries the runbooks, all of them.
var ofSeveral = []string{
	"LeasefsNoStandby", "LeasefsJournalSlow", "LeasefsJournalBacklog", "LeasefsLeaseMonitorLate", "LeasefsOverloaded",
	"LeasefsStandbyBehind", "LeasefsZooKeeperFull", "LeasefsClockWrong", "LeasefsFlapping", "LeasefsTwoActiveNamenodes",
}

// clockVariable names the folder with how far the clocks of an altered program are ahead: in
// the file wall the time of day, in the file mono the others.
const clockVariable = "LEASEFS_E2E_CLOCK"

// memoryVariable says how much memory an altered program takes for all there is, imageVariable how
// much journal is between two images, tailsVariable how much tails may take, all in MiB.
const memoryVariable, imageVariable, tailsVariable = "LEASEFS_E2E_MEMORY", "LEASEFS_E2E_IMAGE", "LEASEFS_E2E_TAILS"

// panicsAt is a path at which an altered program has a fault.
const panicsAt = "/panics"

// alteredProgram is the program with such clocks and such a fault, which searches its store for
// blocks without a file every second, not every hour, keeps hardly any journal for its archive, and
// has room for few sessions. Its forecasts go by a clock that only the file forecast moves, and it
// reads what is in use when they are asked for, not every ten seconds. It is built when it is first
// asked for.
func alteredProgram(t *testing.T) string {
	t.Helper()
	alteredOnce.Do(func() {
		dir, err := os.MkdirTemp("", "altered-") //nolint:usetesting // of all tests; it goes with the run's folder
		if err != nil {
			t.Fatal(err)
		}
		alteredPath = altered.Build(t, "../..", dir,
			altered.Change{File: "namenode/config.go", Old: "cmp.Or[clock.Clock](c.Clock, clock.System{})", New: "cmp.Or[clock.Clock](c.Clock, alteredClock{})"},
			altered.Change{File: "namenode/config.go", Old: "setDefault(&c.SweepEvery, time.Hour)", New: "setDefault(&c.SweepEvery, time.Second)"},
			altered.Change{File: "namenode/config.go", Old: "c.MemoryLimit = machine.Memory() / 4 * 3", New: `c.MemoryLimit = mib("` + memoryVariable + `", machine.Memory()/4*3)`},
			altered.Change{File: "namenode/config.go", Old: "setDefault(&c.CheckpointBytes, 256<<20)", New: `setDefault(&c.CheckpointBytes, mib("` + imageVariable + `", 256<<20))`},
			altered.Change{File: "namenode/config.go", Old: "setDefault(&c.TailBudget, DefaultTailBudget)", New: `setDefault(&c.TailBudget, mib("` + tailsVariable + `", DefaultTailBudget))`},
			altered.Change{File: "namenode/serve/shares.go", Old: "const maxStreams = 1 << 17", New: "const maxStreams = 200"},
			altered.Change{File: "namenode/server.go", Old: "forecast.New(s.cfg.Clock)", New: "forecast.New(forecastClock{})"},
			altered.Change{File: "namenode/forecast/forecast.go", Old: "// by resource, the oldest first\n", New: "// by resource, the oldest first\n\treads []func(context.Context) []Reading\n"},
			altered.Change{File: "namenode/forecast/forecast.go", Old: "\tfor {\n\t\tt.sample(read(ctx))\n", New: `
	t.mu.Lock()
	t.reads = append(t.reads, read)
	t.mu.Unlock()
	for {
		<-ctx.Done()
`},
			altered.Change{File: "namenode/forecast/forecast.go", Old: "func (t *Table) All() []Forecast {\n", New: `func (t *Table) All() []Forecast {
	t.mu.Lock()
	reads := t.reads
	t.mu.Unlock()
	for _, read := range reads {
		t.sample(read(context.Background()))
	}
`},
			altered.Change{File: "namenode/images/keeper.go", Old: "total < mostNeeded*k.cfg.Bytes", New: "total < mostNeeded"},
			altered.Change{File: "namenode/rpc_read.go", Old: "resp := new(pb.StatResponse)\n", New: `resp := new(pb.StatResponse)
	if r.GetAt().GetPath() == "` + panicsAt + `" {
		panic("an altered program's")
	}
`},
			altered.Change{File: "namenode/alteredclock.go", New: `package namenode

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

type forecastClock struct{ clock.System }

func (forecastClock) Mono() time.Duration { return ahead("forecast") }

func mib(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n << 20
}

type alteredClock struct{ clock.System }

func (c alteredClock) Wall() time.Time     { return c.System.Wall().Add(ahead("wall")) }
func (c alteredClock) Mono() time.Duration { return c.System.Mono() + ahead("mono") }
func (c alteredClock) Boot() time.Duration { return c.System.Boot() + ahead("mono") }

func ahead(name string) time.Duration {
	text, _ := os.ReadFile(filepath.Join(os.Getenv("` + clockVariable + `"), name))
	d, _ := time.ParseDuration(string(text))
	return d
}
`})
	})
	if alteredPath == "" {
		t.Fatal("the altered program was not built")
	}
	return alteredPath
}

var (
	alteredOnce sync.Once
	alteredPath string
)

// alter makes a namenode of the altered program, from its next start on, and returns what sets
// its clocks.
func (n *namenode) alter(t *testing.T) (ahead func(name string, by time.Duration)) {
	t.Helper()
	dir := t.TempDir()
	n.program, n.env = alteredProgram(t), append(n.env, clockVariable+"="+dir)
	return aheadIn(t, dir)
}

// aheadIn sets the clocks that go by the files in a folder.
func aheadIn(t *testing.T, dir string) func(name string, by time.Duration) {
	t.Helper()
	return func(name string, by time.Duration) {
		t.Helper()
		file := filepath.Join(dir, name) // as a whole, or a namenode may read it empty
		if err := os.WriteFile(file+".new", []byte(by.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunbooksOfSeveral is TestRunbooks of what concerns several namenodes.
func TestRunbooksOfSeveral(t *testing.T) {
	t.Parallel()
	drills := map[string]func(context.Context, *testing.T) *drill{"journal": drillJournal, "standby": drillStandby, "deposed": drillDeposed}
	tried := make(chan *drill, len(drills))
	t.Run("drills", func(t *testing.T) {
		for name, run := range drills {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tried <- run(deadline(t, 5*time.Minute), t)
			})
		}
	})
	if t.Failed() || len(tried) < len(drills) {
		return // or -run chose some
	}
	close(tried)
	untried := slices.Clone(ofSeveral)
	for d := range tried {
		untried = slices.DeleteFunc(untried, func(name string) bool { return d.followed[name] })
	}
	if len(untried) > 0 {
		t.Errorf("ofSeveral has %q, of which no drill follows the runbook", untried)
	}
}

// fleetDrill starts two namenodes, with a Prometheus.
func fleetDrill(ctx context.Context, t *testing.T, mod func(*fleetConfig)) (d *drill, e *fleet, active, standby *member) {
	t.Helper()
	e = startFleet(ctx, t, func(c *fleetConfig) { c.n = 2; mod(c) })
	active = e.settled(ctx)
	standby = e.another(active)
	d = newDrill(t, e.namenode)
	d.shown = active.http + "|" + standby.http
	d.prom = startPrometheus(t, map[string][]string{"leasefs": pagesOf(active.namenode, standby.namenode)})
	return d, e, active, standby
}

// behind are namenodes over a ZooKeeper that stops now and then, and continues before its
// sessions are over.
type behind struct {
	*drill
	fleet *fleet
}

// says reports whether a member's status is so.
func (e *fleet) says(ctx context.Context, so func(*client.NamenodeStatus) bool) bool {
	return slices.ContainsFunc(e.members, func(m *member) bool {
		s := m.look(ctx)
		return so(&s)
	})
}

// sessionOfDrills is long beside what a busy machine stalls a process for.
const sessionOfDrills = 24 * time.Second

// firesWhileStopped stops ZooKeeper again and again, until an alarm fires meanwhile, and the
// status of a namenode says what the runbook has somebody look for, if anything. before is
// called before each stop, and meanwhile after it.
func (b behind) firesWhileStopped(ctx context.Context, name string, before, meanwhile func(), status func(*client.NamenodeStatus) bool) {
	b.t.Helper()
	b.fires(ctx, name, false)
	eventually(ctx, b.t, name+" fires while ZooKeeper stands still", func() bool {
		before()
		b.fleet.zk.Server(0).Pause(b.t)
		defer b.mends(name, func() { b.fleet.zk.Server(0).Continue(b.t) })
		meanwhile()
		short, cancel := context.WithTimeout(ctx, sessionOfDrills*3/8)
		defer cancel()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if fires, err := b.firing(short, name); fires && err == nil {
				return status == nil || b.fleet.says(short, status)
			}
			select {
			case <-tick.C:
			case <-short.Done():
				return false
			}
		}
	})
}

// drillJournal: a namenode is gone; ZooKeeper answers late; and more comes than it takes.
func drillJournal(ctx context.Context, t *testing.T) *drill {
	zk := env.StartZooKeeper(t, 1)
	shares := filepath.Join(t.TempDir(), "shares")
	limit := func(lines string) {
		t.Helper()
		if err := os.WriteFile(shares, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limit("# nobody has a limit\n")
	d, e, _, standby := fleetDrill(ctx, t, func(c *fleetConfig) {
		c.zk, c.direct, c.flags = zk, true, []string{"--session-timeout", sessionOfDrills.String(), "--min-lease-ttl", "1s", "--shares", shares}
	})
	b := behind{d, e}
	d.fires(ctx, "LeasefsNoStandby", false)
	standby.kill()
	d.fires(ctx, "LeasefsNoStandby", true)
	d.follow(ctx, "LeasefsNoStandby")
	d.startsAsAsked(ctx, standby.namenode)
	d.fires(ctx, "LeasefsNoStandby", false)

	const slow = "LeasefsJournalSlow"
	w := e.begin(ctx, nil, "append", "--create", "--ack", "/log")
	acked := int64(0)
	flush := func() {
		w.feed("line\n")
		acked += 5
	}
	flush()
	w.acksUpTo(ctx, acked)
	d.fires(ctx, slow, false)
	d.firesBy(ctx, slow, true, func() {
		zk.Server(0).Pause(t)
		flush()
		<-time.After(2 * time.Second)
		d.mends(slow, func() { zk.Server(0).Continue(t) })
		w.acksUpTo(ctx, acked)
	})
	d.follow(ctx, slow)
	d.firesBy(ctx, slow, false, func() {
		flush()
		w.acksUpTo(ctx, acked)
	})
	w.eof()
	w.ends(ctx, 0)

	var under errgroup.Group // what waits for ZooKeeper
	const backlog = "LeasefsJournalBacklog"
	fsys := e.library(ctx)
	piece := bytes.Repeat([]byte("x"), 1<<20)
	b.firesWhileStopped(ctx, backlog, func() {
		_ = under.Wait() // a call is given up where ZooKeeper has stood still for too long
	}, func() {
		for i := range 24 {
			under.Go(func() error {
				return fsys.WriteFile(ctx, fmt.Sprint("/piece", i), piece, client.WithOverwrite())
			})
		}
	}, nil)
	d.follow(ctx, backlog)
	d.fires(ctx, backlog, false)
	_ = under.Wait()

	const late = "LeasefsLeaseMonitorLate"
	overdue := func(s *client.NamenodeStatus) bool { return s.OldestOverdue > 0 }
	b.firesWhileStopped(ctx, late, func() {
		// They end meanwhile, and while the monitor waits for ZooKeeper to take the end of one
		// the next is late.
		for i := range 3 {
			if _, err := fsys.Leases().Grant(ctx, time.Second+time.Duration(i)*300*time.Millisecond, 0); err != nil {
				t.Fatal(err)
			}
		}
	}, func() {}, overdue)
	d.follow(ctx, late)
	d.fires(ctx, late, false)
	eventually(ctx, t, "no lease is overdue any more", func() bool { return !e.says(ctx, overdue) })
	drillOverload(ctx, b, limit)
	return d
}

// drillOverload: somebody makes more calls than the namenode serves at once, and then, when his
// share is small, still more than he may.
func drillOverload(ctx context.Context, b behind, limit func(lines string)) {
	const name, calls, greedy = "LeasefsOverloaded", 7000, "greedy"
	t, e := b.t, b.fleet
	e.run(ctx, "mkdir", "-m", "777", "/open")
	var from []*env.Raw // a connection carries 4,096 calls at once
	connect := func() {
		from = nil
		for range 2 {
			r := env.RawAt(t, e.active(ctx).direct, greedy)
			r.Who.User = greedy
			from = append(from, r)
		}
	}
	var under errgroup.Group
	b.firesWhileStopped(ctx, name, func() {
		_ = under.Wait() // calls of the attempt before, most of them refused
		connect()
	}, func() {
		for i := range calls {
			r := from[i%len(from)]
			under.Go(func() error {
				_, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Caller: r.Who, Call: r.Call(), At: pb.At(fmt.Sprint("/open/", i))})
				return err
			})
		}
	}, func(s *client.NamenodeStatus) bool {
		return slices.ContainsFunc(s.Greedy, func(h client.Holding) bool { return h.What == "calls under way" && h.Held > calls/2 })
	})
	_ = under.Wait()
	b.follow(ctx, name)
	limit("user " + greedy + " calls=1\n") // as it says
	more := func() error {
		for range 10 { // he continues
			under.Go(func() error {
				short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
				_, err := from[0].NN.Stat(short, &pb.StatRequest{Caller: from[0].Who, At: pb.At("/open")})
				return err
			})
		}
		err := under.Wait()
		under = errgroup.Group{}
		return err
	}
	b.firesBy(ctx, name, false, func() { _ = more() })
	eventually(ctx, t, "the share is enforced", func() bool { return errors.Is(more(), fserror.Retry) })
}

// drillStandby: the way of a standby to ZooKeeper is slow, its clock is wrong, and no image can
// be stored.
func drillStandby(ctx context.Context, t *testing.T) *drill {
	zk := env.StartZooKeeper(t, 1)
	d, e, active, standby := fleetDrill(ctx, t, func(c *fleetConfig) {
		c.zk, c.direct, c.flags = zk, true, []string{"--session-timeout", sessionOfDrills.String()}
	})
	drillBehind(ctx, d, e, active, standby)

	const wrong = "LeasefsClockWrong"
	standby.kill()
	ahead := standby.alter(t)
	standby.start(ctx)
	standby.standby(ctx)
	d.fires(ctx, wrong, false)
	ahead("wall", -11*time.Minute)
	d.fires(ctx, wrong, true)
	d.follow(ctx, wrong)
	d.mends(wrong, func() { ahead("wall", 0) })
	d.fires(ctx, wrong, false)

	const full = "LeasefsZooKeeperFull"
	d.fires(ctx, full, false)
	blocks := flagOf(t, active.flags, "--blocks")
	images, err := filepath.Glob(filepath.Join(strings.TrimPrefix(blocks, "file://"), "*", "named"))
	if err != nil || len(images) != 1 {
		t.Fatalf("%q, %v", images, err)
	}
	mend := refuseFiles(t, images[0])
	piece := strings.Repeat("x", 1<<20)
	written := 0
	d.firesBy(ctx, full, true, func() {
		e.write(ctx, piece, "create", fmt.Sprint("/full", written))
		written++
	})
	if r := e.try(ctx, "", "--timeout", "10s", "admin", "checkpoint"); r.code == 0 || !strings.Contains(r.err, "not a directory") {
		t.Errorf("a checkpoint ends with %d: %s", r.code, r.err)
	}
	d.mends(full, mend)
	d.follow(ctx, full)
	d.fires(ctx, full, false)

	drillFlapping(ctx, d, e)
	return d
}

// drillFlapping: namenodes take over from each other. Each half of the rule is tried: how often the
// term of one has changed, and how much that of all has grown.
func drillFlapping(ctx context.Context, d *drill, e *fleet) {
	const name = "LeasefsFlapping"
	whole := d.alarms[name]
	halves := strings.Split(whole.expr, " or ")
	if len(halves) != 2 {
		d.t.Fatalf("%s has %d parts", name, len(halves))
	}
	d.fires(ctx, name, false)
	for _, half := range halves {
		d.alarms[name] = rule{expr: half}
		d.firesBy(ctx, name, true, func() { e.failover(ctx, e.active(ctx)) })
	}
	d.follow(ctx, name)
	d.alarms[name] = whole
	d.mends(name, func() {}) // nobody hands over any more
	d.fires(ctx, name, false)
}

// drillDeposed: the active namenode is cut off from ZooKeeper, and its clocks stand, as those of a
// virtual machine that its host has stopped: it cannot know that it was deposed.
func drillDeposed(ctx context.Context, t *testing.T) *drill {
	const name = "LeasefsTwoActiveNamenodes"
	d, e, _, _ := fleetDrill(ctx, t, func(c *fleetConfig) { c.flags = []string{"--session-timeout", "8s"} })
	clocks := map[*member]func(string, time.Duration){}
	for _, m := range e.members {
		m.kill()
		clocks[m] = m.alter(t)
		m.start(ctx)
	}
	deposed := e.settled(ctx)
	d.fires(ctx, name, false)
	for _, clock := range []string{"wall", "mono"} { // its window stays open for an hour
		clocks[deposed](clock, -time.Hour)
	}
	deposed.fromZooKeeper()
	d.fires(ctx, name, true)
	other := e.another(deposed)
	if old, now := deposed.look(ctx), other.look(ctx); old.Role != "active" || now.Role != "active" || old.Term >= now.Term {
		t.Errorf("they say: %+v, %+v", old, now)
	}
	// Only one can write, and what the other answers is old.
	here := func(m *member) *namenode { return &namenode{t: t, listen: m.direct} }
	here(other).run(ctx, "mkdir", "/d")
	here(deposed).fails(ctx, fserror.ExitNotFound, "", "stat", "/d")
	here(deposed).fails(ctx, fserror.ExitUnavailable, "", "--timeout", "3s", "mkdir", "/e")

	d.follow(ctx, name)
	deposed.kill()
	deposed.toZooKeeper()
	d.startsAsAsked(ctx, deposed.namenode)
	d.fires(ctx, name, false)
	deposed.standby(ctx)
	e.run(ctx, "stat", "/d")
	e.fails(ctx, fserror.ExitNotFound, "", "stat", "/e")
	return d
}

// drillBehind: a standby reads slowly.
func drillBehind(ctx context.Context, d *drill, e *fleet, active, standby *member) {
	const name, changes = "LeasefsStandbyBehind", 10_500
	t := d.t
	proxy, err := zkproxy.New(e.zk.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	standby.kill()
	*flagAt(t, standby.flags, "--zookeeper") = proxy.Addr()
	standby.start(ctx)
	standby.standby(ctx)
	d.fires(ctx, name, false)
	let := make(chan struct{})
	proxy.Decide(func(_ int32, body []byte) zkproxy.Action {
		if bytes.Contains(body, []byte("/journal/batches/")) {
			<-let
		}
		return zkproxy.Forward
	})
	makeDirs(ctx, t, e.library(ctx), changes)
	d.fires(ctx, name, true)
	d.mends(name, func() {
		proxy.Decide(nil)
		close(let)
	})
	d.follow(ctx, name)
	standby.kill()
	d.startsAsAsked(ctx, standby.namenode)
	eventually(ctx, t, "the standby has followed", func() bool {
		s := standby.look(ctx)
		return s.Role == "standby" && s.TxID >= active.look(ctx).TxID
	})
	d.fires(ctx, name, false)
}

// flagAt is the value of a flag.
func flagAt(t testing.TB, flags []string, name string) *string {
	t.Helper()
	i := slices.Index(flags, name)
	if i < 0 {
		t.Fatalf("%q has no %s", flags, name)
	}
	return &flags[i+1]
}

func flagOf(t testing.TB, flags []string, name string) string {
	t.Helper()
	return *flagAt(t, flags, name)
}

// refuseFiles has a folder take no files, until mend is called: a file is in its place.
func refuseFiles(t *testing.T, folder string) (mend func()) {
	t.Helper()
	away := folder + ".away"
	if err := os.Rename(folder, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(away, folder); err != nil {
			t.Fatal(err)
		}
	}
}
