package fuse_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// downloads counts what is asked of the block store.
type downloads struct{ n atomic.Int64 }

func (d *downloads) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		d.n.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// dropPages makes the kernel drop the pages of a file, or of all in a folder.
func dropPages(t testing.TB, path string) {
	t.Helper()
	must(t, filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	}))
}

// blockFolder is an empty folder for blocks.
func blockFolder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blocks")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

// TestBlockCache: what was read through a mount is read again without the block store,
// by this mount and by another one that shares the folder, also when files in that
// are damaged or gone; who may not read the file gets none of it.
func TestBlockCache(t *testing.T) {
	r, dir, gets := newRig(t), blockFolder(t), new(downloads)
	cached := func(c *client.Config) {
		c.BlockCache, c.HTTPClient = dir, &http.Client{Transport: gets}
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	m := r.mount(fuse.Options{}, cached)
	data := make([]byte, 21<<20) // two blocks and a part
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	must(t, os.WriteFile(m.path("f"), data, 0o600))
	read := func(m *mounted) {
		t.Helper()
		got, err := os.ReadFile(m.path("f"))
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Fatal("wrong bytes")
		}
	}
	asked := func(m *mounted) int64 { // by a read that finds nothing in the kernel
		t.Helper()
		dropPages(t, m.path("f"))
		before := gets.n.Load()
		read(m)
		return gets.n.Load() - before
	}
	if asked(m) == 0 {
		t.Fatal("the first read did not ask the store")
	}
	env.Eventually(t, "all blocks are kept", func() bool { return asked(m) == 0 })

	before := m.FS().Stats().BlockCache
	read(m)
	if got := m.FS().Stats().BlockCache; got != before {
		t.Errorf("the kernel has the pages, and the mount was asked: %+v, before %+v", got, before)
	}
	second := r.mount(fuse.Options{ReadOnly: true}, cached)
	if n := asked(second); n != 0 {
		t.Errorf("another mount asked the store %d times", n)
	}

	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	must(t, err)
	if len(files) != 3 {
		t.Fatal(files)
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("damaged"), 100_000)
	must(t, errors.Join(err, f.Close(), os.Remove(files[1])))
	if asked(m) == 0 {
		t.Error("what is damaged or gone did not come from the store")
	}
	env.Eventually(t, "it is kept again", func() bool { return asked(m) == 0 })
	if got := m.FS().Stats().BlockCache.Damaged + second.FS().Stats().BlockCache.Damaged; got != 1 {
		t.Errorf("damage was counted %d times", got)
	}

	other := r.mount(fuse.Options{}, cached, func(c *client.Config) { c.User = "bob" })
	if _, err := other.FS().ReadFile(t.Context(), "/f"); !errors.Is(err, client.ErrPermission) {
		t.Errorf("another user: %v", err)
	}
}

// TestBlockCacheFolderGone: a folder that goes away under a mount costs speed only.
func TestBlockCacheFolderGone(t *testing.T) {
	r, dir := newRig(t), blockFolder(t)
	m := r.mount(fuse.Options{}, func(c *client.Config) { c.BlockCache = dir })
	data := bytes.Repeat([]byte("block"), 2<<20)
	must(t, os.WriteFile(m.path("f"), data, 0o600))
	for range 3 {
		dropPages(t, m.path("f"))
		got, err := os.ReadFile(m.path("f"))
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Fatal("wrong bytes")
		}
		// What is just being written makes it fail.
		env.Eventually(t, "the folder is gone", func() bool { return os.RemoveAll(dir) == nil })
	}
}

// TestBlockCacheThatCannotBe is refused before anything is mounted.
func TestBlockCacheThatCannotBe(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	must(t, os.Mkdir(m.path("d"), 0o700))
	for _, mod := range []func(*client.Config){
		func(c *client.Config) { c.BlockCache = filepath.Join(t.TempDir(), "none") },
		func(c *client.Config) { c.BlockCache = m.path("d") }, // of a mount
		func(c *client.Config) { c.BlockCacheSize = 1 << 30 },
		func(c *client.Config) { c.BlockCache, c.BlockCacheSize = blockFolder(t), 1 },
	} {
		cfg := client.Config{Namenodes: []string{r.Config().Listen}, User: "root"}
		mod(&cfg)
		m, err := fuse.Mount(t.Context(), cfg, t.TempDir(), fuse.Options{})
		if err == nil {
			must(t, m.Unmount(t.Context()))
			t.Errorf("mounted with %q, %d", cfg.BlockCache, cfg.BlockCacheSize)
		}
	}
}
