package fuse_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// kernel stands between the kernel and a mount: it counts what is asked, sees
// what may be kept, and can hold an answer to a look-up back.
type kernel struct {
	gofuse.RawFileSystem
	t testing.TB

	mu    sync.Mutex
	asked map[string]int // by operation; of look-ups also by "LOOKUP name"
	hold  string         // the answer to this: "LOOKUP name", "CREATE name", "UNLINK name", "RENAME name", "GETATTR", "READDIRPLUS"; or "before RENAME name", "before UNLINK name", "before RELEASE"
	held  chan struct{}  // closed when it is there
	let   chan struct{}  // closed to let it go
}

// through mounts with a kernel.
func (r *rig) through(o fuse.Options, mods ...func(*client.Config)) (*mounted, *kernel) {
	k := &kernel{t: r.t, asked: make(map[string]int)}
	m := r.mount(o.WithQuiet(0).Behind(func(raw gofuse.RawFileSystem) gofuse.RawFileSystem {
		k.RawFileSystem = raw
		return k
	}), mods...)
	return m, k
}

func (k *kernel) count(what ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range what {
		k.asked[w]++
	}
}

// reset starts counting from 0 again, and returns what there was.
func (k *kernel) reset() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.asked
	k.asked = make(map[string]int)
	return old
}

// holdBack holds the next answer to a look-up or creation back: "LOOKUP name".
// held is closed when it is there.
func (k *kernel) holdBack(what string) (held <-chan struct{}, let func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := make(chan struct{})
	k.hold, k.held, k.let = what, make(chan struct{}), done
	return k.held, sync.OnceFunc(func() { close(done) })
}

func (k *kernel) Lookup(cancel <-chan struct{}, in *gofuse.InHeader, name string, out *gofuse.EntryOut) gofuse.Status {
	k.count("LOOKUP", "LOOKUP "+name)
	s := k.RawFileSystem.Lookup(cancel, in, name, out)
	k.answer("LOOKUP " + name)
	return s
}

func (k *kernel) Rename(cancel <-chan struct{}, in *gofuse.RenameIn, name, newName string) gofuse.Status {
	k.answer("before RENAME " + newName)
	s := k.RawFileSystem.Rename(cancel, in, name, newName)
	k.answer("RENAME " + newName)
	return s
}

func (k *kernel) Unlink(cancel <-chan struct{}, in *gofuse.InHeader, name string) gofuse.Status {
	k.answer("before UNLINK " + name)
	s := k.RawFileSystem.Unlink(cancel, in, name)
	k.answer("UNLINK " + name)
	return s
}

// answer waits if the answer is held back.
func (k *kernel) answer(what string) {
	k.mu.Lock()
	held, let := k.held, k.let
	mine := k.hold == what
	if mine {
		k.hold = ""
	}
	k.mu.Unlock()
	if mine {
		close(held)
		<-let
	}
}

func (k *kernel) GetAttr(cancel <-chan struct{}, in *gofuse.GetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	k.count("GETATTR")
	s := k.RawFileSystem.GetAttr(cancel, in, out)
	k.answer("GETATTR")
	return s
}

// fresh checks an answer that the kernel takes in without a look at what it was
// told meanwhile.
func (k *kernel) fresh(what string, s gofuse.Status, timeouts ...time.Duration) gofuse.Status {
	k.count(what)
	for _, d := range timeouts {
		if s.Ok() && d != 0 {
			k.t.Errorf("the answer to %s may be kept for %s", what, d)
		}
	}
	return s
}

func (k *kernel) SetAttr(cancel <-chan struct{}, in *gofuse.SetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	s := k.RawFileSystem.SetAttr(cancel, in, out)
	return k.fresh("SETATTR", s, out.Timeout())
}

func (k *kernel) Create(cancel <-chan struct{}, in *gofuse.CreateIn, name string, out *gofuse.CreateOut) gofuse.Status {
	s := k.RawFileSystem.Create(cancel, in, name, out)
	k.answer("CREATE " + name)
	return k.fresh("CREATE", s, out.EntryTimeout()) // attributes are of a new inode: see tell
}

