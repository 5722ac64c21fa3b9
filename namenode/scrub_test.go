package namenode_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestScrub: what is damaged or gone in the store, of blocks or of images, is found without
// anybody reading it, is told by status, metrics and fsck, also after a restart, and is told no more once it
// was mended or its file deleted.
func TestScrub(t *testing.T) {
	scrub := func(every time.Duration) func(*namenode.Config) {
		return func(c *namenode.Config) { c.Scrub, c.ScrubRate = every, 1<<30 }
	}
	n := env.Start(t, scrub(time.Hour))
	r := n.Raw(t, "a")
	var files []string
	for i := range 3 {
		b := withBlock(t, r, fmt.Sprintf("/f%d", i), strings.Repeat(fmt.Sprint(i), 1000))
		files = append(files, n.BlockFile(t, b.GetTerm(), b.GetSeq()))
	}
	image := checkpoint(t, n, r)
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	damage(t, files[0])
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	n.Restart(t, scrub(50*time.Millisecond))
	fs := n.Client(t)
	damaged := func(what string, want uint64) {
		t.Helper()
		env.Until(t.Context(), t, what, func() bool {
			st, err := fs.Status(t.Context())
			return err == nil && len(st) == 1 && st[0].DamagedBlocks == want && !st[0].Scrubbed.IsZero()
		})
	}
	damaged("a damaged block and one that is gone are found", 2)
	if m := n.Metrics(t); !strings.Contains(m, "\nleasefs_scrub_damaged_blocks 2\n") || strings.Contains(m, "\nleasefs_scrub_bytes_total 0\n") {
		t.Errorf("the metrics tell nothing of it:\n%s", m)
	}

	// A restart knows it before it has read a block again.
	n.Restart(t, scrub(time.Hour))
	fs = n.Client(t)
	damaged("they are known after a restart", 2)
	var problems []string
	if _, err := fs.Admin().Fsck(t.Context(), "", false, func(p client.FsckProblem) error {
		problems = append(problems, p.Path+": "+p.Problem)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	told := func(path, what string) bool {
		for _, p := range problems {
			if strings.HasPrefix(p, path+": block ") && strings.Contains(p, what) {
				return true
			}
		}
		return false
	}
	if !told("/f0", "scrubbed") || !told("/f1", "scrubbed") || told("/f2", "") {
		t.Errorf("fsck says %q", problems)
	}

	if err := os.WriteFile(files[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	remove(t, n.Raw(t, "b"), "/f1")
	n.Restart(t, scrub(50*time.Millisecond))
	fs = n.Client(t)
	damaged("what was put back or deleted is not told any more", 0)
	damage(t, image)
	env.Until(t.Context(), t, "another image takes the place of the damaged one", func() bool {
		names, err := os.ReadDir(filepath.Dir(image))
		return err == nil && strings.HasSuffix(names[len(names)-1].Name(), ".img") && names[len(names)-1].Name() > filepath.Base(image)
	})

	n.Restart(t, scrub(-1))
	st, err := n.Client(t).Status(t.Context())
	if err != nil || st[0].DamagedBlocks != 0 || !st[0].Scrubbed.IsZero() || strings.Contains(n.Metrics(t), "leasefs_scrub") {
		t.Errorf("without a scrub: %+v; %v", st, err)
	}
}
