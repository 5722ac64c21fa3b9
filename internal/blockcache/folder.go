package blockcache

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/topn"
	"github.com/leasefs/leasefs/internal/vfs"
)

const (
	// lockName is the file that whoever writes or removes holds locked. It says how
	// much the files take, and that the folder is for blocks.
	lockName = "leasefs-block-cache"
	// fileCost is what a file takes besides its blocks on disk.
	fileCost = 4 << 10
	// pieceCost is the most that a piece takes besides its data, without the table:
	// what is not whole at either end, and what the file system needs to find it.
	pieceCost = 64 << 10
	// oldest is how many files are found at once that may go.
	oldest = 4096
)

// folder is the folder of a Cache on disk.
type folder struct {
	name string
	root *os.Root
	size int64
	boot string // this run of the machine: after another one the sum is not believed

	evicted, damaged atomic.Uint64

	writing func() // of tests: a piece is about to be written; or nil
}

// openFolder checks and opens a folder.
func openFolder(dir string, size int64) (*folder, error) {
	if dir == "" {
		return nil, refused(fserror.InvalidArgument, dir, "the folder has no name")
	}
	switch st, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refused(fserror.NotFound, dir, "there is no such folder; make it first, on a local disk (mkdir -m 700)")
	case err == nil && !st.IsDir():
		return nil, refused(fserror.NotDirectory, dir, "it is not a folder")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, refused(vfs.KindOf(err), dir, "the folder cannot be opened: %v", err)
	}
	f := &folder{name: dir, root: root, size: size}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // empty: the sum is believed, until the limit is reached
	f.boot = string(bytes.TrimSpace(boot))
	if err := f.check(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return f, nil
}

// remote are the file systems on which a folder is refused.
var remote = map[int64]bool{
	unix.FUSE_SUPER_MAGIC: true, unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true,
	unix.CEPH_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.AFS_SUPER_MAGIC: true, unix.CODA_SUPER_MAGIC: true,
}

// check sees to it that the folder is this user's alone, and for blocks.
func (f *folder) check() error {
	d, err := f.root.Open(".")
	if err != nil {
		return refused(vfs.KindOf(err), f.name, "the folder cannot be listed: %v", err)
	}
	defer func() { _ = d.Close() }()
	st, err := d.Stat()
	if err != nil {
		return refused(vfs.KindOf(err), f.name, "the folder cannot be used: %v", err)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &on); err == nil && remote[on.Type] { //nolint:gosec // a descriptor is a small number
		return refused(fserror.Unsupported, f.name, "the folder is on a network file system or a mount of a program, which may be slower than the block store, and hang; choose one on a local disk")
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return refused(fserror.Permission, f.name, "the folder belongs to user %d, and this process runs as user %d: each user needs a folder of his own", sys.Uid, os.Geteuid())
	}
	if st.Mode().Perm()&0o077 != 0 {
		return refused(fserror.Permission, f.name, "others may look into the folder (its mode is %04o), and would see what they may not read; change it (chmod 700)", st.Mode().Perm())
	}
	if _, err := f.root.Lstat(lockName); errors.Is(err, fs.ErrNotExist) {
		names, err := d.Readdirnames(3)
		if err != nil && err != io.EOF { //nolint:errorlint // Readdirnames returns io.EOF itself
			return refused(vfs.KindOf(err), f.name, "the folder cannot be listed: %v", err)
		}
		for _, name := range names {
			if name != "lost+found" && name != lockName { // another process may be just as far
				return refused(fserror.InvalidArgument, f.name, "the folder has other files (%.64q), and was not used for blocks before; give an empty one", name)
			}
		}
	}
	lock, err := f.openLock()
	if err != nil {
		return refused(vfs.KindOf(err), f.name, "the folder cannot be written: %v", err)
	}
	return lock.Close()
}

func (f *folder) close() { _ = f.root.Close() } // what is written needs no sync

func (f *folder) openLock() (*os.File, error) {
	return f.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
}

