package fuse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/fuse"
)

// TestSnapshots: what a snapshot has can be walked, read, listed and copied through a mount as it was,
// and is another inode than what there is now; nothing in it can be changed. Programs that walk the
// directory do not come upon it.
func TestSnapshots(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	ctx, c := t.Context(), m.FS()
	must(t, os.MkdirAll(m.path("d/sub"), 0o755))
	must(t, unix.Access(m.path("d"), unix.R_OK))
	is(t, unix.Access(m.path("d/.snapshot"), unix.F_OK), syscall.ENOENT) // and the kernel may keep that
	long := strings.Repeat("0123456789abcdef", 1<<16)
	m.write("d/long", long)
	m.write("d/f", "one")
	m.write("d/sub/g", "two")
	must(t, os.Symlink("sub/g", m.path("d/l")))
	must(t, os.Chmod(m.path("d/f"), 0o640))
	must(t, snapshots.Allow(ctx, c, "/d"))
	snap := func(name string) {
		t.Helper()
		_, err := snapshots.Make(ctx, c, "/d", name)
		must(t, err)
	}
	snap("s")
	m.write("d/long", "short")
	m.write("d/f", "later")
	must(t, os.Chmod(m.path("d/f"), 0o600))
	must(t, os.RemoveAll(m.path("d/sub")))

	names := func(path string) (list []string) {
		entries, err := os.ReadDir(m.path(path))
		must(t, err)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	if got := fmt.Sprint(names("d"), names("d/.snapshot"), names("d/.snapshot/s"), names("d/.snapshot/s/sub")); got != "[f l long] [s] [f l long sub] [g]" {
		t.Error(got)
	}
	for range 2 {
		m.reads("d/.snapshot/s/f", "one")
		m.reads("d/.snapshot/s/sub/g", "two")
		m.reads("d/.snapshot/s/l", "two")
		m.reads("d/.snapshot/s/long", long)
		m.reads("d/long", "short")
		m.reads("d/f", "later")
	}
	stat := func(path string) (st unix.Stat_t) {
		t.Helper()
		must(t, unix.Lstat(m.path(path), &st))
		return st
	}
	now, then := stat("d/f"), stat("d/.snapshot/s/f")
	if then.Size != 3 || then.Mode&0o777 != 0o640 || now.Mode&0o777 != 0o600 || now.Ino == then.Ino {
		t.Errorf("%+v, %+v", now, then)
	}
	seen := map[uint64]string{}
	must(t, filepath.WalkDir(m.path("d"), func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		if strings.Contains(path, ".snapshot") {
			t.Errorf("a walk comes to %s", path)
		}
		return nil
	}))
	for _, path := range []string{"d", "d/.snapshot", "d/.snapshot/s", "d/f", "d/.snapshot/s/f", "d/long", "d/.snapshot/s/long", "d/.snapshot/s/sub"} {
		ino := stat(path).Ino
		if seen[ino] != "" {
			t.Errorf("%s and %s are one inode, %d", path, seen[ino], ino)
		}
		seen[ino] = path
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(ctx, "cp", "-a", m.path("d/.snapshot/s"), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if data, err := os.ReadFile(filepath.Join(copied, "long")); err != nil || string(data) != long {
		t.Errorf("the copy has %d bytes, %v", len(data), err)
	}
	if out, err := exec.CommandContext(ctx, "ls", "-lR", m.path("d/.snapshot")).CombinedOutput(); err != nil || bytes.Contains(out, []byte("?")) {
		t.Errorf("%v: %s", err, out)
	}
	var room unix.Statfs_t
	must(t, unix.Statfs(m.path("d/.snapshot/s/f"), &room))
	must(t, unix.Statfs(m.path("d/.snapshot"), &room))

	f := m.path("d/.snapshot/s/f")
	opened := func(path string, flags int) error {
		fd, err := unix.Open(path, flags, 0o644)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	for what, err := range map[string]error{
		"write":    opened(f, unix.O_WRONLY),
		"both":     opened(f, unix.O_RDWR),
		"append":   opened(f, unix.O_WRONLY|unix.O_APPEND),
		"cut":      opened(f, unix.O_WRONLY|unix.O_TRUNC),
		"truncate": unix.Truncate(f, 1),
		"create":   opened(f+"new", unix.O_WRONLY|unix.O_CREAT),
		"mkdir":    unix.Mkdir(f+"new", 0o755),
		"snapshot": unix.Mkdir(m.path("d/.snapshot/t"), 0o755),
		"symlink":  unix.Symlink("x", f+"new"),
		"chmod":    unix.Chmod(f, 0o777),
		"utimes":   unix.Utimes(f, []unix.Timeval{{Sec: 1}, {Sec: 1}}),
		"setxattr": unix.Setxattr(f, "user.a", []byte("x"), 0),
		"unlink":   unix.Unlink(f),
		"rmdir":    unix.Rmdir(m.path("d/.snapshot/s")),
		"rename":   unix.Rename(f, m.path("g")),
		"into":     unix.Rename(m.path("d/f"), f+"new"),
		"over":     unix.Rename(m.path("d/f"), f),
		"in it":    unix.Rename(f, f+"new"),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, unix.Mkdir(m.path("d/sub2"), 0o755))
	is(t, unix.Mkdir(m.path("d/sub2/.snapshot"), 0o755), syscall.EINVAL)
	must(t, unix.Rmdir(m.path("d/sub2")))
	must(t, unix.Rename(m.path("d"), m.path("e")))
	m.reads("e/.snapshot/s/f", "one")
	must(t, unix.Rename(m.path("e"), m.path("d")))

	held := m.open("d/.snapshot/s/long", os.O_RDONLY)
	must(t, snapshots.Rename(ctx, c, "/d", "s", "t"))
	m.reads("d/.snapshot/t/f", "one")
	is(t, unix.Access(m.path("d/.snapshot/s"), unix.F_OK), syscall.ENOENT)
	if data, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", held.Fd())); err != nil || string(data) != long {
		t.Errorf("an open file in a snapshot that is renamed has %d bytes, %v", len(data), err)
	}
	snap("s")
	m.reads("d/.snapshot/s/f", "later")
	must(t, snapshots.Delete(ctx, c, "/d", "t"))
	if got := names("d/.snapshot"); !slices.Equal(got, []string{"s"}) {
		t.Error(got)
	}
	is(t, unix.Access(m.path("d/.snapshot/t/f"), unix.F_OK), syscall.ENOENT)
	must(t, held.Close())
}
