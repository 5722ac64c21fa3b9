package e2e_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/collector"
)

// TestTraces: a command that is traced is one trace with what the namenode did for it; one
// that is not leaves none.
func TestTraces(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	c := collector.Start(t)
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--traces", c.URL)
	n.start(ctx)
	n.run(ctx, "mkdir", "/untraced")
	n.run(ctx, "--traces", c.URL, "mkdir", "/traced")
	n.term(ctx)
	seen, _ := c.Seen()
	for _, name := range []string{"leasefs mkdir", "leasefs.v1.Namenode/Mkdir", "journal"} {
		if len(seen[name]) != 1 {
			t.Errorf("%q is in %d traces; there are %v", name, len(seen[name]), slices.Sorted(maps.Keys(seen)))
			continue
		}
		for id := range seen[name] {
			if !seen["leasefs mkdir"][id] {
				t.Errorf("%q is in a trace of its own", name)
			}
		}
	}
}
