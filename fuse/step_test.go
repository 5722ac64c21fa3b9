package fuse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// meanwhile runs try again and again while do runs.
func meanwhile(t *testing.T, do func(), try func() error) {
	t.Helper()
	stop, result := make(chan struct{}), make(chan error, 1)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				if n == 0 {
					result <- errors.New("it was never tried")
					return
				}
				result <- nil
				return
			default:
			}
			if err := try(); err != nil {
				result <- err
				return
			}
			n++
		}
	}()
	do()
	close(stop)
	must(t, <-result)
}

// TestTruncateKeepsTheLease: nobody gets a file while its writer here cuts it.
func TestTruncateKeepsTheLease(t *testing.T) {
	r := newRig(t)
	m, other := r.mount(fuse.Options{}), r.Client(t)
	f := m.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	g := m.open("f", os.O_WRONLY|os.O_APPEND) // shares the lease
	meanwhile(t, func() {
		for i := range 40 {
			say(t, f, "0123456789")
			must(t, f.Truncate(int64(3*i+1)))
			say(t, g, "ab")
		}
	}, func() error {
		w, err := other.Append(t.Context(), "/f")
		if err == nil {
			_ = w.Close()
			return errors.New("another got the lease")
		}
		if !errors.Is(err, fserror.Held) && !errors.Is(err, fserror.NotFound) {
			return err
		}
		return nil
	})
	must(t, f.Close())
	must(t, g.Close())
	i, err := other.Stat(t.Context(), "/f")
	must(t, err)
	if i.Length != 3*39+1+2 || i.Open != nil {
		t.Fatal(i.Length, i.Open)
	}
}

// TestRenameOverAnOpenFile: there is a file at the name at each moment, and who
// has the old one open, here, keeps using it.
func TestRenameOverAnOpenFile(t *testing.T) {
	r := newRig(t)
	m, other := r.mount(fuse.Options{}), r.Client(t)
	for _, flags := range []int{os.O_RDONLY, os.O_RDWR | os.O_APPEND} {
		m.write("f", "first")
		var open []*os.File
		meanwhile(t, func() {
			for i := range 30 {
				open = append(open, m.open("f", flags))
				m.write("new", fmt.Sprint("number ", i))
				must(t, os.Rename(m.path("new"), m.path("f")))
			}
		}, func() error {
			_, err := other.Lstat(t.Context(), "/f")
			return err
		})
		for i, f := range open {
			want := fmt.Sprint("number ", i-1)
			if i == 0 {
				want = "first"
			}
			if flags != os.O_RDONLY {
				say(t, f, " and more")
				want += " and more"
			}
			got := make([]byte, 100)
			n, err := f.ReadAt(got, 0)
			if err != io.EOF || string(got[:n]) != want { //nolint:errorlint // as os.File has it
				t.Fatalf("%q %v, want %q", got[:n], err, want)
			}
			var st unix.Stat_t
			must(t, unix.Fstat(int(f.Fd()), &st))
			if st.Nlink != 0 {
				t.Fatal("it has", st.Nlink, "links")
			}
			must(t, f.Close())
		}
		entries, err := os.ReadDir(m.dir)
		must(t, err)
		if len(entries) != 1 {
			t.Fatal(entries)
		}
	}
}

