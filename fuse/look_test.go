package fuse_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestNeverStale: what A has flushed B sees, by path and through a descriptor
// that it has open, whose pages its kernel keeps.
func TestNeverStale(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("f", "")
	kept := b.open("f", os.O_RDONLY)
	var mu sync.Mutex
	flushed := 0 // as A knows
	done := make(chan struct{})
	var wg sync.WaitGroup
	poll := func(look func() (int, error)) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				least := flushed
				mu.Unlock()
				n, err := look()
				if err != nil || n < least {
					t.Errorf("B sees %d bytes, A had flushed %d: %v", n, least, err)
					return
				}
			}
		})
	}
	poll(func() (int, error) {
		i, err := os.Stat(b.path("f"))
		if err != nil {
			return 0, err
		}
		return int(i.Size()), nil
	})
	poll(func() (int, error) {
		data, err := os.ReadFile(b.path("f"))
		return len(data), err
	})
	buf := make([]byte, 1<<16)
	poll(func() (int, error) {
		n, err := kept.ReadAt(buf, 0)
		if err == io.EOF {
			err = nil
		}
		return n, err
	})
	for range 200 {
		f := a.open("f", os.O_WRONLY|os.O_APPEND)
		say(t, f, "0123456789")
		must(t, f.Sync())
		mu.Lock()
		flushed += 10
		mu.Unlock()
		must(t, f.Close())
	}
	close(done)
	wg.Wait()
}

// TestQuietReadsCostNothing: what nobody changes is answered by this machine.
func TestQuietReadsCostNothing(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("f", "text")
	b.reads("f", "text")
	env.Eventually(t, "no call for a look-up and a read", func() bool {
		before := b.FS().Stats().Cache
		_, err := os.Stat(b.path("f"))
		must(t, err)
		b.reads("f", "text")
		after := b.FS().Stats().Cache
		return after.Misses == before.Misses && after.Hits > before.Hits
	})
}

// TestDirectoryMovedElsewhere: a path that led through it is looked up again.
func TestDirectoryMovedElsewhere(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	other := r.Client(t)
	must(t, os.MkdirAll(m.path("d/e"), 0o755))
	m.write("d/e/f", "one")
	dir := m.open("d/e", os.O_RDONLY)
	must(t, other.Rename(t.Context(), "/d", "/moved", false))
	must(t, other.MkdirAll(t.Context(), "/d/e", 0o755))
	must(t, other.WriteFile(t.Context(), "/d/e/f", []byte("two")))
	m.reads("d/e/f", "two")
	m.reads("moved/e/f", "one")
	// The descriptor is of the directory that moved, not of the one that is at its
	// place now; of one that is gone it is stale.
	look := func() (string, error) {
		fd, err := unix.Openat(int(dir.Fd()), "f", unix.O_RDONLY, 0)
		if err != nil {
			return "", err
		}
		got := make([]byte, 3)
		_, err = unix.Read(fd, got)
		must(t, err)
		must(t, unix.Close(fd))
		return string(got), nil
	}
	if got, err := look(); err != nil || got != "one" {
		t.Fatalf("%q, %v", got, err)
	}
	must(t, other.RemoveAll(t.Context(), "/moved"))
	_, err := look()
	is(t, err, syscall.ESTALE)
}

// A mount is of a directory, wherever another host moves that.
func TestRootMovedElsewhere(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	must(t, other.MkdirAll(t.Context(), "/a/b", 0o755))
	m := r.mount(fuse.Options{Root: "/a/b"})
	m.write("f", "one")
	must(t, other.Rename(t.Context(), "/a", "/moved", false))
	must(t, other.MkdirAll(t.Context(), "/a/b", 0o755))
	m.write("g", "two")
	must(t, os.Rename(m.path("f"), m.path("h")))
	m.reads("h", "one")
	got, err := other.ReadFile(t.Context(), "/moved/b/g")
	if err != nil || string(got) != "two" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestReaddir(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	other := r.Client(t)
	must(t, other.Mkdir(t.Context(), "/d", 0o755))
	const n = 2500 // pages
	var want []string
	files := make([]client.FileData, n)
	for i := range n {
		want = append(want, fmt.Sprintf("f%04d", i))
		files[i].Path = "/d/" + want[i]
	}
	errs, err := other.WriteFiles(t.Context(), files)
	must(t, err)
	for _, err := range errs {
		must(t, err)
	}
	dir := m.open("d", os.O_RDONLY)
	for range 2 {
		got, err := dir.Readdirnames(-1)
		must(t, err)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%d names", len(got))
		}
		_, err = dir.Seek(0, io.SeekStart)
		must(t, err)
	}
	entries, err := os.ReadDir(m.path("d"))
	must(t, err)
	for _, e := range entries[:10] {
		i, err := e.Info()
		must(t, err)
		if i.Size() != 0 || i.Mode() != 0o644 {
			t.Fatal(i)
		}
	}
}

