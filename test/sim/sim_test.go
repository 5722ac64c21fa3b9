package sim_test

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/test/sim"
)

var (
	seed   = flag.Uint64("seed", 1, "the first seed")
	seeds  = flag.Uint64("seeds", 2, "how many worlds to run, each with the next seed")
	hours  = flag.Float64("hours", 0, "run worlds for so long, -seeds of them at most, whether they break promises or not, and tell which faults met; an interrupt ends it early")
	length = flag.Duration("length", 2*time.Minute, "of the work in each shift, in simulated time")
	shifts = flag.Int("shifts", 1, "how often in each world clients work while things fail, all heals and is checked, all namenodes crash, and all is checked again")
	first  = flag.Bool("first", false, "end the program with the first broken promise, without a trace")
	sparse = flag.Bool("sparse", false, "clients think between calls, for ten milliseconds to ten seconds, and something begins to fail twice a minute, not ten times")
	calm   = flag.Bool("calm", false, "nothing fails")
	faults = flag.String("faults", "", "a regular expression: only faults whose names it matches")
	traces = flag.String("trace", "", "the folder to which the trace of each world is written, as text, JSON and a page that draws it")
)

// firstBroken is what -first prints.
const firstBroken = "seed %d breaks a promise: %s\n"

// TestWorlds runs whole fleets in which things fail. A world that breaks a promise
// leaves its trace in files, whose names are printed with the seed.
func TestWorlds(t *testing.T) {
	another := func() bool { return !t.Failed() }
	if *hours > 0 {
		ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
		defer stop()
		end := time.Now().Add(time.Duration(*hours * float64(time.Hour)))
		another = func() bool { return time.Now().Before(end) && ctx.Err() == nil }
	}
	var all sim.Coverage
	var broken []uint64
	for s := *seed; s < *seed+*seeds && another(); s++ {
		began := time.Now()
		w := run(t, s)
		all.Add(w, time.Since(began))
		if len(w.Broken()) > 0 {
			broken = append(broken, s)
		}
	}
	if *hours > 0 {
		t.Logf("promises were broken in the worlds of seeds %v\n%v", broken, &all)
	}
	t.Log(all.Sum())
}

// standstill is after how long a world of one shift ends in which time does not pass: of two
// goroutines one waits for time, and has a mutex that the other waits for.
const standstill = 15 * time.Minute

// run runs the world of a seed.
func run(t *testing.T, seed uint64) *sim.World {
	only, err := regexp.Compile(*faults)
	if err != nil {
		t.Fatalf("-faults: %v", err)
	}
	limit := standstill * time.Duration(max(*shifts, 1))
	watchdog := time.AfterFunc(limit, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the world of seed %d does not end in %v: find the goroutine that waits for a mutex", seed, limit))
	})
	defer watchdog.Stop()
	began := time.Now()
	var w *sim.World
	var took time.Duration
	synctest.Test(t, func(t *testing.T) {
		cfg := sim.Config{Seed: seed, Length: *length, Shifts: *shifts, Calm: *calm, Sparse: *sparse, Faults: only, S3: seed%2 == 0}
		if *first {
			cfg.Broken = func(what string) {
				fmt.Printf(firstBroken, seed, what)
				os.Exit(1)
			}
		}
		w = sim.New(t, cfg)
		start := time.Now()
		w.Run()
		took = time.Since(start)
	})
	broken := w.Broken()
	t.Logf("seed %d: %v simulated in %v, %d promises broken: %v", seed, took.Round(time.Second), time.Since(began).Round(time.Second), len(broken), w.Done())
	dir := *traces
	if dir == "" && len(broken) > 0 {
		dir = os.TempDir() //nolint:usetesting // to be read after the test
	}
	if dir != "" {
		path, err := w.WriteTrace(dir, fmt.Sprintf("leasefs-sim-%d", seed))
		if err != nil {
			t.Error(err)
		}
		if len(broken) > 0 {
			t.Errorf("seed %d breaks promises; its history is in %s.txt, and %[2]s.html draws it; -seed %[1]d -seeds 1 -length %[3]v -shifts %[4]d -sparse=%[5]t -faults %[6]q runs it again", seed, path, *length, *shifts, *sparse, *faults)
		}
	}
	for _, what := range broken[:min(len(broken), 10)] {
		t.Error(what)
	}
	return w
}
