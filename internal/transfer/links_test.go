package transfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

const secret = "what lies outside"

// must fails the test if there is an error. It is called by hooks, too, and so
// cannot end it.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// outside is a local directory with a file in it.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte(secret), 0o600))
	return dir
}

// untouched fails the test if anything but its file is in a directory of outside.
func untouched(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil || len(entries) != 1 || string(data) != secret {
		t.Errorf("the copy reached outside of its target: %v, %q, %v", entries, data, err)
	}
}

// once runs f at the first message of that name, before it is sent.
func once(w *env.Wire, name string, f func()) {
	var one sync.Once
	w.Set(func(method string, _ any, send func() error) error {
		if method == name {
			one.Do(f)
		}
		return send()
	})
}

// holds fails the test if some file below a local directory has the secret.
func holds(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), secret) {
			t.Errorf("%s holds what lies outside of the source", path)
		}
		return err
	})
	must(t, err)
}

// holdsIn is holds for a namespace.
func holdsIn(t *testing.T, fs *client.FS, dir string) {
	t.Helper()
	for i, err := range fs.Find(t.Context(), dir, client.FindOptions{}) {
		if err != nil {
			break // there is no copy
		}
		if i.Mode().IsRegular() {
			data, err := fs.ReadFile(t.Context(), i.Path)
			must(t, err)
			if strings.Contains(string(data), secret) {
				t.Errorf("%s holds what lies outside of the source", i.Path)
			}
		}
	}
}

// A copy out of a namespace follows no link that an earlier copy made in its target.
func TestGetStaysInItsTarget(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	fs := n.Client(t)
	out := outside(t)
	must(t, fs.MkdirAll(ctx, "/a/x", 0o755), fs.Symlink(ctx, out, "/a/x/d"),
		fs.MkdirAll(ctx, "/b/x/d", 0o755), fs.WriteFile(ctx, "/b/x/d/f", []byte("new")), fs.WriteFile(ctx, "/b/x/d/g", []byte("new")))
	target := t.TempDir()
	opts := transfer.Options{Recursive: true, Overwrite: true, Xattrs: true}
	_, err := transfer.Get(ctx, fs, "/a/x", target, opts)
	must(t, err)
	if _, err := transfer.Get(ctx, fs, "/b/x", target, opts); !errors.Is(err, fserror.NotDirectory) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a tree onto a link: %v", err)
	}
	untouched(t, out)

	// Not even when the link takes the place of a directory in the middle.
	wired, wire := n.Wired(t)
	target = filepath.Join(t.TempDir(), "copy")
	once(wire, "GetFile", func() {
		dir := filepath.Join(target, "d")
		must(t, os.RemoveAll(dir), os.Symlink(out, dir))
	})
	if _, err := transfer.Get(ctx, wired, "/b/x", target, opts); err == nil {
		t.Error("a tree whose directory became a link was copied")
	}
	untouched(t, out)
}

// A single file does not follow one at its own name either.
func TestGetReplacesALink(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fs := env.Start(t).Client(t)
	out := outside(t)
	must(t, fs.WriteFile(ctx, "/f", []byte("new")))
	target := t.TempDir()
	must(t, os.Symlink(filepath.Join(out, "f"), filepath.Join(target, "f")))
	if _, err := transfer.Get(ctx, fs, "/f", target, transfer.Options{}); !errors.Is(err, fserror.Exists) {
		t.Errorf("onto a link: %v", err)
	}
	_, err := transfer.Get(ctx, fs, "/f", target, transfer.Options{Overwrite: true})
	must(t, err)
	untouched(t, out)
	if info, err := os.Lstat(filepath.Join(target, "f")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the copy is %v, %v", info, err)
	}
}

// A copy out of a namespace has only what is below its source, whatever takes the
// place of a file or directory there while it runs.
func TestGetReadsOnlyItsSource(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	fs := n.Client(t)
	must(t, fs.MkdirAll(ctx, "/outside", 0o755), fs.WriteFile(ctx, "/outside/f", []byte(secret)))
	for _, replace := range []struct{ at, path, target string }{
		{"GetFile", "/src/d/f", "/outside/f"},
		{"List", "/src/d", "/outside"},
		{"List", "/src", "/outside"},
	} {
		must(t, fs.RemoveAll(ctx, "/src"), fs.MkdirAll(ctx, "/src/d", 0o755), fs.WriteFile(ctx, "/src/d/f", []byte("inside")))
		wired, wire := n.Wired(t)
		target := filepath.Join(t.TempDir(), "copy")
		lists := 0
		wire.Set(func(method string, _ any, send func() error) error {
			if method == replace.at {
				if lists++; lists == strings.Count(replace.path, "/") || method == "GetFile" && lists == 1 {
					must(t, fs.RemoveAll(ctx, replace.path), fs.Symlink(ctx, replace.target, replace.path))
				}
			}
			return send()
		})
		if _, err := transfer.Get(ctx, wired, "/src", target, transfer.Options{Recursive: true}); err == nil {
			t.Errorf("%s became a link, and the copy is whole", replace.path)
		}
		if _, err := os.Lstat(target); err == nil {
			holds(t, target)
		}
	}
}