// TestTheNameGoesToAnother: another host gives a name that is being removed or
// replaced here to a file that is open here. Who has it open keeps using it.
func TestTheNameGoesToAnother(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	var meanwhile atomic.Pointer[func()] // happens before the call that is sent next
	m := r.mount(fuse.Options{}, func(c *client.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				switch req.(type) {
				case *pb.DeleteRequest, *pb.RenameRequest:
					if do := meanwhile.Swap(nil); do != nil {
						(*do)()
					}
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
	})
	remove := func() error { return os.Remove(m.path("f")) }
	rename := func() error { return os.Rename(m.path("new"), m.path("f")) }
	for name, c := range map[string]struct {
		there, open bool
		change      func() error
		want        []string
	}{
		"remove":                   {true, false, remove, []string{"new"}},
		"remove an open file":      {true, true, remove, []string{"new"}},
		"rename":                   {true, false, rename, []string{"f"}},
		"rename over an open file": {true, true, rename, []string{"f"}},
		"rename over nothing":      {false, false, rename, []string{"f"}},
	} {
		t.Run(name, func(t *testing.T) {
			m.write("new", "new")
			m.write("second", "second")
			if c.there {
				m.write("f", "first")
			}
			if c.open {
				first := m.open("f", os.O_RDONLY)
				defer first.Close()
			}
			second := openedFile{File: m.open("second", os.O_RDONLY)}
			do := func() { must(t, other.Rename(t.Context(), "/second", "/f", true)) }
			meanwhile.Store(&do)
			must(t, c.change())
			if meanwhile.Load() != nil {
				t.Fatal("no call was sent")
			}
			second.has(t, "second") // and closes it
			env.Eventually(t, "nothing hidden is left", func() bool {
				entries, _, err := other.List(t.Context(), "/", "", 10)
				must(t, err)
				names := make([]string, len(entries))
				for i, e := range entries {
					names[i] = e.Name()
				}
				return slices.Equal(names, c.want)
			})
			must(t, os.Remove(m.path(c.want[0])))
		})
	}
}

// TestHiddenFilesAreRemovedLater: a hidden file goes also if no namenode answers when its last
// descriptor is closed.
func TestHiddenFilesAreRemovedLater(t *testing.T) {
	r, wire := newRig(t), new(env.Wire)
	m := r.mount(fuse.Options{}, func(c *client.Config) {
		c.DialOptions, c.Timeout = append(c.DialOptions, wire.DialOptions()...), 2*time.Second
	})
	other := r.Client(t)
	f := m.open("f", os.O_CREATE|os.O_WRONLY)
	say(t, f, "text")
	must(t, f.Sync())
	ino := stat(t, f).Ino
	must(t, os.Remove(m.path("f")))
	wire.Lose("Delete")
	must(t, f.Close())
	env.Eventually(t, "the mount has given up", func() bool { return m.Uses(ino) == 0 })
	wire.Set(nil)
	env.Eventually(t, "it is gone", func() bool {
		entries, _, err := other.List(t.Context(), "/", "", 10)
		must(t, err)
		return len(entries) == 0
	})
}

// TestHiddenNamesAreNeverListed: a listing that was read before a hidden file went
// with its last descriptor does not show its name after that either.
func TestHiddenNamesAreNeverListed(t *testing.T) {
	r := newRig(t)
	m, other := r.mount(fuse.Options{}), r.Client(t)
	hidden := func() bool {
		entries, _, err := other.List(t.Context(), "/", "", 1000)
		must(t, err)
		return slices.ContainsFunc(entries, func(i *client.FileInfo) bool { return strings.HasPrefix(i.Name(), ".f") })
	}
	for i := range 500 { // more than the kernel asks for at once; before ".f" in order
		must(t, other.Symlink(t.Context(), "to", fmt.Sprintf("/!%s%d", strings.Repeat("x", 100), i)))
	}
	m.write("f", "text")
	f := m.open("f", os.O_RDONLY)
	must(t, os.Remove(m.path("f")))
	if !hidden() {
		t.Fatal("the file has no hidden name")
	}
	dir, err := os.Open(m.dir)
	must(t, err)
	defer func() { _ = dir.Close() }() // only read
	first, err := dir.Readdirnames(1)
	must(t, err)
	must(t, f.Close())
	env.Eventually(t, "the hidden file is removed", func() bool { return !hidden() })
	rest, err := dir.Readdirnames(-1)
	must(t, err)
	for _, name := range append(first, rest...) {
		if !strings.HasPrefix(name, "!") {
			t.Errorf("%s is listed", name)
		}
	}
}

// TestOperationsFollowTheInode: what is done through a descriptor hits its file,
// though another host has moved it and made a new one of that name.
func TestOperationsFollowTheInode(t *testing.T) {
	r := newRig(t)
	m, other := r.mount(fuse.Options{}), r.Client(t)
	m.write("f", "0123456789")
	f := m.open("f", os.O_RDWR|os.O_APPEND)
	must(t, other.Rename(t.Context(), "/f", "/moved", false))
	must(t, other.WriteFile(t.Context(), "/f", []byte("another")))
	old := time.UnixMilli(1_000_000_000_000)
	must(t, f.Chmod(0o600))
	must(t, f.Truncate(5))
	say(t, f, "more")
	must(t, unix.Futimes(int(f.Fd()), []unix.Timeval{unix.NsecToTimeval(old.UnixNano()), unix.NsecToTimeval(old.UnixNano())}))
	must(t, f.Close())
	i, err := other.Stat(t.Context(), "/moved")
	must(t, err)
	if i.Mode() != 0o600 || i.Length != 9 || !i.ModTime().Equal(old) {
		t.Fatal(i.Mode(), i.Length, i.ModTime())
	}
	if i, err = other.Stat(t.Context(), "/f"); err != nil || i.Mode() != 0o644 || i.Length != 7 {
		t.Fatal(i, err)
	}
	m.reads("f", "another")
	m.reads("moved", "01234more")
	// And one that was deleted is never mistaken for the one of its name.
	g := m.open("moved", os.O_RDONLY)
	must(t, other.Remove(t.Context(), "/moved"))
	must(t, other.WriteFile(t.Context(), "/moved", []byte("third")))
	is(t, g.Chmod(0o640), unix.ESTALE)
	if i, err = other.Stat(t.Context(), "/moved"); err != nil || i.Mode() != 0o644 {
		t.Fatal(i, err)
	}
}

// TestModTimeOfOthers: a file that is open for write here keeps the modification
// time that another host gives it, unless something is written after that.
func TestModTimeOfOthers(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("f", "old")
	then := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	has := func(m *mounted, want bool) {
		t.Helper()
		i, err := os.Stat(m.path("f"))
		if must(t, err); i.ModTime().Equal(then) != want {
			t.Fatalf("%s", i.ModTime())
		}
	}
	touch := func(m *mounted) {
		t.Helper()
		must(t, os.Chtimes(m.path("f"), then, then))
	}

	f := b.open("f", os.O_WRONLY|os.O_APPEND)
	touch(a)
	has(b, true)
	must(t, f.Close()) // nothing was written
	has(a, true)

	f = b.open("f", os.O_WRONLY|os.O_APPEND)
	say(t, f, " and new")
	must(t, f.Sync())
	has(a, false)
	touch(a)
	has(b, true)
	must(t, f.Close()) // nothing more was written
	has(a, true)

	f = b.open("f", os.O_WRONLY|os.O_APPEND)
	say(t, f, " and newer")
	touch(b)
	must(t, f.Close())
	has(a, true)

	f = b.open("f", os.O_WRONLY|os.O_APPEND)
	touch(a)
	say(t, f, ".")
	must(t, f.Close())
	has(a, false)
	a.reads("f", "old and new and newer.")
}

// TestOddInput: what cannot be kept is refused, and says so by its number.
func TestOddInput(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	m.write("f", "text")
	is(t, os.Symlink("caf\xe9", m.path("l")), unix.EINVAL)
	is(t, unix.Setxattr(m.path("f"), "user.\xe9", []byte("v"), 0), unix.EINVAL)
	is(t, unix.UtimesNanoAt(unix.AT_FDCWD, m.path("f"), []unix.Timespec{{Sec: 1 << 60}, {Sec: 1 << 60}}, 0), unix.EINVAL)
}

// TestMountTwice: one mount at a folder.
func TestMountTwice(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	_, err := fuse.Mount(t.Context(), client.Config{Namenodes: []string{r.Addr()}}, m.dir, fuse.Options{})
	if !errors.Is(err, fserror.Exists) {
		t.Errorf("%v", err)
	}
}
