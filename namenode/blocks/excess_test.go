package blocks

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// TestExcess: garbage is too much to wait for its time when it is more than what is kept and something
// to spare, where what only snapshots have is kept as well.
func TestExcess(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		stored, held, more int64
	}{{0, 0, 0}, {0, 0, 1}, {5, 0, 0}, {5, 0, 2}, {0, 7, 0}, {0, 7, 3}, {5, 7, 0}, {5, 7, 4}} {
		n := calls.Counts{Blocks: int(c.stored), StoredBytes: c.stored * size, Held: int(c.held), HeldBytes: c.held * size}
		n.GarbageBytes = (c.stored + c.held + c.more + SpareBlocks) * size
		if got := excessOf(n, 0, size); got != c.more*size {
			t.Errorf("%+v: %d", c, got)
		}
		n.Garbage = int(c.stored+c.held+c.more) + spareKept
		if got := excessOf(n, time.Hour, size); got != c.more*size {
			t.Errorf("%+v, with an archive: %d", c, got)
		}
	}
}
