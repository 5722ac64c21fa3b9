package namenode_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env"
)

// shown is what is at a path of this machine and below it, by its relative path: the content of files,
// the targets of links, and for directories a slash.
func shown(t *testing.T, top string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		text := "/"
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			text, err = os.Readlink(path)
		case d.Type().IsRegular():
			var raw []byte
			raw, err = os.ReadFile(path)
			text = string(raw)
		}
		all[rel] = text
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFilesOfAMoment: a directory, or a file, comes back as plain files while the archive has its
// blocks; later what has blocks is left out and told, and all else comes.
func TestFilesOfAMoment(t *testing.T) {
	t.Parallel()
	const keep = 6 * time.Hour
	clk, fake := env.FakeClock()
	blocks := t.TempDir()
	n := env.Start(t, fake, archived(blocks, keep))
	r, c := n.Raw(t, "a"), n.Client(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	content := strings.Repeat("precious", 1000)
	must(c.MkdirAll(t.Context(), "/top/dir/sub", 0o755))
	withBlock(t, r, "/top/dir/sub/large", content)
	must(c.WriteFile(t.Context(), "/top/dir/small", []byte("tail")))
	must(c.WriteFile(t.Context(), "/top/other", []byte("not asked for")))
	must(c.Chmod(t.Context(), "/top/dir/small", 0o4640))
	must(c.Chmod(t.Context(), "/top/dir/sub", 0o500))
	must(c.Symlink(t.Context(), "/etc/passwd", "/top/dir/link"))
	at := time.UnixMilli(1_234_567_000)
	must(c.Chtimes(t.Context(), "/top/dir/sub/large", at))
	before := r.TxID()
	must(c.RemoveAll(t.Context(), "/top"))
	archivedTo(t, blocks, r.TxID())
	off, err := n.Config().Offline()
	must(err)
	get := func(path, dir string) (offline.Files, error) {
		return offline.RewindFiles(t.Context(), offline.Rewinding{Config: off, At: archive.At{TxID: before}, Path: path, Dir: dir})
	}
	all := map[string]string{".": "/", "sub": "/", "sub/large": content, "small": "tail", "link": "/etc/passwd"}
	same := func(dir string, want map[string]string) {
		t.Helper()
		got := shown(t, dir)
		if len(got) != len(want) {
			t.Errorf("%d things, want %d", len(got), len(want))
		}
		for path, text := range want {
			if got[path] != text {
				t.Errorf("%s is %.20q, want %.20q", path, got[path], text)
			}
		}
	}

	dir := filepath.Join(t.TempDir(), "dir")
	done, err := get("/top/dir", dir)
	if err != nil || done.TxID != before || done.Files != 2 || done.Bytes != int64(len(content)+4) || len(done.Missing) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	same(dir, all)
	for path, mode := range map[string]fs.FileMode{"small": 0o640, "sub": 0o500 | fs.ModeDir} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "sub", "large")); err != nil || !info.ModTime().Equal(at) {
		t.Errorf("%v, %v", info.ModTime(), err)
	}
	if _, err := get("/top/dir", dir); !errors.Is(err, fserror.Exists) {
		t.Errorf("over what is there: %v", err)
	}
	same(dir, all)
	file := filepath.Join(t.TempDir(), "file")
	if done, err := get("/top/dir/sub/large", file); err != nil || done.Files != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	same(file, map[string]string{".": content})
	none := filepath.Join(t.TempDir(), "none")
	if _, err := get("/top/none", none); !errors.Is(err, fserror.NotFound) {
		t.Errorf("what was not there: %v", err)
	}
	if _, err := get("/top/dir", filepath.Join(none, "below")); !errors.Is(err, fserror.NotFound) {
		t.Errorf("in no folder: %v", err)
	}

	clk.Advance(2 * keep)
	if deleted, _, err := n.CollectGarbage(t.Context()); err != nil || deleted != 1 {
		t.Fatalf("%d were deleted, %v", deleted, err)
	}
	dir = filepath.Join(t.TempDir(), "later")
	done, err = get("/top/dir", dir)
	if err != nil || done.Files != 1 || !slices.Equal(done.Missing, []string{"/top/dir/sub/large"}) {
		t.Errorf("%+v, %v", done, err)
	}
	delete(all, "sub/large")
	same(dir, all)
}
