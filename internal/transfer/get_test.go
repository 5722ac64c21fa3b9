package transfer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env"
)

// directories is what each directory at or below a path is: its names, its mode and its
// time.
type directories map[string]string

func (d directories) look(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	d[path] = fmt.Sprint(entries, info.Mode(), info.ModTime())
	return err
}

func below(t *testing.T, base string) directories {
	t.Helper()
	d := directories{}
	err := filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return d.look(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// When a tree was copied out, each directory that was made for it, or got a name, was
// synced as it is now: a power cut leaves all of the copy, with its modes and times.
func TestGetSyncsDirectories(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fsys := env.Start(t).Client(t)
	check := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	then := time.Unix(1_700_000_000, 0)
	check(fsys.MkdirAll(ctx, "/tree/empty/empty", 0o755), fsys.MkdirAll(ctx, "/tree/full", 0o755), fsys.MkdirAll(ctx, "/tree/links", 0o755),
		fsys.WriteFile(ctx, "/tree/full/file", []byte("bytes")), fsys.Symlink(ctx, "to", "/tree/links/link"))
	for _, dir := range []string{"/tree/empty/empty", "/tree/empty", "/tree/full", "/tree"} {
		check(fsys.Chmod(ctx, dir, 0o710), fsys.Chtimes(ctx, dir, then))
	}
	for _, c := range []struct {
		name, there, remote, local string
	}{
		{"made", "", "/tree", "copy"},
		{"made with its parents", "", "/tree", "not/there/copy"},
		{"a file, with its parents", "", "/tree/full/file", "not/there/copy"},
		{"into what is there", "old", "/tree", "old"},
		{"merged", "old/tree/full", "/tree", "old"},
		{"all of the namespace", "old/tree/full", "/", "old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			if err := os.MkdirAll(filepath.Join(base, c.there), 0o750); err != nil {
				t.Fatal(err)
			}
			before, synced := below(t, base), directories{}
			g := newGetter(fsys, Options{Recursive: true, Parents: true}, func(d *os.File) error { return synced.look(filepath.Clean(d.Name())) })
			if err := g.run(ctx, c.remote, filepath.Join(base, c.local)); err != nil {
				t.Fatal(err)
			}
			changed := 0
			for path, now := range below(t, base) {
				if now == before[path] {
					continue
				}
				changed++
				if synced[path] != now {
					t.Errorf("%s is %s; when it was synced last it was %q", path, now, synced[path])
				}
			}
			if changed == 0 {
				t.Error("nothing was copied")
			}
		})
	}
}