// lock waits for the lock, until the context ends. It does not wait in the kernel: a
// process that was stopped may have it for ever.
func (f *folder) lock(ctx context.Context) (*sum, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		l, err := f.openLock()
		if err != nil {
			return nil, err
		}
		if err = flock(l, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			// Whoever empties the folder removes the lock too: then there is another.
			var own, now fs.FileInfo
			if own, err = l.Stat(); err == nil {
				if now, err = f.root.Stat(lockName); err == nil && os.SameFile(own, now) {
					return &sum{f, l}, nil
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		} else if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		_ = l.Close() // and with it the lock
		if err != nil {
			return nil, err
		}
		if err := clock.Pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) { //nolint:gosec // a descriptor is a small number
			return err
		}
	}
}

// sum is what the files take, in the hand of who holds the lock. It is never less
// than that while nobody else writes into the folder: it grows before a file does,
// and shrinks after one is gone.
type sum struct {
	f    *folder
	lock *os.File
}

// unlock gives the lock up by name: a process that this one is just starting has a
// copy of the descriptor until its program runs.
func (s *sum) unlock() {
	_ = flock(s.lock, unix.LOCK_UN)
	_ = s.lock.Close()
}

// sumText is the content of the lock file.
func (f *folder) sumText(n int64) string {
	text := fmt.Sprintf("%016x %-36.36s ", n, f.boot)
	return fmt.Sprintf("%s%08x\n", text, blockstore.CRC([]byte(text)))
}

// load is the sum; false: it is not known.
func (s *sum) load() (n int64, ok bool) {
	raw := make([]byte, len(s.f.sumText(0))+1)
	k, _ := s.lock.ReadAt(raw, 0) // what cannot be read is not known
	_, err := fmt.Sscanf(string(raw[:k]), "%16x ", &n)
	return n, err == nil && n >= 0 && s.f.sumText(n) == string(raw[:k])
}

func (s *sum) store(n int64) error {
	_, err := s.lock.WriteAt([]byte(s.f.sumText(max(n, 0))), 0)
	return err
}

// costOf is what a file counts in the sum.
func costOf(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks*512 + fileCost
	}
	return st.Size() + fileCost
}

// add writes a piece of a block, and removes other files first if there is no room
// for it. It returns how many bytes of data are new.
func (f *folder) add(ctx context.Context, name string, p piece) (written int, err error) {
	need := int64(len(p.data)+len(p.table)) + pieceCost
	if need > f.size {
		return 0, nil // it never fits
	}
	s, err := f.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer s.unlock()
	used, known := s.load()
	if !known || used+need > f.size {
		if used, err = f.makeRoom(s, need); err != nil {
			return 0, err
		}
		if used+need > f.size {
			return 0, nil // what is there cannot be removed
		}
	}
	if err := s.store(used + need); err != nil {
		return 0, err
	}
	if f.writing != nil {
		f.writing()
	}
	grown, written, err := f.writePiece(name, p)
	if serr := s.store(used + grown); err == nil {
		err = serr
	}
	return written, err
}

// writePiece returns by how much the file's cost has grown, and how many bytes of
// data are new in it.
func (f *folder) writePiece(name string, p piece) (grown int64, written int, err error) {
	file, err := f.openObject(name)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = file.Close() }() // nothing of it has to be durable
	var before int64
	st, err := file.Stat()
	if err != nil {
		return 0, 0, err
	}
	if st.Size() > 0 {
		before = costOf(st)
		same, err := compare(file, st, p)
		if err == nil && same {
			return 0, 0, nil
		}
		if err != nil {
			// The disk may be bad in that place: the bytes get another one.
			f.damaged.Add(1)
			if err := f.root.Remove(name); err != nil {
				return 0, 0, err
			}
			again, n, err := f.writePiece(name, p)
			return again - before, n, err
		}
	}
	if err = fill(file, p); err == nil {
		if st, err = file.Stat(); err == nil {
			return costOf(st) - before, len(p.data), nil
		}
	}
	_ = f.root.Remove(name) // else it counts as kept as far as it matches
	if _, serr := f.root.Lstat(name); errors.Is(serr, fs.ErrNotExist) {
		return -before, 0, err
	}
	return int64(len(p.data)+len(p.table)) + pieceCost, 0, err
}

