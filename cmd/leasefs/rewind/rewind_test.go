package rewind

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode/archive"
)

// TestMoment: a time says its zone, since the machine's own may be another than that of the log
// in which somebody has read it.
func TestMoment(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]archive.At{
		"newest": {}, "4711": {TxID: 4711}, "2026-01-31T12:00:00Z": {Time: noon}, "2026-01-31T13:00:00+01:00": {Time: noon}, "2026-01-31T12:00:00.5Z": {Time: noon.Add(time.Second / 2)},
	} {
		if at, err := Moment("restore", text); err != nil || at.TxID != want.TxID || !at.Time.Equal(want.Time) {
			t.Errorf("%s: %+v, %v", text, at, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "2026-01-31T12:00:00", "2026-01-31", "tomorrow", "18446744073709551616"} {
		if at, err := Moment("restore", text); err == nil {
			t.Errorf("%q is %+v", text, at)
		}
	}
}
