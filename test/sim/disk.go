package sim

import (
	"io"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// sharedDir is where every machine has the folder of blocks that all share.
const sharedDir = "/shared"

// disks is what one run of a namenode sees: its machine's disk, and the shared
// folder below sharedDir. After the machine has died nothing reaches either.
type disks struct {
	own, shared vfs.FS
	dead        atomic.Bool
	removing    func(name string) // see Config.Removing
}

func (d *disks) of(name string) (vfs.FS, error) {
	if d.dead.Load() {
		return nil, crashfs.ErrCrashed
	}
	if strings.HasPrefix(name, sharedDir) {
		return d.shared, nil
	}
	return d.own, nil
}

func on[T any](d *disks, name string, do func(vfs.FS) (T, error)) (T, error) {
	f, err := d.of(name)
	if err != nil {
		var none T
		return none, err
	}
	return do(f)
}

func (d *disks) file(name string, do func(vfs.FS) (vfs.File, error)) (vfs.File, error) {
	f, err := on(d, name, do)
	if err != nil {
		return nil, err
	}
	return &openFile{f, d}, nil
}

func (d *disks) do(name string, do func(vfs.FS) error) error {
	f, err := d.of(name)
	if err != nil {
		return err
	}
	return do(f)
}

func (d *disks) Create(name string) (vfs.File, error) {
	return d.file(name, func(f vfs.FS) (vfs.File, error) { return f.Create(name) })
}

func (d *disks) CreateExclusive(name string) (vfs.File, error) {
	return d.file(name, func(f vfs.FS) (vfs.File, error) { return f.CreateExclusive(name) })
}

func (d *disks) Open(name string) (vfs.File, error) {
	return d.file(name, func(f vfs.FS) (vfs.File, error) { return f.Open(name) })
}

func (d *disks) OpenWrite(name string) (vfs.File, error) {
	return d.file(name, func(f vfs.FS) (vfs.File, error) { return f.OpenWrite(name) })
}

func (d *disks) Rename(from, to string) error {
	return d.do(from, func(f vfs.FS) error { return f.Rename(from, to) })
}

func (d *disks) Link(from, to string) error {
	return d.do(from, func(f vfs.FS) error { return f.Link(from, to) })
}

func (d *disks) Remove(name string) error {
	if d.removing != nil {
		d.removing(name)
	}
	return d.do(name, func(f vfs.FS) error { return f.Remove(name) })
}

func (d *disks) MkdirAll(name string) error {
	return d.do(name, func(f vfs.FS) error { return f.MkdirAll(name) })
}

func (d *disks) List(dir string) ([]string, error) {
	return on(d, dir, func(f vfs.FS) ([]string, error) { return f.List(dir) })
}

func (d *disks) Stat(name string) (fs.FileInfo, error) {
	return on(d, name, func(f vfs.FS) (fs.FileInfo, error) { return f.Stat(name) })
}

func (d *disks) SyncDir(dir string) error {
	return d.do(dir, func(f vfs.FS) error { return f.SyncDir(dir) })
}

func (d *disks) Lock(name string) (io.Closer, error) {
	return on(d, name, func(f vfs.FS) (io.Closer, error) { return f.Lock(name) })
}

func (d *disks) Usage(dir string) (free, total int64, err error) {
	err = d.do(dir, func(f vfs.FS) (err error) {
		free, total, err = f.Usage(dir)
		return err
	})
	return free, total, err
}

// openFile is a file that dies with its machine.
type openFile struct {
	vfs.File
	d *disks
}

func (f *openFile) WriteAt(p []byte, off int64) (int, error) {
	if f.d.dead.Load() {
		return 0, crashfs.ErrCrashed
	}
	return f.File.WriteAt(p, off)
}

func (f *openFile) Write(p []byte) (int, error) {
	if f.d.dead.Load() {
		return 0, crashfs.ErrCrashed
	}
	return f.File.Write(p)
}

func (f *openFile) Sync() error {
	if f.d.dead.Load() {
		return crashfs.ErrCrashed
	}
	return f.File.Sync()
}
