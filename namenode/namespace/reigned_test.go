package namespace

import (
	"math"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Time that goes by between two reigns, which nobody can measure, forgets no
// result and lets no garbage age; time within a reign does.
func TestOnlyTimeWithinReignsCounts(t *testing.T) {
	r := newRig(t)
	id := CallID{Session: SessionID{5}, Seq: 1, Hash: 1}
	if _, err := r.apply(id, &OpMkdir{Parent: RootID, Names: []string{"d"}, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	r.must(t, &OpTombstone{Blocks: []tables.StoredBlock{{Key: blockstore.Key{Term: 1, Seq: 7}, Stored: 5}}})
	known := func() bool {
		t.Helper()
		_, ok, err := r.tree.CallResult(id)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	before := r.tree.Reigned()
	const year = 365 * 24 * 3600 * 1000
	for term := uint64(2); term < 5; term++ {
		r.now += year
		r.must(t, &OpActivate{Term: term})
		r.must(t, &OpSafeMode{})
	}
	if !known() || len(r.tree.Garbage().Oldest(before-1, 1, math.MaxInt64)) != 0 {
		t.Error("three years without a reign have counted")
	}
	if lasted := r.tree.Reigned() - before; lasted != 3 {
		t.Errorf("the reigns lasted %d ms, want 3", lasted)
	}
	back := roundTrip(t, r.tree)
	if back.Reigned() != r.tree.Reigned() {
		t.Error("the image has another time of reigns")
	}
	r.now += tables.SessionTTL + 32_000
	r.must(t, &OpSafeMode{})
	if known() {
		t.Error("time within a reign forgets no result")
	}
	if g := r.tree.Garbage().Oldest(r.tree.Reigned()-tables.SessionTTL, 1, math.MaxInt64); len(g) != 1 {
		t.Error("time within a reign lets no garbage age")
	}
}