func TestAttributes(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{AllowOther: true})
	m.write("f", "text")
	must(t, os.Chmod(m.path("f"), 0o640))
	must(t, os.Chown(m.path("f"), 1, 2))
	i, err := os.Stat(m.path("f"))
	must(t, err)
	st := i.Sys().(*syscall.Stat_t)
	if i.Mode() != 0o640 || st.Uid != 1 || st.Gid != 2 {
		t.Fatal(i.Mode(), st.Uid, st.Gid)
	}
	must(t, os.Chown(m.path("f"), 123456, 234567)) // of nobody here
	fi, err := m.FS().Stat(t.Context(), "/f")
	must(t, err)
	i, err = os.Stat(m.path("f"))
	must(t, err)
	if st = i.Sys().(*syscall.Stat_t); fi.User != "123456" || st.Uid != 123456 || st.Gid != 234567 {
		t.Fatal(fi.User, st.Uid, st.Gid)
	}
	must(t, m.FS().Chown(t.Context(), "/f", "no-such-user-here", ""))
	i, err = os.Stat(m.path("f"))
	must(t, err)
	if st = i.Sys().(*syscall.Stat_t); st.Uid != 1<<32-3 { // no user's, see TestUnknownOwnersAreNobodyHere
		t.Fatal(st.Uid)
	}
	must(t, os.Symlink("no/where", m.path("l")))
	to, err := os.Readlink(m.path("l"))
	must(t, err)
	if to != "no/where" {
		t.Fatal(to)
	}
	must(t, os.Mkdir(m.path("sticky"), 0o755))
	must(t, os.Chmod(m.path("sticky"), 0o777|os.ModeSticky))
	i, err = os.Stat(m.path("sticky"))
	must(t, err)
	if i.Mode() != 0o777|os.ModeSticky|os.ModeDir {
		t.Fatal(i.Mode())
	}
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(m.dir, &fs))
	if fs.Blocks == 0 || fs.Namelen != 255 {
		t.Fatalf("%+v", fs)
	}
}

func TestLeaseAttributes(t *testing.T) {
	r := newRig(t)
	a := r.mount(fuse.Options{}, func(c *client.Config) { c.Client = "mount-a" })
	b := r.mount(fuse.Options{})
	f := a.open("f", os.O_CREATE|os.O_WRONLY)
	get := func(name string) string {
		t.Helper()
		v := make([]byte, 100)
		n, err := unix.Getxattr(b.path("f"), "leasefs."+name, v)
		must(t, err)
		return string(v[:n])
	}
	i, err := b.FS().Stat(t.Context(), "/f")
	must(t, err)
	if h, e, l := get("holder"), get("epoch"), get("lease"); h != "mount-a" || e != fmt.Sprint(i.Open.Epoch) || l != a.FS().Info().Session {
		t.Fatal(h, e, l)
	}
	must(t, f.Close())
	_, err = unix.Getxattr(b.path("f"), "leasefs.holder", make([]byte, 100))
	is(t, err, syscall.ENODATA)
	is(t, unix.Setxattr(b.path("f"), "leasefs.holder", []byte("me"), 0), syscall.EPERM)
}

// A granted lease is attached to, and detached from, by an extended attribute; what is
// attached goes with the lease, a directory with all that is in it.
func TestAttachByAttribute(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	g, err := m.FS().Leases().Grant(t.Context(), time.Hour, 0x2f)
	must(t, err)
	must(t, os.MkdirAll(m.path("d/e"), 0o755))
	must(t, os.WriteFile(m.path("d/e/f"), []byte("x"), 0o644))
	must(t, os.WriteFile(m.path("kept"), []byte("x"), 0o644))
	set := func(name, value string, flags int) error {
		return unix.Setxattr(m.path(name), "leasefs.lease", []byte(value), flags)
	}
	must(t, set("d", "2f", unix.XATTR_CREATE))
	is(t, set("d", "2f", unix.XATTR_CREATE), syscall.EEXIST)
	must(t, set("d", "2f\n", unix.XATTR_REPLACE))
	is(t, set("kept", "2f", unix.XATTR_REPLACE), syscall.ENODATA)
	is(t, set("kept", "none", 0), syscall.EINVAL)
	is(t, set("kept", "99", 0), syscall.EINVAL)
	is(t, set("kept", "a/b", 0), syscall.EINVAL)
	is(t, unix.Removexattr(m.path("kept"), "leasefs.lease"), syscall.ENODATA)
	must(t, set("kept", "2f", 0))
	if got := getXattr(t, m.path("kept"), "leasefs.lease"); got != "2f" {
		t.Errorf("attached to %q", got)
	}
	must(t, unix.Removexattr(m.path("kept"), "leasefs.lease"))
	named, err := m.FS().Leases().GrantNamed(t.Context(), time.Hour, "server-1")
	must(t, err)
	must(t, set("kept", "server-1", 0))
	if got := getXattr(t, m.path("kept"), "leasefs.lease"); got != named.ID.String() {
		t.Errorf("attached to %q of the lease named server-1, %v", got, named.ID)
	}
	must(t, unix.Removexattr(m.path("kept"), "leasefs.lease"))
	must(t, m.FS().Leases().Revoke(t.Context(), g.ID))
	_, err = os.Stat(m.path("d/e/f"))
	is(t, err, syscall.ENOENT)
	_, err = os.Stat(m.path("d"))
	is(t, err, syscall.ENOENT)
	_, err = os.Stat(m.path("kept"))
	must(t, err)
}

