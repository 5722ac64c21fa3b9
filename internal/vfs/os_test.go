package vfs_test

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/vfstest"
)

func TestConformance(t *testing.T) {
	t.Run("os", func(t *testing.T) { vfstest.Run(t, vfs.OS(), t.TempDir()) })
	t.Run("crashfs", func(t *testing.T) { vfstest.Run(t, crashfs.New(), "/") })
}

// TestLockOfAnotherProcess: the lock names the process that holds it and ends
// with it, also when it is killed.
func TestLockOfAnotherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	if held := os.Getenv("LEASEFS_TEST_LOCK"); held != "" {
		if _, err := vfs.OS().Lock(held); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = io.ReadAll(os.Stdin) // until killed
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockOfAnotherProcess$") //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), "LEASEFS_TEST_LOCK="+name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, err = vfs.OS().Lock(name)
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "pid "+strconv.Itoa(cmd.Process.Pid)) {
		t.Fatalf("Lock: %v, want ErrLocked by %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	l, err := vfs.OS().Lock(name)
	if err != nil {
		t.Fatalf("Lock after the holder was killed: %v", err)
	}
	if pid, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(pid)) != strconv.Itoa(os.Getpid()) {
		t.Fatalf("the lock file says %q, %v", pid, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOSErrors(t *testing.T) {
	fsys, dir := vfs.OS(), t.TempDir()
	f, err := fsys.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Sync after Close: %v", err)
	}
	if err := fsys.SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SyncDir of nothing: %v", err)
	}
	if _, _, err := fsys.Usage(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Usage of nothing: %v", err)
	}
	free, total, err := fsys.Usage(dir)
	if err != nil || free <= 0 || total < free {
		t.Errorf("Usage: %d of %d, %v", free, total, err)
	}
	full, err := fsys.OpenWrite("/dev/full")
	if err != nil {
		t.Fatal("no /dev/full here")
	}
	defer full.Close()
	if _, err := full.Write([]byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write to a full disk: %v", err)
	}
	names, err := fsys.List(dir)
	if err != nil || !slices.Equal(names, []string{"f"}) {
		t.Errorf("List: %q, %v", names, err)
	}
}

// TestLockOfACopiedDescriptor: a closed lock is free, although a process that was
// being started just then still has a copy of its descriptor.
func TestLockOfACopiedDescriptor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	l, err := vfs.OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	copied := -1
	for _, e := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to != name {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if copied, err = unix.Dup(fd); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(copied) }()
	}
	if copied < 0 {
		t.Fatal("the lock has no descriptor")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = vfs.OS().Lock(name)
	if err != nil {
		t.Fatalf("Lock after Close: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRenameNew: nothing is replaced, and what is not there is no reason to look further.
func TestRenameNew(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, name := range []string{a, b} {
		if err := os.WriteFile(name, []byte(filepath.Base(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.RenameNew(unix.AT_FDCWD, a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another: %v", err)
	}
	if err := vfs.RenameNew(unix.AT_FDCWD, filepath.Join(dir, "none"), filepath.Join(dir, "c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := vfs.RenameNew(int(d.Fd()), "a", "c"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "c")); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
}
