package fuse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// TestAppendsInTurn: an append goes to the true end, whatever size this kernel
// believes the file to have.
func TestAppendsInTurn(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("log", "")
	want := ""
	for i := range 100 {
		for _, m := range []*mounted{a, b} {
			line := fmt.Sprintf("%d of %s\n", i, m.dir)
			f := m.open("log", os.O_WRONLY|os.O_APPEND)
			say(t, f, line)
			must(t, f.Sync())
			must(t, f.Close())
			want += line
		}
	}
	a.reads("log", want)
	b.reads("log", want)
}

func TestOneWriterOfTwoMounts(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	f := a.open("f", os.O_CREATE|os.O_WRONLY)
	_, err := os.OpenFile(b.path("f"), os.O_WRONLY, 0)
	is(t, err, syscall.EBUSY)
	is(t, os.Truncate(b.path("f"), 0), syscall.EBUSY)
	// A second descriptor of the same mount shares it, and so does a duplicate.
	g := a.open("f", os.O_WRONLY|os.O_APPEND)
	say(t, f, "one ")
	say(t, g, "two ")
	must(t, f.Close())
	d, err := syscall.Dup(int(g.Fd()))
	must(t, err)
	must(t, g.Close())
	_, err = os.OpenFile(b.path("f"), os.O_WRONLY, 0)
	is(t, err, syscall.EBUSY)
	n, err := syscall.Write(d, []byte("three"))
	if n != 5 || err != nil {
		t.Fatal(n, err)
	}
	must(t, syscall.Close(d))
	// Close has given it back when it returns.
	h := b.open("f", os.O_WRONLY|os.O_APPEND)
	say(t, h, "!")
	must(t, h.Close())
	a.reads("f", "one two three!")
}

// TestWait: a mount that waits gets the file when it is free.
func TestWait(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{Wait: true})
	f := a.open("f", os.O_CREATE|os.O_WRONLY)
	say(t, f, "first\n")
	got := make(chan error, 2)
	for _, flags := range []int{0, os.O_TRUNC} {
		go func() {
			g, err := os.OpenFile(b.path("f"), os.O_WRONLY|os.O_APPEND|flags, 0)
			if err == nil {
				_, err = io.WriteString(g, "second\n")
				if cerr := g.Close(); err == nil {
					err = cerr
				}
			}
			got <- err
		}()
	}
	r.waiting(a.FS(), "/f")
	must(t, f.Close())
	must(t, <-got)
	must(t, <-got)
	// In which order they came is open.
	data, err := os.ReadFile(a.path("f"))
	must(t, err)
	if s := string(data); s != "second\n" && s != "second\nsecond\n" {
		t.Fatalf("%q", s)
	}
}

// waiting waits until somebody waits for a file.
func (r *rig) waiting(fs *client.FS, path string) {
	r.t.Helper()
	for {
		for l, err := range fs.Leases().List(r.t.Context(), client.LeaseFilter{Path: path}) {
			must(r.t, err)
			if l.Waiting > 0 {
				return
			}
		}
		if r.t.Context().Err() != nil {
			r.t.Fatal("nobody ever waited")
		}
	}
}

