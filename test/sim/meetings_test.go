package sim

import (
	"strings"
	"testing"

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
	c.Add(&folder)
	c.Add(&store)
	for p, want := range map[[2]string]int{pair(a, b): 1, pair(b, d): 1, pair(a, d): 0, pair(a, a): 1} {
		if got := c.pairs[p]; got != want {
			t.Errorf("%v have met %d times, not %d", p, got, want)
		}
	}
	if c.can[pair(folderFaults[0].name, storeFaults[0].name)] || !c.can[pair(folderFaults[0].name, a)] || !c.can[pair(storeFaults[0].name, a)] {
		t.Error("faults of the folder and of the store are of no world together")
	}
	if table := c.String(); !strings.Contains(table, "\n3 of ") {
		t.Errorf("the table:\n%s", table)
	}
}
