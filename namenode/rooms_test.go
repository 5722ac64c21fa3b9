package namenode_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// fillingDisk is over its limit by what is kept free.
type fillingDisk struct{ vfs.FS }

func (fillingDisk) Usage(string) (free, total int64, err error) { return 1 << 20, 1 << 30, nil }

// Status and metrics tell what has a limit, what is used up first before the rest, and what is refused
// then.
func TestStatusTellsWhatIsUsedUp(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	n.Restart(t, func(c *namenode.Config) {
		c.FS, c.Reserve, c.MaxConnections, c.TailBudget = fillingDisk{vfs.OS()}, 2<<20, 128, 16<<20
	})
	var rooms []client.Room
	env.Eventually(t, "there is a sample", func() bool {
		list, err := client.QueryStatus(t.Context(), client.Config{Namenodes: []string{n.Addr()}})
		if err == nil && list[0].Err == nil {
			rooms = list[0].Rooms
		}
		return slices.ContainsFunc(rooms, func(r client.Room) bool { return r.Resource == "tails" })
	})
	first := rooms[0]
	if first.Resource != "disk" || first.Limit != 1<<30-2<<20 || first.Used != 1<<30-1<<20 || first.Full == nil || *first.Full != 0 || first.Refused == "" {
		t.Errorf("first comes %+v", first)
	}
	limited := map[string]int64{}
	for _, r := range rooms {
		limited[r.Resource] = r.Limit
		if r.Used < 0 || r.Limit <= 0 || r.Resource != "disk" && r.Full != nil {
			t.Errorf("%+v", r)
		}
	}
	for _, want := range []string{"memory", "disk", "tails", "descriptors", "connections", "sessions", "keepalives", "watches", "waiting", "leases", "results", "owners", "groups"} {
		if limited[want] == 0 {
			t.Errorf("nothing is told of %s: %+v", want, rooms)
		}
	}
	if limited["connections"] != 120 || limited["tails"] != 15<<20 { // all but the last sixteenth: it is the operators'
		t.Errorf("at the limits clients are not refused: %+v", rooms)
	}
	if limited["store"]+limited["zookeeper"]+limited["files"] != 0 {
		t.Errorf("of one alone, whose blocks are in its folder: %+v", rooms)
	}
	_, text := page(t, n.HTTPAddr(), "/metrics")
	for _, line := range []string{`leasefs_limit_full_seconds{resource="disk"} 0`, `leasefs_limit_used_ratio{resource="disk"} 1.`, `leasefs_limit_used_ratio{resource="memory"} 0.`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s", line)
		}
	}
}
