package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/size"
)

// Many appends of a line to one file make neither many blocks nor much memory,
// and what the journal keeps of them can be checkpointed away.
func TestManyAppends(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 20*time.Minute)
	n := startNamenode(ctx, t)
	fsys := n.client(ctx)
	appends, processes := size.Of(2_000, 40_000), size.Of(50, 250)
	t.Logf("before: %s", n.usage(ctx))
	before := n.status(ctx)
	var want strings.Builder
	began := time.Now()
	for i := range appends {
		line := fmt.Sprintf("append %d\n", i)
		want.WriteString(line)
		w, err := fsys.Append(ctx, "/log", client.WithCreate())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if err := w.CloseContext(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d appends by the library: %s; %s", appends, since(began), n.usage(ctx))
	began = time.Now()
	for i := range processes {
		line := fmt.Sprintf("process %d\n", i)
		want.WriteString(line)
		n.write(ctx, line, "append", "/log")
	}
	t.Logf("%d by processes: %s; %s", processes, since(began), n.usage(ctx))
	if got := n.run(ctx, "cat", "/log"); got != want.String() {
		t.Fatalf("%d bytes, want %d", len(got), want.Len())
	}

	s := n.status(ctx)
	total := int64(appends + processes)
	if most := uint64(want.Len()>>20 + 2); s.Blocks > most {
		t.Errorf("%d blocks for %d bytes, at most %d expected", s.Blocks, want.Len(), most)
	}
	if s.JournalBytes-before.JournalBytes > 700*total {
		t.Errorf("%d bytes of journal for %d appends", s.JournalBytes-before.JournalBytes, total)
	}
	if grown := s.HeapBytes - before.HeapBytes; grown > 100<<20 {
		t.Errorf("the heap grew by %s", mib(grown))
	}
	if s.Leases != 0 || s.OpenFiles != 0 {
		t.Errorf("%d leases and %d open files are left", s.Leases, s.OpenFiles)
	}
	t.Log(strings.TrimSpace(n.run(ctx, "admin", "checkpoint")), "then:", n.usage(ctx))
	// The journal is kept from the older of two images on.
	n.run(ctx, "touch", "/log")
	t.Log(strings.TrimSpace(n.run(ctx, "admin", "checkpoint")), "then:", n.usage(ctx))
	if left := n.status(ctx).JournalBytes; left > 64<<10 {
		t.Errorf("%d bytes of journal are left after two checkpoints", left)
	}

	n.crash(ctx)
	t.Logf("started again: %s", n.usage(ctx))
	if got := n.run(ctx, "cat", "/log"); got != want.String() {
		t.Fatalf("after a crash: %d bytes, want %d", len(got), want.Len())
	}
	n.fsck(ctx)
}

func TestManySmallFiles(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 20*time.Minute)
	n := startNamenode(ctx, t)
	files := size.Of(2_000, 100_000)
	local := filepath.Join(t.TempDir(), "small")
	for d := range (files + 999) / 1000 {
		dir := filepath.Join(local, fmt.Sprintf("dir%03d", d))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range min(1000, files-1000*d) {
			data := fmt.Appendf(nil, "%0100d", d*1000+i)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%05d", i)), data, 0o644); err != nil { //nolint:gosec // a usual mode
				t.Fatal(err)
			}
		}
	}
	t.Logf("before: %s", n.usage(ctx))
	before := n.status(ctx)
	began := time.Now()
	n.run(ctx, "put", "-r", local, "/small")
	in := time.Since(began)
	s := n.status(ctx)
	t.Logf("%d files of 100 bytes in: %.2f s (%.0f files/s); %s", files, in.Seconds(), float64(files)/in.Seconds(), n.usage(ctx))
	if s.Files != uint64(files) || s.Blocks > 10 { //nolint:gosec // positive
		t.Errorf("%d files, %d blocks", s.Files, s.Blocks)
	}
	if per := (s.JournalBytes - before.JournalBytes) / int64(files); per > 600 {
		t.Errorf("%d bytes of journal a file", per)
	}
	if grown := s.HeapBytes - before.HeapBytes; grown > 64<<20+2000*int64(files) {
		t.Errorf("the heap grew by %s", mib(grown))
	}
	t.Log(strings.TrimSpace(n.run(ctx, "admin", "checkpoint")), "then:", n.usage(ctx))

	began = time.Now()
	n.crash(ctx)
	t.Logf("killed and ready again: %s; %s", since(began), n.usage(ctx))
	out := filepath.Join(t.TempDir(), "out")
	began = time.Now()
	n.run(ctx, "get", "-r", "/small", out)
	t.Logf("out: %s", since(began))
	if got, _ := sameTrees(ctx, t, local, out); got != files {
		t.Errorf("%d files", got)
	}
	began = time.Now()
	n.run(ctx, "rm", "-r", "/small")
	t.Logf("rm -r: %s", since(began))
	eventually(ctx, t, "the memory of the deleted is given back", func() bool { return n.status(ctx).Inodes == 1 })
	t.Logf("after: %s", n.usage(ctx))
}
