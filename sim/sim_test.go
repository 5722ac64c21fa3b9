package sim_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/sim"
)

var (
	seed   = flag.Uint64("seed", 1, "the first seed")
	seeds  = flag.Uint64("seeds", 2, "how many worlds to run, each with the next seed")
	length = flag.Duration("length", 2*time.Minute, "of the work in each, in simulated time")
	calm   = flag.Bool("calm", false, "nothing fails")
	traces = flag.String("trace", "", "the folder to which the trace of each world is written, as text, JSON and a page that draws it")
)

// TestWorlds runs whole fleets in which things fail. A world that breaks a promise
// leaves its history in a file, whose name is printed with the seed.
func TestWorlds(t *testing.T) {
	for s := *seed; s < *seed+*seeds; s++ {
		began := time.Now()
		var w *sim.World
		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			w = sim.New(t, sim.Config{Seed: s, Length: *length, Calm: *calm, S3: s%2 == 0})
			start := time.Now()
			w.Run()
			took = time.Since(start)
		})
		t.Logf("seed %d: %v simulated in %v: %v", s, took, time.Since(began), w.Done())
		dir, name, broken := *traces, fmt.Sprintf("seed-%d", s), w.Broken()
		if dir == "" && len(broken) > 0 {
			dir, name = os.TempDir(), "leasefs-sim-history" //nolint:usetesting // to be read after the test
		}
		if dir != "" {
			path, err := w.WriteTrace(dir, name)
			if err != nil {
				t.Error(err)
			}
			name = path
		}
		if len(broken) > 0 {
			t.Errorf("seed %d breaks promises; its history is in %s.txt, and %[2]s.html draws it", s, name)
			for _, what := range broken[:min(len(broken), 10)] {
				t.Error(what)
			}
			return
		}
	}
}
