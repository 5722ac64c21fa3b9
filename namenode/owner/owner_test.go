package owner

import (
	"context"
	"log/slog"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TestVouched: only numbers between a reign's base and the highest that a record names
// are surely of this history.
func TestVouched(t *testing.T) {
	counted := tables.Reign{Term: 5, Nonce: [16]byte{7}}
	base := counted.Base()
	counted.Top = base + 10
	idle := tables.Reign{Term: 6, Nonce: [16]byte{8}}            // committed nothing
	earlier := tables.Reign{Term: 4, Nonce: [16]byte{9}, Top: 3} // of a release that counted from one
	reigns := []tables.Reign{earlier, counted, idle}
	shared, private := New(Config{}), New(Config{Private: true})
	for _, c := range []struct {
		name         string
		key          blockstore.Key
		ours, folder bool
	}{
		{"first", blockstore.Key{Term: 5, Seq: base + 1}, true, true},
		{"last that a record names", blockstore.Key{Term: 5, Seq: base + 10}, true, true},
		{"beyond it", blockstore.Key{Term: 5, Seq: base + 11}, false, true},
		{"the base", blockstore.Key{Term: 5, Seq: base}, false, true},
		{"of a copy with a lower base", blockstore.Key{Term: 5, Seq: base - 1<<20}, false, true},
		{"a small number", blockstore.Key{Term: 5, Seq: 1}, false, true},
		{"of a reign without commits", blockstore.Key{Term: 6, Seq: idle.Base() + 1}, false, true},
		{"zero, without commits", blockstore.Key{Term: 6}, false, true},
		{"of an earlier release", blockstore.Key{Term: 4, Seq: 2}, false, true},
		{"of an unknown reign", blockstore.Key{Term: 7, Seq: base + 1}, false, false},
	} {
		if got := shared.Vouched(reigns, c.key); got != c.ours {
			t.Errorf("%s, shared: %v", c.name, got)
		}
		if got := private.Vouched(reigns, c.key); got != c.folder {
			t.Errorf("%s, in a folder of its own: %v", c.name, got)
		}
	}
}

// empty is a store that has nothing.
type empty struct {
	blockstore.Store
	blockstore.Objects
}

func (empty) List(context.Context, blockstore.Key, int) ([]blockstore.Info, error) { return nil, nil }

func (empty) ListNamed(context.Context, string, string, int) ([]blockstore.NamedInfo, error) {
	return nil, nil
}

// TestNextTermIsNotThatOfTheArchive: the reign that has ended a conflict archives in a term above
// its own, and above those of all incarnations before. No later reign has that one.
func TestNextTermIsNotThatOfTheArchive(t *testing.T) {
	for name, c := range map[string]struct {
		floor, term    uint64
		archives, next uint64
	}{
		"of the first incarnation":   {0, 1, 1, 2},
		"which ended the conflict":   {70, 5, 71, 72},
		"the first after a conflict": {70, 72, 72, 73},
	} {
		o := New(Config{Log: slog.New(slog.DiscardHandler), Store: empty{}, Objects: empty{}})
		o.mine.Store(&marker.Incarnation{Number: 1, TermFloor: c.floor})
		o.Begin(c.term, "")
		archives, err := o.Overrules()
		if err != nil || archives != c.archives {
			t.Errorf("a reign %s archives in term %d, not %d (%v)", name, archives, c.archives, err)
		}
		if next, err := o.NextTerm(t.Context(), c.term); err != nil || next != c.next {
			t.Errorf("behind a reign %s comes term %d, not %d (%v)", name, next, c.next, err)
		}
	}
}