func (k *kernel) ReadDirPlus(cancel <-chan struct{}, in *gofuse.ReadIn, out *gofuse.DirEntryList) gofuse.Status {
	s := k.RawFileSystem.ReadDirPlus(cancel, in, out)
	k.answer("READDIRPLUS")
	return s
}

func (k *kernel) Mkdir(cancel <-chan struct{}, in *gofuse.MkdirIn, name string, out *gofuse.EntryOut) gofuse.Status {
	s := k.RawFileSystem.Mkdir(cancel, in, name, out)
	return k.fresh("MKDIR", s, out.AttrTimeout(), out.EntryTimeout())
}

func (k *kernel) Writev(cancel <-chan struct{}, in *gofuse.WriteIn, data [][]byte) (uint32, gofuse.Status) {
	k.count("WRITE")
	return k.RawFileSystem.Writev(cancel, in, data)
}

func (k *kernel) Flush(cancel <-chan struct{}, in *gofuse.FlushIn) gofuse.Status {
	k.count("FLUSH")
	return k.RawFileSystem.Flush(cancel, in)
}

func (k *kernel) Release(cancel <-chan struct{}, in *gofuse.ReleaseIn) {
	k.count("RELEASE")
	k.answer("before RELEASE")
	k.RawFileSystem.Release(cancel, in)
}

func (k *kernel) GetXAttr(cancel <-chan struct{}, in *gofuse.InHeader, attr string, dest []byte) (uint32, gofuse.Status) {
	k.count("GETXATTR")
	return k.RawFileSystem.GetXAttr(cancel, in, attr, dest)
}

// both runs a test with the kernel's epochs, if it has them, and without.
func both(t *testing.T, f func(t *testing.T, o fuse.Options)) {
	t.Run("epochs", func(t *testing.T) { f(t, fuse.Options{}) })
	t.Run("no epochs", func(t *testing.T) { f(t, fuse.Options{}.WithoutEpochs()) })
}

// TestRequestsOfASmallFile: how often the kernel asks for one.
func TestRequestsOfASmallFile(t *testing.T) {
	both(t, func(t *testing.T, o fuse.Options) {
		m, k := newRig(t).through(o)
		const n, dir, dirs = 200, "a/b/c", 3
		must(t, os.MkdirAll(m.path(dir), 0o755))
		text := make([]byte, 1024)
		must(t, os.Chmod(m.path("a"), 0o750))
		env.Eventually(t, "the directories are kept", func() bool {
			_, kept, err := lowlevel.Of(m.FS()).LstatKept(t.Context(), lowlevel.At("/"+dir))
			must(t, err)
			return kept
		})
		k.reset()
		began := time.Now()
		for i := range n {
			fd, err := unix.Open(m.path(dir)+"/"+strconv.Itoa(i), unix.O_CREAT|unix.O_WRONLY, 0o644)
			must(t, err)
			_, err = unix.Write(fd, text)
			must(t, err)
			must(t, unix.Close(fd))
		}
		got := k.reset()
		for _, what := range []string{"CREATE", "WRITE", "FLUSH"} {
			if got[what] != n {
				t.Errorf("%d times %s", got[what], what)
			}
		}
		// Of each file, its name is looked up; and the attributes of its directory are
		// asked for, which was changed. Each second there are the names and directories
		// on the way. A half is for who is disturbed.
		most := 2*n + n/2 + (dirs+2)*2*int(2+time.Since(began)/time.Second)
		if !m.HasEpochs() {
			most += dirs * n
		}
		if asks := got["LOOKUP"] + got["GETATTR"] + got["GETXATTR"]; asks > most {
			t.Errorf("%d questions, want at most %d: %d look-ups, %d for attributes", asks, most, got["LOOKUP"], got["GETATTR"])
		}
	})
}

