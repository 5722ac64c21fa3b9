package blocks

import (
	"testing"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TestReclaimContinues: a reign begins with a look for what the one before did not give back.
func TestReclaimContinues(t *testing.T) {
	bs := New(Config{})
	bs.Begin(tables.Reign{Term: 2}, 0)
	if len(bs.Deleted) != 1 {
		t.Error("nothing is reclaimed before the next deletion, or tick")
	}
}
