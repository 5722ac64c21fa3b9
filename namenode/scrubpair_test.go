package namenode_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestScrubOfSeveral: what the scrub of one namenode has found the next active one tells at once,
// by status, metrics and fsck, and the first one, a standby, tells no more; and once the block
// is back, nobody does, whoever is active. Another image takes the place of a damaged one in the store.
func TestScrubOfSeveral(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	every := func(d time.Duration) func(*namenode.Config) {
		return func(c *namenode.Config) { c.Scrub, c.ScrubRate = d, 1<<30 }
	}
	acfg, _ := p.config(every(50 * time.Millisecond))
	bcfg, _ := p.config(every(100 * time.Hour)) // it finds nothing in this test
	a := p.active(acfg)
	b := p.start(bcfg)
	p.becomes(b, "standby")
	r := env.RawAt(t, acfg.Listen, "a")
	block := withBlock(t, r, "/f", strings.Repeat("x", 1000))
	var file string
	if err := filepath.WalkDir(p.blocks, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == fmt.Sprintf("%016x.blk", block.GetSeq()) {
			file = path
		}
		return err
	}); err != nil || file == "" {
		t.Fatal(file, err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tells := func(s *namenode.Server, want uint64) bool {
		list, err := client.QueryStatus(t.Context(), client.Config{Namenodes: []string{s.Addr()}})
		if err != nil || list[0].Err != nil || list[0].DamagedBlocks != want {
			return false
		}
		_, text := page(t, s.HTTPAddr(), "/metrics")
		return strings.Contains(text, fmt.Sprintf("\nleasefs_scrub_damaged_blocks %d\n", want))
	}
	damage(t, file)
	p.eventually("the damaged block is found", func() bool { return tells(a, 1) })
	p.eventually("that is in the store", func() bool {
		told, err := filepath.Glob(filepath.Join(p.blocks, "*", "named", "scrub-*"))
		if err != nil || len(told) == 0 {
			return false
		}
		text, err := os.ReadFile(told[len(told)-1])
		return err == nil && strings.Contains(string(text), fmt.Sprintf(`"Seq":%d`, block.GetSeq()))
	})

	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.becomes(b, "active")
	p.eventually("the next active one knows of it", func() bool { return tells(b, 1) })
	a = p.start(acfg) // whose file has it
	p.becomes(a, "standby")
	if _, text := page(t, a.HTTPAddr(), "/metrics"); strings.Contains(text, "leasefs_scrub") {
		t.Errorf("a standby tells of its scrub:\n%s", text)
	}
	var problems []string
	fsys := p.client(bcfg.Listen)
	if _, err := fsys.Admin().Fsck(t.Context(), "", false, func(f client.FsckProblem) error {
		problems = append(problems, f.Path+": "+f.Problem)
		return nil
	}); err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], "/f: block ") {
		t.Errorf("fsck says %q, %v", problems, err)
	}

	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	p.becomes(a, "active")
	p.eventually("what is mended is told no more", func() bool { return tells(a, 0) })

	r = env.RawAt(t, acfg.Listen, "c")
	if _, err := r.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.Who}); err != nil {
		t.Fatal(err)
	}
	newest := func() string {
		images, err := filepath.Glob(filepath.Join(p.blocks, "*", "named", "image-*"))
		if err != nil || len(images) == 0 {
			t.Fatal(images, err)
		}
		return images[len(images)-1]
	}
	image := newest()
	damage(t, image)
	p.eventually("another image takes the place of the damaged one", func() bool { return newest() > image })
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestBlockThatIsNotListed: a block that is gone is found by the hourly listing of the store, long
// before its turn comes in a pass; and nothing else is suspected, though there are files that are
// being written and deleted.
func TestBlockThatIsNotListed(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) {
		c.SweepEvery, c.CollectEvery = 20*time.Millisecond, 20*time.Millisecond
	})
	r := n.Raw(t, "a")
	gone := withBlock(t, r, "/gone", strings.Repeat("x", 1000))
	fsys := n.Client(t)
	damaged := func() uint64 {
		st, err := fsys.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st[0].DamagedBlocks
	}
	for i := range 50 {
		withBlock(t, r, fmt.Sprint("/kept", i), "kept")
		withBlock(t, r, fmt.Sprint("/removed", i), "removed")
		remove(t, r, fmt.Sprint("/removed", i))
	}
	if got := damaged(); got != 0 || !strings.Contains(n.Metrics(t), "\nleasefs_scrub_bytes_total 0\n") {
		t.Errorf("%d damaged blocks, and some were read:\n%s", got, n.Metrics(t))
	}
	if err := os.Remove(n.BlockFile(t, gone.GetTerm(), gone.GetSeq())); err != nil {
		t.Fatal(err)
	}
	env.Until(t.Context(), t, "the listing lacks it", func() bool { return damaged() == 1 })
}
