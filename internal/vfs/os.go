package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrLocked is what FS.Lock fails with while another process, or another Lock
// of this one, has the lock.
var ErrLocked = errors.New("locked by another process")

const (
	fileMode = 0o640
	dirMode  = 0o750
)

// OS returns the machine's file system. Files are opened close-on-exec. An
// interrupted system call is repeated; every other error is returned as it is.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode) //nolint:gosec // the caller's own folder
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (s osFS) Create(name string) (File, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (s osFS) CreateExclusive(name string) (File, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (s osFS) Open(name string) (File, error) { return s.open(name, os.O_RDONLY) }

func (s osFS) OpenWrite(name string) (File, error) { return s.open(name, os.O_RDWR) }

func (osFS) Rename(from, to string) error          { return os.Rename(from, to) }
func (osFS) Link(from, to string) error            { return os.Link(from, to) }
func (osFS) Remove(name string) error              { return os.Remove(name) }
func (osFS) MkdirAll(name string) error            { return os.MkdirAll(name, dirMode) }
func (osFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the caller's own folder
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Lock holds name with flock(2), which the kernel ends with the process however
// it dies. The file stays; it tells the process that has it, or had it last.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode) //nolint:gosec // the caller's own folder
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &fs.PathError{Op: "lock", Path: name, Err: lockedBy(f)}
		} else {
			err = &fs.PathError{Op: "lock", Path: name, Err: err}
		}
		_ = f.Close()
		return nil, err
	}
	// Who has it is for people; the lock holds without it, as on a full disk.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return &lock{f}, nil
}

// lock is a locked file. Close gives the lock up by name: a process that this one is
// just starting has a copy of the descriptor until its program runs.
type lock struct{ f *os.File }

func (l *lock) Close() error { return errors.Join(flock(l.f, unix.LOCK_UN), l.f.Close()) }

func flock(f *os.File, how int) error {
	return control(f, func(fd int) error { return unix.Flock(fd, how) })
}

func lockedBy(f *os.File) error {
	var buf [32]byte
	n, _ := f.ReadAt(buf[:], 0)
	if pid := strings.TrimSpace(string(buf[:n])); pid != "" {
		return fmt.Errorf("%w (pid %s)", ErrLocked, pid)
	}
	return ErrLocked
}

func (osFS) Usage(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	for {
		err = unix.Statfs(dir, &st)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := st.Frsize
	if unit <= 0 {
		unit = st.Bsize
	}
	//nolint:gosec // a disk of 2^63 bytes is not for today
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit, nil
}

// osFile is an os.File whose Sync leaves out what reading back does not need.
type osFile struct{ *os.File }

// Sync is fdatasync(2): content and length, not the time stamps.
func (f *osFile) Sync() error {
	if err := control(f.File, unix.Fdatasync); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// control runs a system call on f's descriptor, which a Close at the same time
// cannot take away, and again while a signal interrupts it.
func control(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	err = conn.Control(func(fd uintptr) {
		for {
			cerr = call(int(fd)) //nolint:gosec // a descriptor is a small number
			if !errors.Is(cerr, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return fs.ErrClosed // the only way in which Control itself fails
	}
	return cerr
}

// RenameNew renames a file or directory within an open directory, or anywhere with unix.AT_FDCWD, and replaces
// nothing: the error is unix.EEXIST then. Where the file system cannot tell, it looks before it renames.
func RenameNew(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	var there unix.Stat_t
	switch err := unix.Fstatat(dir, to, &there, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return unix.Renameat(dir, from, dir, to)
}
