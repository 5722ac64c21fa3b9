package fuse_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
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

// longTerm is a term of the cache that does not end because this machine is busy,
// and with it the right to drafts. (What is changed after a mount has ended that had
// it cached waits for it.)
func longTerm(c *namenode.Config) { c.CacheTerm = time.Minute }

// drafter is a mount that has directories to itself, and makes drafts there.
type drafter struct {
	*mounted
	wire *env.Wire
	n    int
}

func (r *rig) drafter(o fuse.Options, dirs ...string) *drafter {
	r.t.Helper()
	wire := new(env.Wire)
	m := r.mount(o, func(c *client.Config) { c.DialOptions = append(c.DialOptions, wire.DialOptions()...) })
	r.t.Cleanup(func() { wire.Set(nil); wire.Mend(); wire.Release() })
	d := &drafter{mounted: m, wire: wire}
	for _, dir := range append(dirs, "d")[:max(len(dirs), 1)] {
		d.ready(dir)
	}
	return d
}

// ready makes a directory, and waits until the mount makes drafts in it.
func (d *drafter) ready(dir string) {
	d.t.Helper()
	if err := os.Mkdir(d.path(dir), 0o755); !errors.Is(err, os.ErrExist) {
		must(d.t, err)
	}
	env.Eventually(d.t, "a file is made without a call", func() bool {
		d.n++
		before := d.wire.Count("Create")
		f, err := os.OpenFile(d.path(dir+"/warm"+strconv.Itoa(d.n)), os.O_CREATE|os.O_WRONLY, 0o600)
		must(d.t, err)
		drafted := d.wire.Count("Create") == before
		must(d.t, f.Close())
		return drafted
	})
}

// begin opens a new file, which is a draft.
func (d *drafter) begin(name string, flags int) *os.File {
	d.t.Helper()
	before := d.wire.Count("Create")
	f := d.open(name, os.O_CREATE|os.O_EXCL|flags)
	if d.wire.Count("Create") != before {
		d.t.Fatalf("%s is no draft", name)
	}
	return f
}

// long is a time that does not pass in a test.
func long() fuse.Options { return fuse.Options{}.WithDraftTime(time.Hour) }

func stat(t testing.TB, f *os.File) (st unix.Stat_t) {
	t.Helper()
	must(t, unix.Fstat(int(f.Fd()), &st))
	return st
}

