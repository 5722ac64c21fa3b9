package fuse_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a namenode with mounts in this process.
type rig struct {
	*env.Namenode
	t      testing.TB
	traces *traces
}

func newRig(t testing.TB, mods ...func(*namenode.Config)) *rig {
	t.Helper()
	return &rig{env.Start(t, mods...), t, newTraces()}
}

// mounted is one of them, and where.
type mounted struct {
	*fuse.Mounted
	dir   string
	t     testing.TB
	loses error // why it loses files on purpose, which its end may report once more
}

func (r *rig) mount(o fuse.Options, mods ...func(*client.Config)) *mounted {
	r.t.Helper()
	dir := r.t.TempDir()
	cfg := client.Config{Namenodes: []string{r.Config().Listen}, User: "root", Timeout: 2 * time.Minute}
	for _, mod := range mods {
		mod(&cfg)
	}
	under, err := fuse.Mount(r.t.Context(), cfg, dir, o.WithMoved(r.moved))
	must(r.t, err)
	m := &mounted{Mounted: under, dir: dir, t: r.t}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:usetesting // the test's is over
		defer cancel()
		if err := m.Unmount(ctx); err != nil && !(m.loses != nil && errors.Is(err, m.loses)) {
			r.t.Error(err)
		}
	})
	return m
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

// inside is a command that runs in a directory of a mount. It enters that itself: until a child
// has begun its program, this process, which answers for the mount, may have to wait for it.
func inside(ctx context.Context, dir string, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "sh", append([]string{"-c", `cd "$0" && exec "$@"`, dir}, argv...)...) //nolint:gosec // the test's own
}

func (m *mounted) write(name, text string) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.path(name), []byte(text), 0o644)) //nolint:gosec // a usual mode
}

func (m *mounted) reads(name, want string) {
	m.t.Helper()
	got, err := os.ReadFile(m.path(name))
	must(m.t, err)
	if string(got) != want {
		m.t.Fatalf("%s has %q, want %q", name, got, want)
	}
}

func (m *mounted) open(name string, flags int) *os.File {
	m.t.Helper()
	f, err := os.OpenFile(m.path(name), flags, 0o644) //nolint:gosec // a usual mode
	must(m.t, err)
	m.t.Cleanup(func() { f.Close() })
	return f
}

func is(t testing.TB, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func say(t testing.TB, w io.Writer, text string) {
	t.Helper()
	n, err := io.WriteString(w, text)
	if err != nil || n != len(text) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func TestBasics(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	m.write("a", "hello\n")
	m.reads("a", "hello\n")
	f := m.open("a", os.O_WRONLY|os.O_APPEND)
	say(t, f, "world\n")
	m.reads("a", "hello\nworld\n")
	must(t, f.Close())
	m.reads("a", "hello\nworld\n")
	must(t, os.Mkdir(m.path("d"), 0o755))
	m.write("d/b", "")
	entries, err := os.ReadDir(m.dir)
	must(t, err)
	if len(entries) != 2 || entries[0].Name() != "a" || !entries[1].IsDir() {
		t.Fatal(entries)
	}
	is(t, os.Remove(m.path("d")), syscall.ENOTEMPTY)
	must(t, os.Remove(m.path("d/b")))
	must(t, os.Remove(m.path("d")))
	must(t, os.Remove(m.path("a")))
	_, err = os.Stat(m.path("a"))
	is(t, err, syscall.ENOENT)
}

// TestUnmountAfterTheLastClose: a mount ends although the kernel, which is to be told
// of a file that went with its last descriptor, has let go of the mount by then.
func TestUnmountAfterTheLastClose(t *testing.T) {
	r := newRig(t, func(c *namenode.Config) { c.CacheTerm = 2 * time.Minute })
	m, k := r.through(fuse.Options{})
	m.write("f", "text")
	f := m.open("f", os.O_RDONLY)
	must(t, os.Remove(m.path("f")))
	env.Eventually(t, "the kernel keeps the attributes", func() bool {
		k.reset()
		_, err := f.Stat()
		must(t, err)
		return k.reset()["GETATTR"] == 0
	})
	held, let := k.holdBack("before RELEASE")
	must(t, f.Close())
	<-held
	must(t, unix.Unmount(m.dir, 0))
	let()
	select {
	case <-m.Ended():
	case <-time.After(time.Minute):
		t.Error("it has not ended within a minute")
	}
}

// TestRemovingIsNotOpening: a thread that was told that its file is gone may be about
// to open what it looks up next, which is then hidden instead of removed; not if it
// removes or replaces that.
func TestRemovingIsNotOpening(t *testing.T) {
	r := newRig(t)
	m, other := r.mount(fuse.Options{}), r.Client(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for what, change := range map[string]func() error{
		"remove": func() error { return os.Remove(m.path("f")) },
		"rename": func() error { return os.Rename(m.path("g"), m.path("f")) },
	} {
		for _, name := range []string{"f", "g", "gone"} {
			m.write(name, name)
		}
		gone := m.open("gone", os.O_RDONLY)
		must(t, other.Remove(t.Context(), "/gone"))
		_, err := gone.Stat()
		is(t, err, syscall.ESTALE)
		must(t, change())
		entries, _, err := other.List(t.Context(), "/", "", 10)
		must(t, err)
		for _, i := range entries {
			if strings.HasPrefix(i.Name(), ".") {
				t.Errorf("%s: there is a hidden file: %s", what, i.Name())
			}
		}
	}
}

// Whoever changes what an unmounted mount has read waits for nobody: the mount has
// said that it keeps nothing.
func TestAChangeDoesNotWaitForAMountThatHasEnded(t *testing.T) {
	r := newRig(t, func(c *namenode.Config) { c.CacheTerm = time.Hour })
	other := r.Client(t)
	must(t, other.WriteFile(t.Context(), "/f", []byte("x")))
	m := r.mount(fuse.Options{})
	env.Eventually(t, "what the mount reads is kept", func() bool {
		_, err := os.Stat(m.path("f"))
		must(t, err)
		return m.FS().Stats().Cache.Entries > 0
	})
	must(t, m.Unmount(t.Context()))
	must(t, other.Chmod(t.Context(), "/f", 0o600))
	must(t, other.Remove(t.Context(), "/f"))
}