// A copy into a namespace has only what is below its source.
func TestPutReadsOnlyItsSource(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	out := outside(t)
	for _, c := range []struct{ replaced, target string }{
		{"d", out},                      // a directory that was just found
		{"a", filepath.Join(out, "f")},  // a small file that waits for its batch
		{"a2", filepath.Join(out, "f")}, // a large one
	} {
		src := filepath.Join(t.TempDir(), "src")
		must(t, os.MkdirAll(filepath.Join(src, "d"), 0o700), os.WriteFile(filepath.Join(src, "a"), []byte("inside"), 0o600),
			os.WriteFile(filepath.Join(src, "a2"), make([]byte, 100_000), 0o600), os.WriteFile(filepath.Join(src, "d", "f"), []byte("inside"), 0o600))
		fs, wire := n.Wired(t)
		must(t, fs.RemoveAll(ctx, "/dst"))
		made := 0
		wire.Set(func(method string, _ any, send func() error) error {
			if method == "Mkdir" {
				if made++; made == 2 || made == 1 && c.replaced == "a2" {
					path := filepath.Join(src, c.replaced)
					must(t, os.RemoveAll(path), os.Symlink(c.target, path))
				}
			}
			return send()
		})
		_, err := transfer.Put(ctx, fs, src, "/dst", transfer.Options{Recursive: true})
		if err == nil && c.replaced != "a2" { // of which the walk sees that it is a link
			t.Errorf("%s became a link, and the copy is whole", c.replaced)
		}
		holdsIn(t, fs, "/dst")
	}
}

// A copy into a namespace follows no link below its target, be it there from the
// beginning or put there while the copy runs.
func TestPutStaysInItsTarget(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	fs := n.Client(t)
	src := filepath.Join(t.TempDir(), "src")
	must(t, os.MkdirAll(filepath.Join(src, "d"), 0o700), os.WriteFile(filepath.Join(src, "d", "small"), []byte("new"), 0o600),
		os.WriteFile(filepath.Join(src, "d", "large"), make([]byte, 100_000), 0o600), os.Symlink("nowhere", filepath.Join(src, "d", "link")))
	opts := transfer.Options{Recursive: true, Overwrite: true}
	must(t, fs.Mkdir(ctx, "/outside", 0o755))
	empty := func(when string) {
		t.Helper()
		info, err := fs.Stat(ctx, "/outside")
		if err != nil || info.Entries != 0 || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: the copy reached outside of its target: %v, %v", when, info, err)
		}
	}

	must(t, fs.MkdirAll(ctx, "/dst/src", 0o755), fs.Symlink(ctx, "/outside", "/dst/src/d"))
	if _, err := transfer.Put(ctx, fs, src, "/dst", opts); !errors.Is(err, fserror.NotDirectory) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a directory onto a link: %v", err)
	}
	empty("a link in the way")

	for _, at := range []string{"Create", "Symlink", "SetAttr"} {
		must(t, fs.RemoveAll(ctx, "/dst"), fs.MkdirAll(ctx, "/dst", 0o755))
		wired, wire := n.Wired(t)
		once(wire, at, func() {
			must(t, fs.Rename(ctx, "/dst/src/d", "/dst/away", true), fs.Symlink(ctx, "/outside", "/dst/src/d"))
		})
		_, err := transfer.Put(ctx, wired, src, "/dst", opts)
		if at != "SetAttr" && err == nil { // Loop, or NotFound between the two changes
			t.Errorf("a link at %s, and the copy is whole", at)
		}
		empty(at)
		must(t, fs.RemoveAll(ctx, "/dst"))
	}

	// The target that the user names may be, or lead through, a link.
	must(t, fs.MkdirAll(ctx, "/real/in", 0o755), fs.Symlink(ctx, "/real", "/current"))
	_, err := transfer.Put(ctx, fs, src, "/current/in", opts)
	must(t, err)
	if _, err := fs.Lstat(ctx, "/real/in/src/d/large"); err != nil {
		t.Error(err)
	}
}

// A directory keeps its sticky bit, there and back.
func TestStickyDirectories(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	const mode = os.ModeSticky | 0o777
	must(t, os.MkdirAll(filepath.Join(from, "sticky"), 0o755), os.Chmod(filepath.Join(from, "sticky"), mode))
	_, err := transfer.Put(ctx, n.Client(t), from, "/src", transfer.Options{Recursive: true})
	must(t, err)
	_, err = transfer.Get(ctx, n.Client(t), "/src", to, transfer.Options{Recursive: true})
	must(t, err)
	if info, err := os.Stat(filepath.Join(to, "sticky")); err != nil || info.Mode().Perm()|info.Mode()&os.ModeSticky != mode {
		t.Errorf("the copy is %v, %v", info, err)
	}
}