func TestSubdirAndReadOnly(t *testing.T) {
	r := newRig(t)
	fs := r.Client(t)
	must(t, fs.MkdirAll(t.Context(), "/a/b", 0o755))
	must(t, fs.WriteFile(t.Context(), "/a/b/f", []byte("text")))
	m := r.mount(fuse.Options{Root: "/a/b", ReadOnly: true})
	m.reads("f", "text")
	is(t, os.WriteFile(m.path("g"), nil, 0o600), syscall.EROFS)
	is(t, os.Remove(m.path("f")), syscall.EROFS)
	_, err := fuse.Mount(t.Context(), client.Config{Namenodes: []string{r.Config().Listen}, User: "root"}, t.TempDir(), fuse.Options{Root: "/a/b/f"})
	if fserror.KindOf(err) != fserror.NotDirectory {
		t.Fatal(err)
	}
}

// TestNamenodeAway: calls wait for it, and continue; a file that is open stays so.
func TestNamenodeAway(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	f := m.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	say(t, f, "before\n")
	must(t, f.Sync())
	r.Stop(t)
	say(t, f, "while away\n")
	synced := make(chan error)
	go func() { synced <- f.Sync() }()
	made := make(chan error)
	go func() { made <- os.Mkdir(m.path("d"), 0o755) }()
	s, err := namenode.Start(t.Context(), r.Config())
	must(t, err)
	r.Server = s
	must(t, <-synced)
	must(t, <-made)
	must(t, f.Close())
	m.reads("f", "before\nwhile away\n")
}

// TestUnmountFlushes: with files open the mount is taken away in the end, and
// what was written is there.
func TestUnmountFlushes(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	f := m.open("f", os.O_CREATE|os.O_WRONLY)
	say(t, f, "text")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	must(t, m.Unmount(ctx))
	_, err := io.WriteString(f, "more")
	if err == nil {
		t.Fatal("written after the end")
	}
	data, err := r.Client(t).ReadFile(t.Context(), "/f")
	must(t, err)
	if string(data) != "text" {
		t.Fatalf("%q", data)
	}
	if err := m.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestUnmountTellsWhatItsFirstFlushLost: files that stay in use are flushed once more; that the first
// time one was found to be lost is told all the same.
func TestUnmountTellsWhatItsFirstFlushLost(t *testing.T) {
	r, wire := newRig(t), new(env.Wire)
	m := r.mount(fuse.Options{}, func(c *client.Config) { c.DialOptions = append(c.DialOptions, wire.DialOptions()...) })
	other := r.Client(t)
	f := m.open("f", os.O_CREATE|os.O_WRONLY)
	say(t, f, "one")
	must(t, f.Sync())
	say(t, f, "two")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once sync.Once
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "AppendTail" { // of the first flush
			once.Do(func() {
				if _, err := other.Recover(t.Context(), "/f", true); err != nil {
					t.Error(err)
				}
			})
		}
		return send()
	})
	m.loses = syscall.ESTALE // its end is told twice
	done := make(chan error, 1)
	go func() { done <- m.Unmount(ctx) }()
	env.Eventually(t, "it is lost", func() bool { _, err := io.WriteString(f, "x"); return err != nil })
	cancel()
	is(t, <-done, syscall.ESTALE)
}

// TestLarge: blocks, and reads of them in and out of order.
func TestLarge(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	const size = 20 << 20
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i>>12) ^ byte(i)
	}
	must(t, os.WriteFile(a.path("f"), data, 0o600))
	got, err := os.ReadFile(b.path("f"))
	must(t, err)
	if !slices.Equal(got, data) {
		t.Fatal("not the same")
	}
	f := b.open("f", os.O_RDONLY)
	buf := make([]byte, 100_001)
	for i := range 50 {
		off := int64(i*7919*1013) % (size - int64(len(buf)))
		_, err := f.ReadAt(buf, off)
		must(t, err)
		if !slices.Equal(buf, data[off:off+int64(len(buf))]) {
			t.Fatal("not the same at", off)
		}
	}
}
