package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/size"
)

// goSource is a folder of Go's own source; of all of it, if it has no name.
func goSource(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src", name)
}

// oddTree makes a folder of what trees of source code do not have.
func oddTree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "odd tree")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.CopyFS(root, os.DirFS(goSource(t, "net/http"))))
	file := func(name string, size int, mode fs.FileMode) {
		t.Helper()
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
		check(os.WriteFile(filepath.Join(root, name), data, 0o600))
		check(os.Chmod(filepath.Join(root, name), mode))
		check(os.Chtimes(filepath.Join(root, name), time.Time{}, time.UnixMilli(1_234_567_890_123+int64(size))))
	}
	dir := func(name string) {
		t.Helper()
		check(os.MkdirAll(filepath.Join(root, name), 0o755))
	}
	dir("empty/of/all")
	dir("leer äöü ☃/日本語")
	file("mode 0600", 10, 0o600)
	file("mode 0755", 11, 0o755)
	file("mode 0444", 12, 0o444)
	file("mode 0000", 13, 0)
	file("mode 1777", 14, 0o777|fs.ModeSticky)
	file("empty file", 0, 0o644)
	file("empty/of/nothing", 0, 0o600)
	file("leer äöü ☃/日本語/é composed", 1, 0o644)
	file("leer äöü ☃/日本語/é decomposed", 2, 0o644)
	file("-r", 3, 0o644)
	file(" leading and trailing ", 4, 0o644)
	file("tab\tand \"quotes\" 'too' \\ * ? [a] $HOME", 5, 0o644)
	file("line\nbreak", 6, 0o644)
	file(".hidden", 7, 0o644)
	file(strings.Repeat("ä", 127), 8, 0o644) // 254 bytes
	file("exactly 64 KiB", 64<<10, 0o644)
	file("over 64 KiB", 64<<10+1, 0o640)
	file("exactly a block", 8<<20, 0o644)
	file("over a block", 8<<20+1, 0o644)
	file("two and a half blocks", 20<<20, 0o400)
	check(os.Symlink("mode 0600", filepath.Join(root, "link")))
	check(os.Symlink("../leer äöü ☃", filepath.Join(root, "empty", "link to a directory")))
	check(os.Symlink("nowhere/at all", filepath.Join(root, "dangling link")))
	check(os.Symlink("/etc/passwd", filepath.Join(root, "absolute link")))
	check(os.Symlink("loop", filepath.Join(root, "loop")))
	dir("shut")
	file("shut/inside", 9, 0o644)
	check(os.Chmod(filepath.Join(root, "shut"), 0o500))
	dir("sticky")
	check(os.Chmod(filepath.Join(root, "sticky"), 0o777|fs.ModeSticky))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "shut"), 0o700) }) // so that it can be removed
	return root
}

// sameTrees compares names, types, modes, times, link targets and bytes, and
// asks diff for its opinion. It returns the number of files and their bytes.
func sameTrees(ctx context.Context, t *testing.T, want, got string) (files int, size int64) {
	t.Helper()
	seen := make(map[string]bool)
	err := filepath.WalkDir(want, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(want, path)
		seen[rel] = true
		a, err := d.Info()
		if err != nil {
			return err
		}
		if a.Mode().IsRegular() {
			files++
			size += a.Size()
		}
		other := filepath.Join(got, rel)
		b, err := os.Lstat(other)
		if err != nil {
			return err
		}
		return sameEntry(path, other, a, b)
	})
	if err != nil {
		t.Fatalf("the copy differs: %v", err)
	}
	err = filepath.WalkDir(got, func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(got, path); !seen[rel] && err == nil {
			return fmt.Errorf("%s is in the copy only", path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("the copy differs: %v", err)
	}
	diff := exec.CommandContext(ctx, "diff", "-r", "--no-dereference", want, got)
	if out, err := diff.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("diff -r: %v\n%s", err, tailOf(string(out)))
	}
	return files, size
}

func sameEntry(path, other string, a, b fs.FileInfo) error {
	if a.Mode() != b.Mode() {
		return fmt.Errorf("%s: mode %v became %v", path, a.Mode(), b.Mode())
	}
	if a.Mode().Type() == fs.ModeSymlink {
		x, err := os.Readlink(path)
		if err != nil {
			return err
		}
		if y, err := os.Readlink(other); err != nil || x != y {
			return fmt.Errorf("%s: link to %q became one to %q (%w)", path, x, y, err)
		}
		return nil
	}
	if x, y := a.ModTime().Truncate(time.Millisecond), b.ModTime().Truncate(time.Millisecond); !x.Equal(y) {
		return fmt.Errorf("%s: time %v became %v", path, x, y)
	}
	if !a.Mode().IsRegular() {
		return nil
	}
	x, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if y, err := os.ReadFile(other); err != nil || !bytes.Equal(x, y) {
		return fmt.Errorf("%s: %d bytes became other %d (%w)", path, len(x), len(y), err)
	}
	return nil
}

func TestTreesInAndOut(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 5*time.Minute)
	n := startNamenode(ctx, t)
	for _, local := range []string{goSource(t, size.Of("internal", "")), oddTree(t)} {
		out := filepath.Join(t.TempDir(), "out")
		began := time.Now()
		n.run(ctx, "put", "-r", local, "/tree")
		in := since(began)
		began = time.Now()
		n.run(ctx, "get", "-r", "/tree", out)
		back := since(began)
		files, size := sameTrees(ctx, t, local, out)
		t.Logf("%s: %d files, %s: in %s, out %s; namenode: %s", local, files, mib(size), in, back, n.usage(ctx))
		if out := n.run(ctx, "find", "/", "--open"); out != "" {
			t.Errorf("left open: %s", out)
		}
		n.fsck(ctx)
		n.run(ctx, "rm", "-r", "/tree")
	}
}