func TestWhatFilesCannotDo(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	m.write("f", "0123456789")
	f := m.open("f", os.O_RDWR)
	_, err := f.WriteAt([]byte("x"), 3)
	is(t, err, syscall.EOPNOTSUPP)
	_, err = f.WriteAt([]byte("x"), 11)
	is(t, err, syscall.EOPNOTSUPP)
	is(t, f.Truncate(11), syscall.EOPNOTSUPP)
	is(t, syscall.Fallocate(int(f.Fd()), 0, 0, 100), syscall.EOPNOTSUPP)
	must(t, f.Close())
	is(t, os.Truncate(m.path("f"), 11), syscall.EOPNOTSUPP)
	m.reads("f", "0123456789")
	is(t, os.Link(m.path("f"), m.path("g")), syscall.EPERM)
	is(t, unix.Mknod(m.path("p"), unix.S_IFIFO|0o600, 0), syscall.EPERM)
	is(t, unix.Mknod(m.path("s"), unix.S_IFSOCK|0o600, 0), syscall.EPERM)
	must(t, unix.Mknod(m.path("r"), unix.S_IFREG|0o600, 0))
	m.reads("r", "")
	is(t, unix.Setxattr(m.path("f"), "trusted.a", []byte("b"), 0), syscall.ENOTSUP)
	_, err = os.OpenFile(m.path("f"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	is(t, err, syscall.EEXIST)
	_, err = os.Create(m.path("bad\xff"))
	is(t, err, syscall.EINVAL)
	_, err = os.Create(m.path(strings.Repeat("n", 256)))
	is(t, err, syscall.ENAMETOOLONG)
}

func TestTruncate(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	m.write("f", "0123456789")
	must(t, os.Truncate(m.path("f"), 8))
	m.reads("f", "01234567")
	f := m.open("f", os.O_RDWR)
	g := m.open("f", os.O_WRONLY|os.O_APPEND)
	must(t, f.Truncate(4))
	say(t, g, "xy")
	m.reads("f", "0123xy")
	must(t, f.Truncate(5)) // of bytes that may not be flushed
	say(t, g, "z")
	m.reads("f", "0123xz")
	h := m.open("f", os.O_WRONLY|os.O_TRUNC)
	say(t, h, "new")
	say(t, g, "er")
	must(t, f.Close())
	must(t, g.Close())
	must(t, h.Close())
	m.reads("f", "newer")
	m.write("f", "again")
	m.reads("f", "again")
}

// TestLostLease: who was fenced gets ESTALE from then on, and not a byte gets in.
func TestLostLease(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	f := m.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	say(t, f, "mine\n")
	must(t, f.Sync())
	say(t, f, "not flushed\n")
	other := r.Client(t)
	_, err := other.Recover(t.Context(), "/f", true)
	must(t, err)
	w, err := other.Append(t.Context(), "/f")
	must(t, err)
	_, err = io.WriteString(w, "theirs\n")
	must(t, err)
	must(t, w.Close())
	is(t, f.Sync(), syscall.ESTALE)
	_, err = io.WriteString(f, "late\n")
	is(t, err, syscall.ESTALE)
	is(t, f.Truncate(0), syscall.ESTALE)
	// A new opening is a new holder; the old one stays as it is.
	g := m.open("f", os.O_WRONLY|os.O_APPEND)
	say(t, g, "mine again\n")
	_, err = io.WriteString(f, "late\n")
	is(t, err, syscall.ESTALE)
	is(t, f.Close(), syscall.ESTALE)
	must(t, g.Close())
	m.reads("f", "mine\ntheirs\nmine again\n")
}

// TestDeletedElsewhere: a file that another host removed or replaced is gone.
func TestDeletedElsewhere(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	f := a.open("f", os.O_CREATE|os.O_RDWR)
	say(t, f, "text")
	must(t, f.Sync())
	must(t, os.Remove(b.path("f")))
	_, _ = io.WriteString(f, "more") // it may not be known yet
	is(t, f.Sync(), syscall.ESTALE)
	_, err := io.WriteString(f, "more")
	is(t, err, syscall.ESTALE)
	_, err = f.ReadAt(make([]byte, 4), 0)
	is(t, err, syscall.ESTALE)
	_, err = f.Stat()
	is(t, err, syscall.ESTALE)
}

// TestDuplicateWritesOn: a duplicate in another process than the opener's, which
// cannot be known of, continues if nobody had the file meanwhile.
func TestDuplicateWritesOn(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	for name, want := range map[string]string{"free": "one\ntwo\n", "longer": "one\ntheirs\n", "as long": "one\n"} {
		taken := name != "free"
		f := a.open(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
		say(t, f, "one\n")
		sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		must(t, err)
		must(t, unix.Sendmsg(sockets[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0))
		must(t, f.Close()) // the only one left is in the socket
		if taken {
			g := b.open(name, os.O_WRONLY|os.O_APPEND)
			say(t, g, "theirs\n")
			if name == "as long" {
				must(t, g.Truncate(4))
			}
			must(t, g.Close())
		}
		oob := make([]byte, 64)
		_, n, _, _, err := unix.Recvmsg(sockets[1], make([]byte, 1), oob, 0)
		must(t, err)
		msgs, err := unix.ParseSocketControlMessage(oob[:n])
		must(t, err)
		fds, err := unix.ParseUnixRights(&msgs[0])
		must(t, err)
		_, err = unix.Write(fds[0], []byte("two\n"))
		if taken {
			is(t, err, syscall.ESTALE)
		} else {
			must(t, err)
			_, err := os.OpenFile(b.path(name), os.O_WRONLY, 0)
			is(t, err, syscall.EBUSY)
		}
		_ = unix.Close(fds[0])
		b.reads(name, want)
		must(t, unix.Close(sockets[0]))
		must(t, unix.Close(sockets[1]))
	}
}

func TestModTime(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	old := time.Date(2001, 2, 3, 4, 5, 6, 7e6, time.UTC)
	mtime := func() time.Time {
		t.Helper()
		i, err := os.Stat(m.path("f"))
		must(t, err)
		return i.ModTime()
	}
	f := m.open("f", os.O_CREATE|os.O_WRONLY)
	say(t, f, "text")
	must(t, unix.Futimes(int(f.Fd()), []unix.Timeval{unix.NsecToTimeval(old.UnixNano()), unix.NsecToTimeval(old.UnixNano())}))
	if !mtime().Equal(old) {
		t.Fatalf("open: %v", mtime())
	}
	must(t, f.Close())
	if !mtime().Equal(old) {
		t.Fatalf("closed: %v", mtime())
	}
	f = m.open("f", os.O_WRONLY|os.O_APPEND)
	must(t, f.Close())
	if !mtime().Equal(old) {
		t.Fatalf("opened and closed: %v", mtime())
	}
	f = m.open("f", os.O_WRONLY|os.O_APPEND)
	say(t, f, "more")
	i, err := f.Stat()
	must(t, err)
	must(t, f.Close())
	if at := mtime(); at.Equal(old) || !at.Equal(i.ModTime()) {
		t.Fatalf("written: %v, while open %v", at, i.ModTime())
	}
}

func TestUnlinkWhileOpen(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	must(t, os.Mkdir(a.path("d"), 0o755))
	f := a.open("d/f", os.O_CREATE|os.O_RDWR|os.O_APPEND)
	say(t, f, "one ")
	must(t, os.Remove(a.path("d/f")))
	_, err := os.Stat(b.path("d/f"))
	is(t, err, syscall.ENOENT)
	a.write("d/f", "another")
	say(t, f, "two")
	must(t, f.Sync())
	got := make([]byte, 7)
	_, err = f.ReadAt(got, 0)
	must(t, err)
	i, err := f.Stat()
	must(t, err)
	if string(got) != "one two" || i.Size() != 7 || i.Sys().(*syscall.Stat_t).Nlink != 0 {
		t.Fatalf("%q, %d bytes", got, i.Size())
	}
	must(t, f.Truncate(3))
	entries, err := os.ReadDir(a.path("d"))
	must(t, err)
	if len(entries) != 1 {
		t.Fatal(entries)
	}
	must(t, os.Remove(a.path("d/f")))
	must(t, os.Remove(a.path("d"))) // the hidden one goes up
	say(t, f, "!!!!")
	must(t, f.Close())
	env.Eventually(t, "the hidden file is gone", func() bool {
		list, err := b.FS().ReadDir(t.Context(), "/")
		must(t, err)
		return len(list) == 0
	})
}

func TestRename(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("new", "new")
	a.write("old", "old")
	must(t, os.Mkdir(a.path("d"), 0o755))
	is(t, unix.Renameat2(unix.AT_FDCWD, a.path("new"), unix.AT_FDCWD, a.path("old"), unix.RENAME_NOREPLACE), syscall.EEXIST)
	is(t, unix.Renameat2(unix.AT_FDCWD, a.path("new"), unix.AT_FDCWD, a.path("old"), unix.RENAME_EXCHANGE), syscall.EINVAL)
	is(t, os.Rename(a.path("new"), a.path("d")), syscall.EEXIST) // Go's own: a folder is there
	is(t, unix.Rename(a.path("new"), a.path("d")), syscall.EISDIR)
	is(t, unix.Rename(a.path("d"), a.path("new")), syscall.ENOTDIR)
	is(t, unix.Rename(a.path("d"), a.path("d/e")), syscall.EINVAL)
	reader := a.open("old", os.O_RDONLY)
	must(t, os.Rename(a.path("new"), a.path("old")))
	b.reads("old", "new")
	got, err := io.ReadAll(reader)
	must(t, err)
	if string(got) != "old" {
		t.Fatalf("the one that was replaced reads %q", got)
	}
	writer := a.open("old", os.O_RDWR|os.O_APPEND)
	a.write("newest", "newest")
	must(t, os.Rename(a.path("newest"), a.path("old")))
	say(t, writer, "!")
	must(t, writer.Sync())
	got = make([]byte, 4)
	_, err = writer.ReadAt(got, 0)
	must(t, err)
	if string(got) != "new!" {
		t.Fatalf("the one that was replaced reads %q", got)
	}
	must(t, writer.Close())
	b.reads("old", "newest")
	// A file continues under its new name, logrotate's way.
	log := a.open("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	say(t, log, "1\n")
	must(t, os.Rename(a.path("log"), a.path("d/log.1")))
	say(t, log, "2\n")
	must(t, log.Close())
	b.reads("d/log.1", "1\n2\n")
}

func TestFlock(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("lock", "")
	f, g, h := a.open("lock", os.O_RDONLY), b.open("lock", os.O_RDONLY), b.open("lock", os.O_RDONLY)
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	is(t, syscall.Flock(int(g.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	is(t, syscall.Flock(int(g.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	got := make(chan error)
	go func() { got <- syscall.Flock(int(g.Fd()), syscall.LOCK_EX) }()
	r.waiting(a.FS(), "/lock")
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	must(t, <-got)
	// Within a mount.
	is(t, syscall.Flock(int(h.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	must(t, syscall.Flock(int(g.Fd()), syscall.LOCK_SH))
	must(t, syscall.Flock(int(h.Fd()), syscall.LOCK_SH|syscall.LOCK_NB))
	go func() { got <- syscall.Flock(int(h.Fd()), syscall.LOCK_EX) }()
	must(t, g.Close())
	must(t, <-got)
	must(t, h.Close())
	env.Eventually(t, "the lock is free", func() bool {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
}

// TestFlockWaits: while one waits for a lock that another host has, nobody else on the mount
// waits who does not want to.
func TestFlockWaits(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	b.write("f", "text")
	f, g := a.open("f", os.O_RDONLY), a.open("f", os.O_RDONLY)
	w := b.open("f", os.O_WRONLY|os.O_APPEND)
	got := make(chan error)
	go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	r.waiting(b.FS(), "/f")
	is(t, syscall.Flock(int(g.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	is(t, os.Truncate(a.path("f"), 0), syscall.EBUSY)
	for _, flags := range []int{os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC} {
		_, err := os.OpenFile(a.path("f"), flags, 0)
		is(t, err, syscall.EBUSY)
	}
	must(t, syscall.Flock(int(g.Fd()), syscall.LOCK_UN))
	must(t, w.Close())
	must(t, <-got)
	a.reads("f", "text")
}

// TestStaleDescriptorsBesideAFlock: while one waits for a lock that another host has, writes and
// closes of descriptors that lost the file wait for nothing, and so does the rest of the mount.
func TestStaleDescriptorsBesideAFlock(t *testing.T) {
	r := newRig(t)
	a, other := r.mount(fuse.Options{}), r.Client(t)
	must(t, os.Mkdir(a.path("d"), 0o755))
	a.write("d/x", "")
	a.write("y", "text")
	var old []*os.File
	for range 70 { // the kernel sends so many RELEASEs at once that reads would wait for them
		old = append(old, a.open("d/x", os.O_WRONLY|os.O_APPEND))
	}
	_, err := other.Recover(t.Context(), "/d/x", true)
	must(t, err)
	w, err := other.Append(t.Context(), "/d/x")
	must(t, err)
	env.Eventually(t, "it is stale", func() bool { _, err := old[0].WriteString("x"); return errors.Is(err, syscall.ESTALE) })
	g, got := a.open("d/x", os.O_RDONLY), make(chan error, 1)
	go func() { got <- syscall.Flock(int(g.Fd()), syscall.LOCK_EX) }()
	r.waiting(other, "/d/x")
	_, err = old[1].WriteString("x")
	is(t, err, syscall.ESTALE)
	for _, f := range old {
		_ = f.Close() // ESTALE, or nothing
	}
	a.write("d/new", "text")
	for _, name := range []string{"y", "d/new"} {
		a.reads(name, "text")
	}
	must(t, w.Close())
	must(t, <-got)
}

// TestFlocksThatBothUpgrade: who asks for another lock gives the old one up before he waits, so two
// that share one and both want it for themselves get it in turn.
func TestFlocksThatBothUpgrade(t *testing.T) {
	a := newRig(t).mount(fuse.Options{})
	a.write("f", "")
	got := make(chan error, 2)
	files := []*os.File{a.open("f", os.O_RDONLY), a.open("f", os.O_RDONLY)}
	for _, f := range files {
		must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_SH))
	}
	for _, f := range files {
		go func() {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			got <- errors.Join(err, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
		}()
	}
	must(t, <-got)
	must(t, <-got)
}

// TestCutProgram: a program that runs cannot be cut, and is as it was.
func TestCutProgram(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	sleep, err := exec.LookPath("sleep")
	must(t, err)
	text, err := os.ReadFile(sleep)
	must(t, err)
	must(t, os.WriteFile(m.path("sleep"), text, 0o755)) //nolint:gosec // it is to be run
	// Not by this process itself: while Go starts a program it may answer nothing.
	c := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0" 1000`, m.path("sleep")) //nolint:gosec // the test's own
	must(t, c.Start())
	env.Eventually(t, "it runs", func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", c.Process.Pid))
		return err == nil && exe == m.path("sleep")
	})
	for _, flags := range []int{unix.O_RDONLY | unix.O_TRUNC, unix.O_WRONLY | unix.O_TRUNC, unix.O_RDWR} {
		_, err := unix.Open(m.path("sleep"), flags, 0)
		is(t, err, unix.ETXTBSY)
	}
	is(t, unix.Truncate(m.path("sleep"), 0), unix.ETXTBSY)
	got, err := os.ReadFile(m.path("sleep"))
	must(t, err)
	if !bytes.Equal(got, text) {
		t.Fatalf("it has %d bytes, and had %d", len(got), len(text))
	}
	must(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	env.Eventually(t, "it may be cut again", func() bool {
		fd, err := unix.Open(m.path("sleep"), unix.O_RDONLY|unix.O_TRUNC, 0)
		if err == nil {
			must(t, unix.Close(fd))
		} else {
			is(t, err, unix.ETXTBSY)
		}
		return err == nil
	})
	m.reads("sleep", "")
}

// TestThreads: of which process a thread is.
func TestThreads(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "1000")
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Wait() })                       // it is killed
	own, child := uint32(os.Getpid()), uint32(c.Process.Pid) //nolint:gosec // process ids
	threads, err := os.ReadDir("/proc/self/task")
	must(t, err)
	others := 0
	for _, e := range threads {
		n, err := strconv.ParseUint(e.Name(), 10, 32)
		must(t, err)
		thread := uint32(n)
		if _, err := os.Stat("/proc/self/task/" + e.Name()); err != nil {
			continue // it has ended
		}
		if found, byProc := fuse.Group(thread); found != own || byProc != own {
			t.Errorf("thread %d of %d is of %d, by /proc of %d", thread, own, found, byProc)
		}
		if !fuse.InProcess(own, thread) || fuse.InProcess(child, thread) {
			t.Errorf("thread %d of %d", thread, own)
		}
		others++
	}
	if others < 2 {
		t.Errorf("%d threads", others)
	}
	if found, byProc := fuse.Group(child); found != child || byProc != child {
		t.Errorf("%d is of %d, by /proc of %d", child, found, byProc)
	}
	if fuse.InProcess(own, child) {
		t.Error("a child is not of its parent")
	}
	if found, _ := fuse.Group(1 << 30); found != 0 {
		t.Errorf("no thread is of %d", found)
	}
}
