package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasefs/leasefs/internal/vfs"
)

// ErrCrashed is what every operation fails with from the crash on.
var ErrCrashed = errors.New("crashfs: the machine is down")

var _ vfs.FS = (*FS)(nil)

// FS is an in-memory file system that implements vfs.FS. See the package
// comment for what it keeps.
type FS struct {
	mu      sync.Mutex
	seed    uint64
	root    *node
	locks   map[string]bool
	ops     int
	opID    uint64 // of name operations, so that both halves of a rename agree
	age     uint64 // points, those of the file systems before it included
	crashAt int    // 0: never
	crashed bool

	failures []failure
	capacity int64 // bytes; MaxInt64: no limit
	used     int64 // bytes of all files with a name or open
	handles  int   // that are open
	readOnly bool
}

// New returns an empty file system. The seed chooses what Torn keeps; without
// one it is 0.
func New(seed ...uint64) *FS {
	f := &FS{root: newDir(), locks: map[string]bool{}, capacity: math.MaxInt64}
	if len(seed) > 0 {
		f.seed = seed[0]
	}
	return f
}

// node is a file or a directory.
type node struct {
	dir bool

	// A file. live is what is read back, disk is what a crash leaves, and ops
	// lead from the one to the other, unless a failed sync dropped some.
	live, disk []byte
	ops        []dataOp

	// A directory, likewise.
	entries, durable map[string]*node
	nameOps          []nameOp

	links int // names of a file
	refs  int // open handles
}

// dataOp is a write at off, or with data nil a truncation to off.
type dataOp struct {
	off  int64
	data []byte
}

// nameOp sets name to node, or with node nil removes name. The parts of one
// operation have the same id and fare alike.
type nameOp struct {
	id   uint64
	name string
	node *node
}

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, durable: map[string]*node{}}
}

// set changes the live names of d and notes what SyncDir will make durable.
func (d *node) set(id uint64, name string, n *node) {
	if n == nil {
		delete(d.entries, name)
	} else {
		d.entries[name] = n
	}
	d.nameOps = append(d.nameOps, nameOp{id, name, n})
}

func pathErr(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// clean splits a path into its components; "/a", "a" and "./a" are the same.
func clean(name string) []string {
	p := strings.Trim(filepath.ToSlash(filepath.Clean("/"+name)), "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

func (f *FS) lookup(name string) (*node, error) {
	n := f.root
	for _, c := range clean(name) {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[c]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// parent returns the directory of name and the last component.
func (f *FS) parent(name string) (*node, string, error) {
	parts := clean(name)
	if len(parts) == 0 {
		return nil, "", syscall.EINVAL
	}
	last := len(parts) - 1
	d, err := f.lookup(strings.Join(parts[:last], "/"))
	if err != nil {
		return nil, "", err
	}
	if !d.dir {
		return nil, "", syscall.ENOTDIR
	}
	return d, parts[last], nil
}

// point counts one numbered operation. It returns ErrCrashed if this is where
// the machine dies; the operation is then under way: noted, not done.
func (f *FS) point() error {
	if f.crashed {
		return ErrCrashed
	}
	f.ops++
	f.age++
	if f.crashAt > 0 && f.ops >= f.crashAt {
		f.crashed = true
		return ErrCrashed
	}
	return nil
}

// mutable is what every operation asks first that changes something.
func (f *FS) mutable() error {
	if f.crashed {
		return ErrCrashed
	}
	if f.readOnly {
		return syscall.EROFS
	}
	return nil
}

func (f *FS) nextID() uint64 { f.opID++; return f.opID }

// Create makes or truncates a file.
func (f *FS) Create(name string) (vfs.File, error) { return f.create(name, false) }

// CreateExclusive makes a file, or fails with fs.ErrExist.
func (f *FS) CreateExclusive(name string) (vfs.File, error) { return f.create(name, true) }

func (f *FS) create(name string, exclusive bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.mutable(); err != nil {
		return nil, pathErr("create", name, err)
	}
	d, base, err := f.parent(name)
	if err != nil {
		return nil, pathErr("create", name, err)
	}
	n := d.entries[base]
	switch {
	case n != nil && n.dir:
		return nil, pathErr("create", name, syscall.EISDIR)
	case n != nil && exclusive:
		return nil, pathErr("create", name, fs.ErrExist)
	}
	crash := f.point()
	if n == nil {
		n = &node{links: 1}
		d.set(f.nextID(), base, n)
	} else if len(n.live) > 0 {
		f.truncate(n, 0)
	}
	if crash != nil {
		return nil, pathErr("create", name, crash)
	}
	return f.handle(n, name, true), nil
}

func (f *FS) handle(n *node, name string, write bool) *file {
	n.refs++
	f.handles++
	return &file{fs: f, node: n, name: name, write: write}
}

// Handles is how many files are open. A file that is open twice counts twice.
func (f *FS) Handles() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handles
}

// Open opens a file for reading.
func (f *FS) Open(name string) (vfs.File, error) { return f.open(name, false) }

// OpenWrite opens an existing file for reading and writing.
func (f *FS) OpenWrite(name string) (vfs.File, error) { return f.open(name, true) }

func (f *FS) open(name string, write bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, pathErr("open", name, ErrCrashed)
	}
	n, err := f.lookup(name)
	switch {
	case err != nil:
		return nil, pathErr("open", name, err)
	case n.dir:
		return nil, pathErr("open", name, syscall.EISDIR)
	case write && f.readOnly:
		return nil, pathErr("open", name, syscall.EROFS)
	}
	return f.handle(n, name, write), nil
}

// Rename replaces to atomically. Both directories need SyncDir.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.rename(from, to); err != nil {
		return pathErr("rename", from, err)
	}
	return nil
}

func (f *FS) rename(from, to string) error {
	if err := f.mutable(); err != nil {
		return err
	}
	fd, fname, err := f.parent(from)
	if err != nil {
		return err
	}
	td, tname, err := f.parent(to)
	if err != nil {
		return err
	}
	n, old := fd.entries[fname], td.entries[tname]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n == old:
		return f.point()
	case old != nil && old.dir && !n.dir:
		return syscall.EISDIR
	case old != nil && n.dir && !old.dir:
		return syscall.ENOTDIR
	case old != nil && old.dir && len(old.entries) > 0:
		return syscall.ENOTEMPTY
	}
	crash := f.point()
	id := f.nextID()
	td.set(id, tname, n)
	fd.set(id, fname, nil)
	f.unlinked(old)
	return crash
}