// middle starts a command and crashes the namenode while it is under way, once
// underWay says so. A command that was faster than that is tried again; reset
// undoes it.
func middle(ctx context.Context, t *testing.T, n *namenode, underWay func(*process) bool, reset func(), args ...string) {
	t.Helper()
	for range 5 {
		p := n.begin(ctx, reader(""), args...)
		eventually(ctx, t, "under way: "+p.name, func() bool { return p.ended() || underWay(p) })
		n.kill()
		caught := !p.ended()
		n.start(ctx)
		p.ends(ctx, 0)
		if caught {
			return
		}
		reset()
	}
	t.Fatalf("leasefs %v was always done before the namenode could be killed", args)
}

// watcher looks at the namespace without waiting long for a namenode that is gone.
func watcher(ctx context.Context, n *namenode) func() client.NamenodeStatus {
	fsys := n.client(ctx)
	return func() client.NamenodeStatus {
		list, err := fsys.Status(ctx)
		if err != nil || len(list) == 0 || list[0].Err != nil {
			return client.NamenodeStatus{}
		}
		return list[0]
	}
}

func TestTreesOverAKilledNamenode(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 10*time.Minute)
	n := startNamenode(ctx, t)
	look := watcher(ctx, n)
	local, out := goSource(t, size.Of("internal", "")), filepath.Join(t.TempDir(), "out")

	began := time.Now()
	middle(ctx, t, n, func(*process) bool { return look().Files > 500 },
		func() { n.run(ctx, "rm", "-r", "/tree") },
		"put", "-r", local, "/tree")
	in := since(began)
	began = time.Now()
	middle(ctx, t, n, func(*process) bool {
		_, files := folderBytes(t, out)
		return files > 200
	}, func() {
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
	}, "get", "-r", "/tree", out)
	files, size := sameTrees(ctx, t, local, out)
	t.Logf("%d files, %s, the namenode killed once on each way: in %s, out %s", files, mib(size), in, since(began))
	if out := n.run(ctx, "find", "/", "--open"); out != "" {
		t.Errorf("left open: %s", out)
	}
	if out := n.run(ctx, "find", "/", "--name", "*.leasefs-*"); out != "" {
		t.Errorf("temporary files left: %s", out)
	}
	n.fsck(ctx)
}

// noise makes a local file of pseudo-random bytes and returns its checksum.
func noise(t *testing.T, path string, size int64) [sha256.Size]byte {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		t.Fatal(err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < 3*size+(1<<30) {
		t.Fatalf("%s free below %s, %s wanted", mib(free), filepath.Dir(path), mib(3*size+(1<<30)))
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(f, h), io.LimitReader(rand.NewChaCha8([32]byte{1}), size), make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func sumOf(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func TestLargeFile(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 10*time.Minute)
	size := size.Of[int64](256<<20, 2<<30)
	dir := t.TempDir()
	local, copied := filepath.Join(dir, "large"), filepath.Join(dir, "copy")
	sum := noise(t, local, size)
	check := func() {
		t.Helper()
		if sumOf(t, copied) != sum {
			t.Fatalf("the bytes of %s changed", copied)
		}
		if err := os.Remove(copied); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("as it is", func(t *testing.T) {
		n := startNamenode(ctx, t)
		began := time.Now()
		n.run(ctx, "put", local, "/large")
		in := time.Since(began).Seconds()
		began = time.Now()
		n.run(ctx, "get", "/large", copied)
		out := time.Since(began).Seconds()
		check()
		t.Logf("%s: in %.2f s (%.0f MB/s), out %.2f s (%.0f MB/s); namenode: %s", mib(size), in, float64(size)/in/1e6, out, float64(size)/out/1e6, n.usage(ctx))
	})

	t.Run("over a killed namenode", func(t *testing.T) {
		n := startNamenode(ctx, t)
		look := watcher(ctx, n)
		began := time.Now()
		middle(ctx, t, n, func(*process) bool { return look().StoredBytes > size/4 },
			func() { n.run(ctx, "rm", "/large") }, "put", local, "/large")
		in := since(began)
		began = time.Now()
		middle(ctx, t, n, func(*process) bool {
			got, _ := folderBytes(t, dir)
			return got > size+size/4
		}, func() { check() }, "get", "/large", copied)
		out := since(began)
		check()
		t.Logf("%s, the namenode killed once on each way: in %s, out %s", mib(size), in, out)
		if out := n.run(ctx, "ls", "/"); out != "large\n" {
			t.Errorf("left beside the file: %q", out)
		}
		n.fsck(ctx)
	})
}

// A writer from a pipe continues over a killed namenode, too: what it acknowledged
// before is there after.
func TestPipeOverAKilledNamenode(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	w := n.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", "/log")
	var want strings.Builder
	for i := range 300 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		w.feed(line)
		if i%100 != 50 {
			continue
		}
		w.acksUpTo(ctx, 1)
		n.kill()
		acked := w.acked()
		n.start(ctx)
		if got := n.run(ctx, "cat", "/log"); int64(len(got)) < acked || !strings.HasPrefix(want.String(), got) {
			t.Fatalf("%d bytes were acknowledged, and after the crash there are %d: %q", acked, len(got), tailOf(got))
		}
	}
	w.eof()
	w.ends(ctx, 0)
	if got := n.run(ctx, "cat", "/log"); got != want.String() || w.acked() != int64(len(got)) {
		t.Fatalf("%d bytes, %d acknowledged, %d written", len(got), w.acked(), want.Len())
	}
}
