package room

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// What is used up within 30 days, or nearly, is shown to people; all is in JSON.
func TestWhatIsNearlyUsedUp(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) *time.Duration { return &d }
	s := client.NamenodeStatus{Address: "a:1", RoomStatus: client.RoomStatus{
		Rooms: []client.Room{
			{Resource: "disk", Used: 3 << 30, Limit: 4 << 30, Full: in(5*time.Hour + time.Minute), Refused: "writing"},
			{Resource: "memory", Used: 3 << 20, Limit: 4 << 20, Full: in(31 * 24 * time.Hour), Refused: "a later thing"},
			{Resource: "watches", Used: 95, Limit: 100, Refused: "watches"},
			{Resource: "tails", Used: 89, Limit: 100, Refused: "a thing with room"},
		},
		Quotas: []client.FullQuota{{Path: "/p", Names: 10, UsedNames: 10, Bytes: -1, UsedBytes: 5}},
	}}
	show := func(list ...client.NamenodeStatus) string {
		var out strings.Builder
		p := &screen.Printer{Out: bufio.NewWriter(&out)}
		if err := Tables(p, list); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `
FULLEST  AT   USED  OF         FULL IN  REFUSED THEN
disk     a:1  3.0G  4.0G  75%  5h       writing
watches  a:1  95    100   95%  -        watches

FULL QUOTAS
NAMES  OF        BYTES  OF  SNAPSHOTS  PATH
10     10  100%  5      -   0          /p
`
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if got := show(s); squeeze(got) != squeeze(want) {
		t.Errorf("%s", got)
	}
	if got := show(client.NamenodeStatus{Address: "b:1"}); got != "" {
		t.Errorf("of one that has room: %q", got)
	}
	b, err := json.Marshal(ReportOf(&s))
	if err != nil || strings.Count(string(b), `"resource"`) != 4 || !strings.Contains(string(b), `{"resource":"disk","used":3221225472,"limit":4294967296,"full_ms":18060000,"refused":"writing"}`) ||
		!strings.Contains(string(b), `"full_ms":null`) || !strings.Contains(string(b), `"quotas":[{"path":"/p","names":10,"used_names":10,"bytes":null,"used_bytes":5,"snapshot_bytes":0}]`) {
		t.Errorf("%s %v", b, err)
	}
}

func TestTimesUntilFull(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "now", time.Second: "1m", 119 * time.Minute: "119m", 47 * time.Hour: "47h", 72 * time.Hour: "3d",
	} {
		if got := in(&d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	if in(nil) != "-" {
		t.Error("what does not grow has a time")
	}
}