// TestDirectoryRenamedElsewhere: its name is believed by the kernel, and stands
// for another at once when another host says so.
func TestDirectoryRenamedElsewhere(t *testing.T) {
	both(t, func(t *testing.T, o fuse.Options) {
		r := newRig(t)
		m, k := r.through(o)
		other, ctx := r.Client(t), t.Context()
		begin := func(i int) {
			must(t, other.MkdirAll(ctx, "/p/d/e", 0o755))
			must(t, other.WriteFile(ctx, "/p/d/e/f", []byte(strconv.Itoa(i))))
		}
		begin(0)
		if m.HasEpochs() {
			env.Eventually(t, "the kernel does not ask for the directories", func() bool {
				k.reset()
				m.reads("p/d/e/f", "0")
				got := k.reset()
				return got["LOOKUP"] == got["LOOKUP f"]
			})
		}
		for i := range 60 {
			m.reads("p/d/e/f", strconv.Itoa(i))
			m.reads("p/d/e/f", strconv.Itoa(i))
			switch i % 3 {
			case 0: // what the name stands for
				must(t, other.Rename(ctx, "/p/d", fmt.Sprint("/p/old", i), false))
			case 1: // one above
				must(t, other.Rename(ctx, "/p", fmt.Sprint("/old", i), false))
			case 2:
				must(t, other.RemoveAll(ctx, "/p/d"))
			}
			_, err := os.Stat(m.path("p/d"))
			is(t, err, syscall.ENOENT)
			begin(i + 1)
		}
	})
}

// TestDirectoryRenamedHereFirst: the kernel moves a name that it believes.
func TestDirectoryRenamedHereFirst(t *testing.T) {
	both(t, func(t *testing.T, o fuse.Options) {
		r := newRig(t)
		m, _ := r.through(o)
		other, ctx := r.Client(t), t.Context()
		for i := range 20 {
			must(t, os.MkdirAll(m.path("d/e"), 0o755))
			for range 3 { // believed by the last, at the latest
				_, err := os.Stat(m.path("d/e"))
				must(t, err)
			}
			must(t, os.Rename(m.path("d"), m.path("moved")))
			_, err := os.Stat(m.path("moved/e"))
			must(t, err)
			must(t, other.Rename(ctx, "/moved", fmt.Sprint("/old", i), false))
			_, err = os.Stat(m.path("moved"))
			is(t, err, syscall.ENOENT)
			_, err = os.Stat(m.path("d"))
			is(t, err, syscall.ENOENT)
		}
	})
}

// TestDirectoryTimes: what another mount does in a directory shows in its times.
func TestDirectoryTimes(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	must(t, os.Mkdir(a.path("d"), 0o755))
	mtime := func(m *mounted) time.Time {
		i, err := os.Stat(m.path("d"))
		must(t, err)
		return i.ModTime()
	}
	for i := range 100 {
		before := mtime(a)
		f, err := os.Create(b.path("d/" + strconv.Itoa(i)))
		must(t, err)
		must(t, f.Close())
		if x, y := mtime(a), mtime(b); !x.Equal(y) || x.Before(before) {
			t.Fatalf("it was %s, and is %s here, %s there", before, x, y)
		}
		c, err := os.Create(a.path("d/own" + strconv.Itoa(i)))
		must(t, err)
		if x, y := mtime(a), mtime(b); !x.Equal(y) {
			t.Fatalf("it is %s here, %s there", x, y)
		}
		must(t, c.Close())
	}
}

// TestDirectoryTimesAtOnce: a directory shows what has happened in it, though this
// mount's own call by which it happened has not returned.
func TestDirectoryTimesAtOnce(t *testing.T) {
	r := newRig(t)
	m, k := r.through(fuse.Options{})
	other, ctx := r.Client(t), t.Context()
	must(t, os.Mkdir(m.path("d"), 0o755))
	must(t, os.Chtimes(m.path("d"), time.Time{}, time.Unix(1_000_000_000, 0)))
	mtime := func() time.Time {
		i, err := os.Stat(m.path("d"))
		must(t, err)
		return i.ModTime()
	}
	for i := 0; ; i++ {
		name := "f" + strconv.Itoa(i)
		held, let := k.holdBack("CREATE " + name)
		defer let()
		old := mtime()
		k.reset()
		mtime()
		kept := k.reset()["GETATTR"] == 0 // by the kernel
		made := make(chan error, 1)
		go func() { made <- os.WriteFile(m.path("d/"+name), nil, 0o600) }()
		<-held
		want, err := other.Stat(ctx, "/d")
		must(t, err)
		if got := mtime(); got.Equal(old) || !got.Equal(want.ModTime()) {
			t.Fatalf("it was %s, and is %s; another sees %s", old, got, want.ModTime())
		}
		let()
		must(t, <-made)
		if kept {
			return
		}
	}
}

