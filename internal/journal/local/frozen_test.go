package local

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
)

var freeze = flag.Bool("freeze", false, "write the frozen segments of the present version, once")

// TestFrozenSegment: a segment that an earlier release wrote is read for ever, and one of the
// present version is still written so.
func TestFrozenSegment(t *testing.T) {
	for version := uint32(1); version <= formatVersion; version++ {
		file := fmt.Sprintf("../../../testdata/frozen/segment-%d", version)
		s := newSample(t, version)
		if *freeze {
			if err := os.WriteFile(file, s.data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		frozen, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(frozen, s.data) {
			t.Errorf("version %d is written otherwise now", version)
		}
		var got []string
		if err := Read(t.Context(), disk(t, map[string][]byte{s.name: frozen}), dir, 0, func(_ string, _ int64, term uint64, r journal.Record) error {
			got = append(got, fmt.Sprintf("%d of %d: kind %d at %d, %d bytes", r.TxID, term, r.Type, r.Time, len(r.Body)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{
			"1 of 3: kind 1 at 5, 3 bytes", "2 of 3: kind 1 at 10, 3 bytes", "3 of 3: kind 1 at 15, 700 bytes", "4 of 3: kind 2 at 5, 900 bytes", "5 of 3: kind 2 at 10, 1 bytes",
			"6 of 3: kind 3 at 5, 4 bytes", "7 of 3: kind 3 at 10, 4000 bytes", "8 of 3: kind 3 at 15, 300 bytes", "9 of 3: kind 3 at 20, 0 bytes",
		}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("version %d is read as %q", version, got)
		}
	}
}
