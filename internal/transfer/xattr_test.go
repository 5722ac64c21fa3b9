package transfer_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

// setLocal gives a local file an extended attribute. The tests need a file
// system that keeps them where temporary files are.
func setLocal(t *testing.T, path, name string, value []byte) {
	t.Helper()
	if err := unix.Setxattr(path, name, value, 0); err != nil {
		t.Fatalf("%s in %s: %v (set TMPDIR to a file system that keeps extended attributes user.*)", name, path, err)
	}
}

// localXattrs are those of a local file.
func localXattrs(t *testing.T, path string) map[string]string {
	t.Helper()
	list := make([]byte, 64<<10)
	n, err := unix.Listxattr(path, list)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Getxattr(path, name, value)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(value[:n])
	}
	return all
}

// xattrs are those of a file in the namespace.
func xattrs(t *testing.T, fs *client.FS, path string) map[string]string {
	t.Helper()
	list, err := fs.Xattrs(path).All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, x := range list {
		all[x.Name] = string(x.Value)
	}
	return all
}

// Extended attributes of files, small and large, that may be written or not,
// and of directories go into a namespace and come back.
func TestXattrsAreKept(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root := n.Client(t)
	if err := errors.Join(root.Mkdir(t.Context(), "/home", 0o755), root.Chown(t.Context(), "/home", "alice", "")); err != nil {
		t.Fatal(err)
	}
	fs := n.Client(t, func(c *client.Config) { c.User = "alice" }) // who may not do what she pleases
	src := filepath.Join(t.TempDir(), "src")
	want := map[string]map[string]string{
		"":           {"user.root": "of the root"},
		"small":      {"user.a": "1", "user.bytes": "\xff\x00\n"},
		"none":       {},
		"large":      {"user.empty": "", "user.b": strings.Repeat("v", 1000)},
		"shut":       {"user.c": "2"},
		"dir":        {"user.d": "3"},
		"dir/inside": {"user.e": "4"},
		"dir/shut":   {"user.f": "5"},
	}
	for _, dir := range []string{src, filepath.Join(src, "dir"), filepath.Join(src, "dir", "shut")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	content := map[string][]byte{
		"small": []byte("s"), "none": []byte("n"), "large": bytes.Repeat([]byte("0123456789abcdef"), 20_000), "shut": nil, "dir/inside": []byte("i"),
	}
	for name, data := range content {
		if err := os.WriteFile(filepath.Join(src, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, all := range want {
		for x, value := range all {
			setLocal(t, filepath.Join(src, name), x, []byte(value))
		}
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, name := range []string{"shut", "dir/shut"} {
		path := filepath.Join(src, name)
		if err := errors.Join(os.Chmod(path, 0o555), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}

	opts := transfer.Options{Recursive: true, Xattrs: true}
	res, err := transfer.Put(t.Context(), fs, src, "/home/copy", opts)
	if err != nil || res.Files != int64(len(content)) {
		t.Fatal(res, err)
	}
	for name, all := range want {
		if got := xattrs(t, fs, "/home/copy/"+name); !maps.Equal(got, all) {
			t.Errorf("/home/copy/%s has %q", name, got)
		}
	}
	for _, name := range []string{"shut", "dir/shut"} {
		if info, err := fs.Stat(t.Context(), "/home/copy/"+name); err != nil || info.Mode().Perm() != 0o555 || !info.ModTime().Equal(old) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for name, data := range content {
		if got, err := fs.ReadFile(t.Context(), "/home/copy/"+name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}

	back := filepath.Join(t.TempDir(), "back")
	if _, err := transfer.Get(t.Context(), fs, "/home/copy", back, opts); err != nil {
		t.Fatal(err)
	}
	for name, all := range want {
		if got := localXattrs(t, filepath.Join(back, name)); !maps.Equal(got, all) {
			t.Errorf("%s came back with %q", name, got)
		}
	}
	if info, err := os.Stat(filepath.Join(back, "shut")); err != nil || info.Mode().Perm() != 0o555 || !info.ModTime().Equal(old) {
		t.Errorf("shut came back as %v, %v", info, err)
	}

	// Unless it is asked for, none are.
	opts.Xattrs = false
	if _, err := transfer.Put(t.Context(), fs, src, "/home/plain", opts); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if _, err := transfer.Get(t.Context(), fs, "/home/copy", plain, opts); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if got, local := xattrs(t, fs, "/home/plain/"+name), localXattrs(t, filepath.Join(plain, name)); len(got)+len(local) > 0 {
			t.Errorf("%s has %q, came back with %q", name, got, local)
		}
	}
}

// A file is there with all of its attributes or not at all; if one cannot be
// kept the error says which, and what was there stays.
func TestXattrsOrNothing(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	other := n.Client(t)
	fs, wire := n.Wired(t)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other.WriteFile(t.Context(), "/f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	opts := transfer.Options{Xattrs: true, Overwrite: true}
	isOld := func(when string) {
		t.Helper()
		if got, err := other.ReadFile(t.Context(), "/f"); err != nil || string(got) != "old" || len(xattrs(t, other, "/f")) > 0 {
			t.Errorf("%s: %q, %v, attributes %q", when, got, err, xattrs(t, other, "/f"))
		}
	}

	setLocal(t, path, "user.a", []byte("v"))
	setLocal(t, path, "user.\xff", []byte("v"))
	_, err := transfer.Put(t.Context(), fs, path, "/f", opts)
	if fserror.KindOf(err) != fserror.InvalidArgument || !strings.Contains(err.Error(), `put /f: extended attribute "user.\xff": `) {
		t.Errorf("error %v", err)
	}
	isOld("after a failure")
	if names := list(t, other); len(names) != 1 {
		t.Errorf("it left %q", names)
	}

	if err := unix.Removexattr(path, "user.\xff"); err != nil {
		t.Fatal(err)
	}
	setLocal(t, path, "user.b", []byte("w"))
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "SetXattr" || method == "Close" {
			isOld("before " + method)
		}
		return send()
	})
	if _, err := transfer.Put(t.Context(), fs, path, "/f", opts); err != nil {
		t.Fatal(err)
	}
	if wire.Count("SetXattr") == 0 {
		t.Error("no attribute was set")
	}
	if got, err := other.ReadFile(t.Context(), "/f"); err != nil || string(got) != "new" || !maps.Equal(xattrs(t, other, "/f"), map[string]string{"user.a": "v", "user.b": "w"}) {
		t.Errorf("%q, %v, attributes %q", got, err, xattrs(t, other, "/f"))
	}
}