// TestDraftIsOneCall: what fstat says before the close is so after it.
func TestDraftIsOneCall(t *testing.T) {
	r := newRig(t, longTerm)
	a, b := r.drafter(long()), r.mount(fuse.Options{})
	for _, text := range []string{"", "text", strings.Repeat("x", 64<<10)} {
		name := fmt.Sprint("d/f", len(text))
		creates, closes := a.wire.Count("Create"), a.wire.Count("Close")
		f, err := os.OpenFile(a.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
		must(t, err)
		for _, half := range []string{text[:len(text)/2], text[len(text)/2:]} {
			say(t, f, half)
		}
		before := stat(t, f)
		if a.wire.Count("Create") != creates {
			t.Fatal("it is no draft")
		}
		must(t, f.Close())
		if n, m := a.wire.Count("Create")-creates, a.wire.Count("Close")-closes; n != 1 || m != 0 {
			t.Fatalf("%d Create, %d Close", n, m)
		}
		b.reads(name, text)
		for _, m := range []*mounted{a.mounted, b} {
			var after unix.Stat_t
			must(t, unix.Stat(m.path(name), &after))
			if before.Ino != after.Ino || before.Size != after.Size || before.Mode != after.Mode || before.Uid != after.Uid ||
				before.Gid != after.Gid || before.Nlink != after.Nlink || before.Mtim != after.Mtim || before.Blocks != after.Blocks {
				t.Fatalf("%d bytes:\n%+v\n%+v", len(text), before, after)
			}
		}
	}
}

// TestDraftIsKept: the kernel keeps what a draft is like, and no longer than it is
// one, whether the mount has its session's stream then or not.
func TestDraftIsKept(t *testing.T) {
	r := newRig(t, func(c *namenode.Config) { c.CacheTerm = 200 * time.Millisecond }) // less than attributes are kept
	a, other := r.drafter(long()), r.Client(t)
	for _, connected := range []bool{true, false} {
		var f *os.File // nothing is written: that the kernel would ask for
		var name string
		env.Eventually(t, "a draft, though the term is short", func() bool {
			name = fmt.Sprint("d/", connected, a.n)
			a.ready("d") // which counts
			before := a.wire.Count("Create")
			f = a.open(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
			return a.wire.Count("Create") == before
		})
		hello, goOn := make(chan struct{}), make(chan struct{})
		if !connected {
			said := sync.OnceFunc(func() { close(hello) })
			a.wire.Set(func(method string, _ any, send func() error) error {
				if method == "Session" {
					said()
					<-goOn
				}
				return send()
			})
			a.wire.Cut()
			a.wire.Mend()
			<-hello    // what was kept before is dropped,
			stat(t, f) // and this is kept
		}
		must(t, f.Sync()) // makes it
		must(t, other.Chmod(t.Context(), "/"+name, 0o604))
		if mode := stat(t, f).Mode & 0o777; mode != 0o604 {
			t.Errorf("connected %t: mode %o", connected, mode)
		}
		close(goOn)
		must(t, f.Close())
	}
}

// TestDraftOfAnother: others do not see a draft, nor do they get its name.
func TestDraftOfAnother(t *testing.T) {
	r := newRig(t, longTerm) // that long a draft is held
	a, b := r.drafter(long()), r.mount(fuse.Options{})
	b.write("x", "x")
	f := a.begin("d/f", os.O_WRONLY)
	say(t, f, "mine")
	_, err := os.Stat(b.path("d/f"))
	is(t, err, syscall.ENOENT)
	for _, flags := range []int{0, os.O_EXCL, os.O_TRUNC} {
		_, err = os.OpenFile(b.path("d/f"), os.O_CREATE|os.O_WRONLY|flags, 0o600)
		is(t, err, syscall.EBUSY)
	}
	is(t, os.Mkdir(b.path("d/f"), 0o755), syscall.EBUSY)
	is(t, os.Symlink("x", b.path("d/f")), syscall.EBUSY)
	is(t, os.Rename(b.path("x"), b.path("d/f")), syscall.EBUSY)
	is(t, unix.Mknod(b.path("d/f"), unix.S_IFREG|0o600, 0), syscall.EBUSY)
	entries, err := os.ReadDir(b.path("d"))
	must(t, err)
	for _, e := range entries {
		must(t, os.Remove(b.path("d/"+e.Name())))
	}
	is(t, unix.Rmdir(b.path("d")), syscall.EBUSY)
	must(t, os.Mkdir(b.path("e"), 0o755))
	is(t, unix.Rename(b.path("e"), b.path("d")), syscall.EBUSY)
	say(t, f, ", all")
	must(t, f.Close())
	_, err = os.OpenFile(b.path("d/f"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	is(t, err, syscall.EEXIST)
	is(t, os.Mkdir(b.path("d/f"), 0o755), syscall.EEXIST)
	is(t, unix.Rmdir(b.path("d")), syscall.ENOTEMPTY)
	b.reads("d/f", "mine, all")
	b.reads("x", "x")
	g := b.open("d/f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	say(t, g, "!")
	must(t, g.Close())
	a.reads("d/f", "mine, all!")
}

// TestDraftIsAFile: on its own mount a draft is a file like any other.
func TestDraftIsAFile(t *testing.T) {
	r := newRig(t, longTerm)
	a := r.drafter(long())
	b := r.Client(t)
	old := time.UnixMilli(1_000_000_000_123)
	at := []unix.Timeval{unix.NsecToTimeval(old.UnixNano()), unix.NsecToTimeval(old.UnixNano())}
	const began = "begun "
	for _, c := range []struct {
		name  string
		flags int
		do    func(t *testing.T, f *os.File, name string)
		want  string // "-": it is not there
	}{
		{"open to read", os.O_WRONLY, func(t *testing.T, _ *os.File, name string) { a.reads(name, began) }, began},
		{"open to append", os.O_WRONLY | os.O_APPEND, func(t *testing.T, f *os.File, name string) {
			g := a.open(name, os.O_WRONLY|os.O_APPEND)
			say(t, g, "g ")
			say(t, f, "f ")
			must(t, g.Close())
		}, began + "g f "},
		{"open to truncate", os.O_WRONLY | os.O_APPEND, func(t *testing.T, f *os.File, name string) {
			g := a.open(name, os.O_WRONLY|os.O_TRUNC)
			say(t, g, "g")
			must(t, g.Close())
			say(t, f, "f")
		}, "gf"},
		{"open to create", os.O_WRONLY | os.O_APPEND, func(t *testing.T, f *os.File, name string) {
			g := a.open(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
			say(t, g, "g")
			must(t, g.Close())
			_, err := os.OpenFile(a.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			is(t, err, syscall.EEXIST)
			is(t, os.Mkdir(a.path(name), 0o700), syscall.EEXIST)
			is(t, os.Symlink("x", a.path(name)), syscall.EEXIST)
		}, began + "g"},
		{"read back", os.O_RDWR, func(t *testing.T, f *os.File, _ string) {
			got := make([]byte, 100)
			n, err := f.ReadAt(got, 2)
			if err != io.EOF || string(got[:n]) != began[2:] { //nolint:errorlint // as os.File has it
				t.Fatalf("%q, %v", got[:n], err)
			}
			say(t, f, "more")
		}, began + "more"},
		{"fsync", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			must(t, f.Sync())
			i, err := b.Stat(t.Context(), "/"+name)
			must(t, err)
			if i.Inode != stat(t, f).Ino {
				t.Fatal(i.Inode)
			}
			say(t, f, "more")
			must(t, unix.Fdatasync(int(f.Fd())))
		}, began + "more"},
		{"ftruncate", os.O_WRONLY | os.O_APPEND, func(t *testing.T, f *os.File, _ string) {
			must(t, f.Truncate(3))
			say(t, f, "!")
			is(t, f.Truncate(100), syscall.EOPNOTSUPP)
		}, "beg!"},
		{"truncate", os.O_WRONLY | os.O_APPEND, func(t *testing.T, f *os.File, name string) {
			must(t, os.Truncate(a.path(name), 0))
			say(t, f, "!")
		}, "!"},
		{"fchmod", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			must(t, f.Chmod(0o604))
			if m := stat(t, f).Mode & 0o777; m != 0o604 {
				t.Fatalf("%o", m)
			}
		}, began},
		{"fchown", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			must(t, f.Chown(os.Getuid(), os.Getgid()))
		}, began},
		{"futimens", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			must(t, unix.Futimes(int(f.Fd()), at))
			must(t, f.Close())
			i, err := b.Stat(t.Context(), "/"+name)
			must(t, err)
			if !i.ModTime().Equal(old) {
				t.Fatal(i.ModTime())
			}
		}, began},
		{"fsetxattr", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			must(t, unix.Fsetxattr(int(f.Fd()), "user.a", []byte("b"), 0))
			got := make([]byte, 10)
			n, err := unix.Fgetxattr(int(f.Fd()), "user.a", got)
			if err != nil || string(got[:n]) != "b" {
				t.Fatal(n, err)
			}
			must(t, unix.Fremovexattr(int(f.Fd()), "user.a"))
		}, began},
		{"fgetxattr", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			_, err := unix.Fgetxattr(int(f.Fd()), "user.a", nil)
			is(t, err, unix.ENODATA)
			n, err := unix.Fgetxattr(int(f.Fd()), "leasefs.holder", make([]byte, 300))
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
		}, began},
		{"flock", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
			g := a.open(name, os.O_RDONLY)
			is(t, unix.Flock(int(g.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
			must(t, unix.Flock(int(f.Fd()), unix.LOCK_UN))
			must(t, g.Close())
		}, began},
		{"rename", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			must(t, os.Rename(a.path(name), a.path("else")))
			say(t, f, "there")
			must(t, f.Close())
			_, err := os.Stat(a.path(name))
			is(t, err, syscall.ENOENT)
			must(t, os.Rename(a.path("else"), a.path(name)))
		}, began + "there"},
		{"rename over it", os.O_RDWR, func(t *testing.T, f *os.File, name string) {
			a.write("other", "other")
			must(t, os.Rename(a.path("other"), a.path(name)))
			say(t, f, "goes on")
			got := make([]byte, 100)
			n, _ := f.ReadAt(got, 0)
			if st := stat(t, f); string(got[:n]) != began+"goes on" || st.Nlink != 0 {
				t.Fatalf("%q, %d links", got[:n], st.Nlink)
			}
		}, "other"},
		{"rename it over", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			a.write("target", "other")
			must(t, os.Rename(a.path(name), a.path("target")))
			must(t, f.Close())
			must(t, os.Rename(a.path("target"), a.path(name)))
		}, began},
		{"unlink", os.O_RDWR, func(t *testing.T, f *os.File, name string) {
			must(t, os.Remove(a.path(name)))
			_, err := b.Stat(t.Context(), "/"+name)
			if !errors.Is(err, fserror.NotFound) {
				t.Fatal(err)
			}
			say(t, f, "goes on")
			must(t, f.Sync())
			got := make([]byte, 100)
			n, _ := f.ReadAt(got, 0)
			if st := stat(t, f); string(got[:n]) != began+"goes on" || st.Nlink != 0 {
				t.Fatalf("%q, %d links", got[:n], st.Nlink)
			}
			must(t, f.Close())
		}, "-"},
		{"list", os.O_WRONLY, func(t *testing.T, _ *os.File, name string) {
			entries, err := os.ReadDir(a.path(path.Dir(name)))
			must(t, err)
			for _, e := range entries {
				if i, err := e.Info(); e.Name() == "f" && err == nil && i.Size() == int64(len(began)) {
					return
				}
			}
			t.Fatal(entries)
		}, began},
		{"stat of the directory", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			i, err := os.Stat(a.path(path.Dir(name)))
			must(t, err)
			must(t, f.Close())
			j, err := os.Stat(a.path(path.Dir(name)))
			must(t, err)
			if !i.ModTime().Equal(j.ModTime()) {
				t.Fatal(i.ModTime(), j.ModTime())
			}
		}, began},
		{"link", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			is(t, os.Link(a.path(name), a.path("link/g")), syscall.EPERM)
			say(t, f, "and goes on")
		}, began + "and goes on"},
		{"rmdir", os.O_WRONLY, func(t *testing.T, f *os.File, name string) {
			is(t, unix.Rmdir(a.path(path.Dir(name))), syscall.ENOTEMPTY)
			must(t, os.Mkdir(a.path("empty"), 0o755))
			is(t, unix.Rename(a.path("empty"), a.path(path.Dir(name))), syscall.ENOTEMPTY)
			must(t, os.Remove(a.path("empty")))
			say(t, f, "and goes on")
		}, began + "and goes on"},
		{"dup", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			g, err := unix.Dup(int(f.Fd()))
			must(t, err)
			must(t, f.Close())
			_, err = unix.Write(g, []byte("goes on"))
			must(t, err)
			must(t, unix.Close(g))
		}, began + "goes on"},
		{"in a message", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			must(t, err)
			must(t, unix.Sendmsg(sockets[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0))
			must(t, f.Close()) // the only one left is in the socket
			oob := make([]byte, 64)
			_, n, _, _, err := unix.Recvmsg(sockets[1], make([]byte, 1), oob, 0)
			must(t, err)
			msgs, err := unix.ParseSocketControlMessage(oob[:n])
			must(t, err)
			fds, err := unix.ParseUnixRights(&msgs[0])
			must(t, err)
			_, err = unix.Write(fds[0], []byte("goes on"))
			must(t, err)
			for _, fd := range append(fds, sockets[:]...) {
				must(t, unix.Close(fd))
			}
		}, began + "goes on"},
		{"synchronous", os.O_WRONLY | os.O_SYNC, func(t *testing.T, f *os.File, name string) {
			i, err := b.Stat(t.Context(), "/"+name)
			must(t, err)
			if i.Open == nil || i.Length != int64(len(began)) {
				t.Fatal(i)
			}
		}, began},
		{"large", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			say(t, f, strings.Repeat("x", 64<<10-len(began)))
			say(t, f, "beyond")
		}, began + strings.Repeat("x", 64<<10-len(began)) + "beyond"},
		{"wrong offset", os.O_WRONLY, func(t *testing.T, f *os.File, _ string) {
			for _, off := range []int64{0, 7, 1 << 40} {
				_, err := f.WriteAt([]byte("x"), off)
				is(t, err, syscall.EOPNOTSUPP)
			}
			is(t, syscall.Fallocate(int(f.Fd()), 0, 0, 100), syscall.EOPNOTSUPP)
			say(t, f, "right")
		}, began + "right"},
		{"seek", os.O_RDWR, func(t *testing.T, f *os.File, _ string) {
			end, err := f.Seek(0, io.SeekEnd)
			if err != nil || end != int64(len(began)) {
				t.Fatal(end, err)
			}
			say(t, f, "end")
		}, began + "end"},
		{"directory renamed", os.O_WRONLY | os.O_APPEND, func(t *testing.T, f *os.File, name string) {
			must(t, os.Rename(a.path(path.Dir(name)), a.path("e")))
			must(t, os.Mkdir(a.path(path.Dir(name)), 0o755))
			_, err := os.Stat(a.path(name))
			is(t, err, syscall.ENOENT)
			g := a.open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
			say(t, g, "another")
			must(t, g.Close())
			say(t, f, "goes on")
			must(t, f.Close())
			a.reads(name, "another")
			must(t, os.Remove(a.path(name)))
			_, err = os.Stat(a.path(name))
			is(t, err, syscall.ENOENT)
			must(t, os.Remove(a.path(path.Dir(name))))
			must(t, os.Rename(a.path("e"), a.path(path.Dir(name))))
		}, began + "goes on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := strings.ReplaceAll(c.name, " ", "-")
			a.ready(dir)
			name := dir + "/f"
			f := a.begin(name, c.flags)
			say(t, f, began)
			c.do(t, f, name)
			if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Fatal(err)
			}
			got, err := b.ReadFile(t.Context(), "/"+name)
			if c.want == "-" && errors.Is(err, fserror.NotFound) {
				return
			}
			if err != nil || string(got) != c.want {
				t.Fatalf("%.100q, %v; want %.100q", got, err, c.want)
			}
			i, err := b.Stat(t.Context(), "/"+name)
			must(t, err)
			if i.Open != nil {
				t.Fatal("it is open")
			}
		})
	}
}

// TestDraftAndSyncedDirectory: what fsync of the directory has made durable is
// there for others, though it is open.
func TestDraftAndSyncedDirectory(t *testing.T) {
	r := newRig(t, longTerm)
	a, b := r.drafter(long()), r.Client(t)
	d, err := os.Open(a.path("d")) // before, since that looks at the directory
	must(t, err)
	f := a.begin("d/f", os.O_WRONLY)
	if _, err := b.Stat(t.Context(), "/d/f"); !errors.Is(err, fserror.NotFound) {
		t.Fatal(err)
	}
	must(t, d.Sync())
	must(t, d.Close())
	if i, err := b.Stat(t.Context(), "/d/f"); err != nil || i.Open == nil {
		t.Fatal(i, err)
	}
	must(t, f.Close())
}
