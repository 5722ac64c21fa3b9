package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/backup"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
)

// serve starts a real namenode and a client of it.
func serve(t testing.TB, change ...func(*client.Config)) *client.FS {
	t.Helper()
	s, err := namenode.Start(context.WithoutCancel(t.Context()), namenode.Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Limits: namenode.Limits{Reserve: 1 << 20},
	})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	cfg := client.Config{Namenodes: []string{s.Addr()}, User: "root"}
	for _, c := range change {
		c(&cfg)
	}
	f, err := client.New(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plant makes a small tree below /root.
func plant(t *testing.T, f *client.FS) {
	t.Helper()
	ctx := t.Context()
	must(t, f.MkdirAll(ctx, "/root/dir/sub", 0o755))
	must(t, f.Mkdir(ctx, "/root/empty", 0o755))
	must(t, f.WriteFile(ctx, "/root/a.txt", []byte("hello")))
	must(t, f.WriteFile(ctx, "/root/dir/sub/b.txt", bytes.Repeat([]byte("x"), 100_000)))
	must(t, f.WriteFile(ctx, "/root/nothing", nil))
	must(t, f.Symlink(ctx, "/root/a.txt", "/root/link"))
}

func TestIOFS(t *testing.T) {
	f := serve(t)
	plant(t, f)
	must(t, f.Remove(t.Context(), "/root/link")) // absolute: TestFS wants it within
	root := f.IOFS(t.Context(), "/root")
	must(t, fstest.TestFS(root, "a.txt", "dir/sub/b.txt", "empty", "nothing"))
	_, err := fs.Stat(root, "no")
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, fserror.NotFound) {
		t.Fatal(err)
	}
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != "no" {
		t.Fatalf("%#v", err)
	}
}

func TestTree(t *testing.T) {
	f := serve(t)
	plant(t, f)
	ctx := t.Context()
	got, err := f.ReadFile(ctx, "/root/link")
	if err != nil || string(got) != "hello" {
		t.Fatal(string(got), err)
	}
	if target, err := f.Readlink(ctx, "/root/link"); err != nil || target != "/root/a.txt" {
		t.Fatal(target, err)
	}
	n := 0
	for i, err := range f.Find(ctx, "/root", client.FindOptions{}) {
		must(t, err)
		if _, err := f.Lstat(ctx, i.Path); err != nil {
			t.Error(err)
		}
		n++
	}
	if n != 8 {
		t.Fatalf("found %d", n)
	}
	if sum, err := f.Summary(ctx, "/root"); err != nil || sum.Files != 3 || sum.Directories != 4 || sum.Symlinks != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	must(t, f.Rename(ctx, "/root/a.txt", "/root/c.txt", false))
	must(t, f.Chmod(ctx, "/root/c.txt", 0o600|fs.ModeSticky))
	must(t, f.Chtimes(ctx, "/root/c.txt", time.UnixMilli(1234567)))
	info, err := f.Stat(ctx, "/root/c.txt")
	must(t, err)
	if info.Mode() != 0o600|fs.ModeSticky || info.ModTime().UnixMilli() != 1234567 || info.Name() != "c.txt" {
		t.Fatal(info)
	}
	must(t, f.Truncate(ctx, "/root/dir/sub/b.txt", 10))
	must(t, f.Concat(ctx, "/root/c.txt", "/root/dir/sub/b.txt"))
	if got, err := f.ReadFile(ctx, "/root/c.txt"); err != nil || string(got) != "helloxxxxxxxxxx" {
		t.Fatal(string(got), err)
	}
	must(t, f.RemoveAll(ctx, "/root"))
	must(t, f.RemoveAll(ctx, "/root"))
	if err := f.Remove(ctx, "/root"); !errors.Is(err, fserror.NotFound) {
		t.Fatal(err)
	}
}

func TestOperators(t *testing.T) {
	f := serve(t)
	plant(t, f)
	ctx := t.Context()
	w, err := f.Create(ctx, "/root/open")
	must(t, err)
	n := 0
	for l, err := range f.Leases().List(ctx, client.LeaseFilter{}) {
		must(t, err)
		if l.Session != f.Info().Session || len(l.Files) != 1 || l.Files[0].Path != "/root/open" {
			t.Fatalf("%+v", l)
		}
		n++
	}
	st, err := f.Status(ctx)
	must(t, err)
	if n != 1 || st[0].OpenFiles != 1 || st[0].Role != "active" || st[0].NamespaceID != f.Info().NamespaceID {
		t.Fatalf("%d leases, %+v", n, st)
	}
	sum, err := f.Admin().Fsck(ctx, "/", true, func(p client.FsckProblem) error {
		t.Error(p)
		return nil
	})
	if err != nil || sum.Problems != 0 || sum.Inodes == 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	_, err = f.Admin().Checkpoint(ctx)
	must(t, err)
	_, err = f.Admin().Collect(ctx)
	must(t, err)
	dir := filepath.Join(t.TempDir(), "to", "backup")
	b, err := backup.Write(ctx, f.Admin(), dir, backup.Options{})
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "VERSION")); err != nil || b.Files == 0 {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := backup.Write(ctx, f.Admin(), dir, backup.Options{}); !errors.Is(err, fserror.Exists) {
		t.Fatal(err)
	}
	must(t, w.Close())
}

// Many blocks, many flushes, through a real block store.
func TestBlocksOnDisk(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	want := make([]byte, 30<<20+777)
	_, _ = rand.Read(want)
	w, err := f.Create(ctx, "/big")
	must(t, err)
	for off := 0; off < len(want); off += 777_777 {
		_, err := w.Write(want[off:min(off+777_777, len(want))])
		must(t, err)
		if off%2 == 0 {
			must(t, w.Flush(ctx))
		}
	}
	must(t, w.Close())
	got, err := f.ReadFile(ctx, "/big")
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatal("not what was written")
	}
}
