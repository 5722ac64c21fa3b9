package e2e_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
)

// Scenario 35, with real kills: two files are open, their parent is renamed, one
// more block is written, and the namenode is killed twice. The names are right,
// the leases are there, and the writers continue.
func TestRenamedUnderWritersOverKills(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	const block = 1 << 20
	fsys, err := client.New(ctx, client.Config{Namenodes: []string{n.listen}, Client: "writer", BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	if err := fsys.MkdirAll(ctx, "/d", 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *client.Writer {
		w, err := fsys.Create(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	flush := func(w *client.Writer, data []byte) {
		t.Helper()
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	data := bytes.Repeat([]byte("0123456789abcde\n"), 3*block/16)
	one, two := open("/d/1"), open("/d/2")
	flush(one, data[:block])
	flush(two, []byte("two"))
	n.run(ctx, "mv", "/d", "/e")
	flush(one, data[block:2*block])

	blocks := n.status(ctx).Blocks
	if blocks < 2 {
		t.Errorf("%d blocks, 2 were written", blocks)
	}
	for range 2 {
		n.crash(ctx)
		var held struct {
			Holder string `json:"holder"`
			Files  []struct {
				Path string `json:"path"`
			} `json:"files"`
		}
		if err := json.Unmarshal([]byte(n.run(ctx, "lease", "ls", "--json", "--holder", "writer")), &held); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, f := range held.Files {
			paths = append(paths, f.Path)
		}
		slices.Sort(paths)
		if held.Holder != "writer" || !slices.Equal(paths, []string{"/e/1", "/e/2"}) {
			t.Errorf("%q holds %q", held.Holder, paths)
		}
		if got := n.run(ctx, "cat", "/e/1"); got != string(data[:2*block]) {
			t.Errorf("/e/1 has %d bytes that are not those written", len(got))
		}
		if got := n.run(ctx, "cat", "/e/2"); got != "two" {
			t.Errorf("/e/2: %q", got)
		}
		if got := n.run(ctx, "find", "/"); got != "/\n/e\n/e/1\n/e/2\n" {
			t.Errorf("%q", got)
		}
		names(t, n.fails(ctx, 5, "x", "append", "/e/2"), "held by writer")
		n.fails(ctx, 3, "x", "append", "/d/2")
		if got := n.status(ctx).Blocks; got != blocks {
			t.Errorf("%d blocks, there were %d", got, blocks)
		}
	}
	flush(one, data[2*block:])
	flush(two, []byte(" and more"))
	for _, w := range []*client.Writer{one, two} {
		if err := w.CloseContext(ctx); err != nil {
			t.Error(err)
		}
	}
	if got := n.run(ctx, "cat", "/e/1"); got != string(data) {
		t.Errorf("/e/1 has %d bytes that are not those written", len(got))
	}
	if got := n.run(ctx, "cat", "/e/2"); got != "two and more" {
		t.Errorf("/e/2: %q", got)
	}
	if s := n.status(ctx); s.Leases != 0 || s.OpenFiles != 0 {
		t.Errorf("%d leases, %d open files are left", s.Leases, s.OpenFiles)
	}
	n.fsck(ctx)
}