// underWay lets do run while an answer to a look-up of name is on its way to the
// kernel, and returns when both are over, with what was found.
func underWay(t *testing.T, m *mounted, k *kernel, path, name string, do func() error) *os.File {
	t.Helper()
	held, let := k.holdBack("LOOKUP " + name)
	defer let()
	found := make(chan *os.File, 1)
	go func() {
		for {
			f, err := os.OpenFile(m.path(path), unix.O_PATH, 0)
			select {
			case <-held:
				if err != nil {
					t.Error(err)
				}
				found <- f
				return
			default: // the kernel believed what it has
				_ = f.Close() // only looked at
			}
		}
	}()
	<-held
	revoked := m.FS().Stats().Cache.Revocations
	done := make(chan error, 1)
	go func() { done <- do() }()
	env.Eventually(t, "it is revoked", func() bool { return m.FS().Stats().Cache.Revocations > revoked })
	let()
	f := <-found
	must(t, <-done)
	t.Cleanup(func() { _ = f.Close() }) // only looked at
	return f
}

// TestRevokedUnderWay: what is revoked while an answer to a look-up is on its way
// to the kernel is not believed, whether or not the kernel knows the inode.
func TestRevokedUnderWay(t *testing.T) {
	both(t, func(t *testing.T, o fuse.Options) {
		r := newRig(t)
		other, ctx := r.Client(t), t.Context()
		for _, known := range []bool{true, false} {
			dir := fmt.Sprint("/", known)
			must(t, other.MkdirAll(ctx, dir+"/d", 0o755))
			must(t, other.Mkdir(ctx, dir+"/e", 0o755))
			must(t, other.WriteFile(ctx, dir+"/f", nil))
			m, k := r.through(o)
			kept := func(path string) {
				env.Eventually(t, "it is kept", func() bool {
					_, kept, err := lowlevel.Of(m.FS()).LstatKept(ctx, lowlevel.At(path))
					must(t, err)
					return kept
				})
				if known {
					_, err := os.Stat(m.path(path))
					must(t, err)
				}
			}
			mode := func(f *os.File) uint32 {
				var st unix.Stat_t
				must(t, unix.Fstat(int(f.Fd()), &st))
				return st.Mode & 0o777
			}
			kept(dir + "/f")
			f := underWay(t, m, k, dir+"/f", "f", func() error { return other.Chmod(ctx, dir+"/f", 0o600) })
			if got := mode(f); got != 0o600 {
				t.Errorf("known: %t: it has the mode %o still", known, got)
			}
			kept(dir + "/d")
			d := underWay(t, m, k, dir+"/d", "d", func() error { return other.Chmod(ctx, dir+"/d", 0o700) })
			if got := mode(d); got != 0o700 {
				t.Errorf("known: %t: the directory has the mode %o still", known, got)
			}
			kept(dir + "/e")
			underWay(t, m, k, dir+"/e", "e", func() error { return other.Rename(ctx, dir+"/e", dir+"/moved", false) })
			if _, err := os.Stat(m.path(dir + "/e")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("known: %t: %v of a directory that is not there", known, err)
			}
		}
	})
}

// TestMountInside: what is mounted on a folder of the mount stays there, though
// the kernel has to forget names; and they are forgotten.
func TestMountInside(t *testing.T) {
	r := newRig(t)
	m, _ := r.through(fuse.Options{})
	other, ctx := r.Client(t), t.Context()
	must(t, os.MkdirAll(m.path("a/in"), 0o755))
	must(t, os.MkdirAll(m.path("b/c"), 0o755))
	inner, err := fuse.Mount(ctx, client.Config{Namenodes: []string{r.Addr()}, User: "root"}, m.path("a/in"), fuse.Options{Root: "/b"})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:usetesting // the test's is over
		defer cancel()
		if err := inner.Unmount(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		_, err := os.Stat(m.path("b/c"))
		must(t, err)
		_, err = os.Stat(m.path("a/in/c"))
		must(t, err)
	}
	must(t, other.Rename(ctx, "/b/c", "/b/d", false))
	_, err = os.Stat(m.path("b/c"))
	is(t, err, syscall.ENOENT)
	_, err = os.Stat(m.path("a/in/d"))
	must(t, err)
}