// openObject opens the file of an object, which is made if there is none.
func (f *folder) openObject(name string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NONBLOCK
	file, err := f.root.OpenFile(name, flags, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	dir, _, _ := strings.Cut(name, "/")
	if err := f.root.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return f.root.OpenFile(name, flags, 0o600)
}

// fill writes a piece and the table.
func fill(file *os.File, p piece) error {
	if err := file.Truncate(p.block.Stored); err != nil {
		return err
	}
	if _, err := file.WriteAt(p.table, p.block.Stored-int64(len(p.table))); err != nil {
		return err
	}
	_, err := file.WriteAt(p.data, p.off)
	return err
}

// errDamaged says that a file has bytes that nobody wrote into it.
var errDamaged = errors.New("the file has other bytes than were written")

// compare tells whether a file has all of a piece. Where it has not, there must be
// nothing yet.
func compare(file *os.File, st fs.FileInfo, p piece) (same bool, err error) {
	if st.Size() != p.block.Stored {
		return false, errDamaged
	}
	same = true
	buf := make([]byte, blockstore.ChunkSize)
	look := func(want []byte, off int64) error {
		got := buf[:len(want)]
		if _, err := file.ReadAt(got, off); err != nil {
			return err
		}
		if bytes.Equal(got, want) {
			return nil
		}
		same = false
		if len(bytes.TrimLeft(got, "\x00")) > 0 {
			return errDamaged
		}
		return nil
	}
	if err := look(p.table, p.block.Stored-int64(len(p.table))); err != nil {
		return false, err
	}
	for off := 0; off < len(p.data); off += blockstore.ChunkSize {
		if err := look(p.data[off:min(off+blockstore.ChunkSize, len(p.data))], p.off+int64(off)); err != nil {
			return false, err
		}
	}
	return same, nil
}

// old is a file that may go.
type old struct {
	name string
	used time.Time
	cost int64
}

// trim removes what is more than the limit, which may have been lowered. It does not wait
// for the lock: whoever has it looks after the limit, too, or has stopped.
func (f *folder) trim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	s, err := f.lock(ctx)
	if err != nil {
		return // a piece that is written tells of it
	}
	defer s.unlock()
	if n, ok := s.load(); ok && n > f.size {
		_, _ = f.makeRoom(s, 0)
	}
}

// makeRoom counts what the files take, and removes those that were not used for the
// longest time until there is room for so much and some more, so that it is not
// counted again for each piece. It stores and returns the sum.
func (f *folder) makeRoom(s *sum, need int64) (used int64, err error) {
	for {
		first, total, err := f.count()
		if err != nil {
			return 0, err
		}
		used = total
		removed := false
		if used+need > f.size {
			for _, o := range first {
				if used+need <= f.size-f.size/16 {
					break
				}
				if err := f.root.Remove(o.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return 0, err
				}
				f.evicted.Add(1)
				used -= o.cost
				removed = true
			}
		}
		if err := s.store(used); err != nil {
			return 0, err
		}
		if used+need <= f.size || !removed {
			return used, nil
		}
	}
}

// count adds up what the files take, and finds those not used for the longest time.
// Of a time to come nobody knows what it means: such a file is as one never used.
func (f *folder) count() (first []old, total int64, err error) {
	keep := topn.New(oldest, func(a, b old) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) })
	soon := time.Now().Add(touchAge)
	err = f.each(".", func(dir fs.DirEntry) error {
		if !dir.IsDir() || !isNamespace(dir.Name()) {
			return nil
		}
		return f.each(dir.Name(), func(e fs.DirEntry) error {
			if !isObject(e.Name()) {
				return nil
			}
			st, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed by a person
			}
			if err != nil {
				return err
			}
			o := old{name: dir.Name() + "/" + e.Name(), used: st.ModTime(), cost: costOf(st)}
			if o.used.After(soon) {
				o.used = time.Time{}
			}
			total += o.cost
			keep.Add(o)
			return nil
		})
	})
	return keep.Sorted(), total, err
}

// each calls fn for what is in a folder.
func (f *folder) each(dir string, fn func(fs.DirEntry) error) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if err := fn(e); err != nil {
				return err
			}
		}
		if err == io.EOF { //nolint:errorlint // ReadDir returns io.EOF itself
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// isObject tells whether a file has a name that Cache.path made.
func isObject(name string) bool {
	var term, seq, stored uint64
	var crc uint32
	n, err := fmt.Sscanf(name, "%x-%x-%x-%x", &term, &seq, &stored, &crc)
	return err == nil && n == 4 && fmt.Sprintf("%x-%x-%x-%08x", term, seq, stored, crc) == name
}
