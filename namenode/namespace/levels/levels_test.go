package levels

import (
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// TestTable: levels only add. What a level has once it is released never changes: the first one's
// is written down here.
func TestTable(t *testing.T) {
	if first := At(First); first.Image != 12 || len(first.Records) > 0 {
		t.Errorf("the first level is now %+v", first)
	}
	seen := map[uint8]uint64{}
	for l := uint64(First); l <= Newest(); l++ {
		at := At(l)
		if at.Brings == "" || l > First && at.Image < At(l-1).Image {
			t.Errorf("level %d: %+v", l, at)
		}
		for _, kind := range at.Records {
			if was, twice := seen[kind]; twice {
				t.Errorf("kind %d is of levels %d and %d", kind, was, l)
			}
			seen[kind] = l
			if Of(kind) != l {
				t.Errorf("kind %d is of level %d", kind, Of(kind))
			}
		}
	}
	if Of(Raise) != 2 || Of(1) != First {
		t.Error(Of(Raise), Of(1))
	}
}

// TestCheck: what a level does not have is refused, with what brings it.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		level uint64
		kind  uint8
		want  string
	}{
		{1, 1, ""}, {2, 1, ""}, {2, Raise, ""},
		{1, Raise, "quotas, snapshots: feature level 2 has this, and the namespace is at level 1, so that the release before can still serve it"},
	} {
		err := Check(c.level, c.kind)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want || fserror.ReasonOf(err) != fserror.ReasonLevel) {
			t.Errorf("kind %d at level %d: %v", c.kind, c.level, err)
		}
	}
	if got := Between(1, 2); got != "quotas, snapshots" {
		t.Error(got)
	}
	if got := Between(2, 2); got != "" {
		t.Error(got)
	}
}

// TestKnown: a level above this program's is refused with who raised it, as far as that is known.
func TestKnown(t *testing.T) {
	if err := (State{Level: Newest()}).Known("x"); err != nil {
		t.Error(err)
	}
	err := State{Level: 99}.Known("the backup")
	if want := "the backup is at feature level 99, and this release of leasefs knows levels up to 2: install the release that raised it, or a newer one"; err == nil || err.Error() != want {
		t.Error(err)
	}
}
