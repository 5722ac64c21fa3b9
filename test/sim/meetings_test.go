package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/sim/s3model"
)

// What was there together counts, once for each beginning, and no other.
func TestCoverage(t *testing.T) {
	var c Coverage
	var folder, store World
	store.store = s3model.New(s3model.Config{})
	a, b, d := loseAnswers.name, depose.name, pause.name
	folder.meet(a)
	folder.meet(b) // beside a
	folder.part(a)
	folder.meet(d) // beside b
	folder.part(b)
	folder.part(d)
	store.meet(a)
	store.meet(a) // beside itself
	folder.lasted, store.lasted = time.Hour, 30*time.Minute
	folder.failovers, store.failovers = 3, 4
	folder.calls.Store(100)
	store.calls.Store(20)
	store.truth = newTruth(&store.Work)
	folder.truth = newTruth(&folder.Work)
	folder.truth.failures = []string{"a promise"}
	c.Add(&folder, time.Minute)
	c.Add(&store, 30*time.Second)
	for p, want := range map[[2]string]int{pair(a, b): 1, pair(b, d): 1, pair(a, d): 0, pair(a, a): 1} {
		if got := c.pairs[p]; got != want {
			t.Errorf("%v have met %d times, not %d", p, got, want)
		}
	}
	if c.can[pair(folderFaults[0].name, storeFaults[0].name)] || !c.can[pair(folderFaults[0].name, a)] || !c.can[pair(storeFaults[0].name, a)] {
		t.Error("faults of the folder and of the store are of no world together")
	}
	if sum, want := c.Sum(), "sum: worlds=2 broken=1 simulated_hours=1.50 machine_minutes=1.50 failovers=7 calls=120 faults=5 pairs=3/"; !strings.HasPrefix(sum, want) {
		t.Errorf("%s\nwant %s…", sum, want)
	}
}