// Link makes a second name of a file.
func (f *FS) Link(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.link(from, to); err != nil {
		return pathErr("link", to, err)
	}
	return nil
}

func (f *FS) link(from, to string) error {
	if err := f.mutable(); err != nil {
		return err
	}
	n, err := f.lookup(from)
	if err != nil {
		return err
	}
	d, base, err := f.parent(to)
	switch {
	case err != nil:
		return err
	case n.dir:
		return syscall.EPERM
	case d.entries[base] != nil:
		return fs.ErrExist
	}
	crash := f.point()
	n.links++
	d.set(f.nextID(), base, n)
	return crash
}

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.remove(name); err != nil {
		return pathErr("remove", name, err)
	}
	return nil
}

func (f *FS) remove(name string) error {
	if err := f.mutable(); err != nil {
		return err
	}
	d, base, err := f.parent(name)
	if err != nil {
		return err
	}
	n := d.entries[base]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n.dir && len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	crash := f.point()
	d.set(f.nextID(), base, nil)
	f.unlinked(n)
	return crash
}

// unlinked takes one name from n and gives its bytes back if that was the last.
func (f *FS) unlinked(n *node) {
	if n == nil || n.dir {
		return
	}
	n.links--
	f.reclaim(n)
}

func (f *FS) reclaim(n *node) {
	if n.links == 0 && n.refs == 0 {
		f.used -= int64(len(n.live))
	}
}

// MkdirAll makes name and its parents; each is a name in the one above it, and
// durable after SyncDir of that.
func (f *FS) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.root
	for _, c := range clean(name) {
		n := d.entries[c]
		if n == nil {
			if err := f.mutable(); err != nil {
				return pathErr("mkdir", name, err)
			}
			crash := f.point()
			n = newDir()
			d.set(f.nextID(), c, n)
			if crash != nil {
				return pathErr("mkdir", name, crash)
			}
		}
		if !n.dir {
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		d = n
	}
	if f.crashed {
		return pathErr("mkdir", name, ErrCrashed)
	}
	return nil
}

// List returns the names in a directory, sorted.
func (f *FS) List(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, pathErr("list", dir, ErrCrashed)
	}
	d, err := f.lookup(dir)
	if err == nil && !d.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathErr("list", dir, err)
	}
	names := make([]string, 0, len(d.entries))
	for name := range d.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Stat returns name, size and whether it is a directory; the time is zero.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, pathErr("stat", name, ErrCrashed)
	}
	n, err := f.lookup(name)
	if err != nil {
		return nil, pathErr("stat", name, err)
	}
	return info{filepath.Base(name), int64(len(n.live)), n.dir}, nil
}

// SyncDir makes the names in dir durable as they are now.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return pathErr("syncdir", dir, ErrCrashed)
	}
	d, err := f.lookup(dir)
	if err == nil && !d.dir {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = f.point()
	}
	if err != nil {
		return pathErr("syncdir", dir, err)
	}
	if err := f.injected(opSync, dir); err != nil {
		d.nameOps = nil
		return pathErr("syncdir", dir, err)
	}
	d.apply(d.nameOps)
	d.nameOps = nil
	return nil
}

// apply makes name operations durable.
func (d *node) apply(ops []nameOp) {
	for _, op := range ops {
		if op.node == nil {
			delete(d.durable, op.name)
		} else {
			d.durable[op.name] = op.node
		}
	}
}

// Lock takes the lock name, of which there is one a file system.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := strings.Join(clean(name), "/")
	if f.crashed {
		return nil, pathErr("lock", name, ErrCrashed)
	}
	if f.locks[key] {
		return nil, pathErr("lock", name, vfs.ErrLocked)
	}
	if _, _, err := f.parent(name); err != nil {
		return nil, pathErr("lock", name, err)
	}
	f.locks[key] = true
	return &lock{fs: f, key: key}, nil
}

type lock struct {
	fs   *FS
	key  string
	once sync.Once
}

func (l *lock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locks, l.key)
	})
	return nil
}

// Usage returns what Capacity leaves, and Capacity.
func (f *FS) Usage(string) (free, total int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return 0, 0, ErrCrashed
	}
	return max(0, f.capacity-f.used), f.capacity, nil
}

type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o750
	}
	return 0o640
}
