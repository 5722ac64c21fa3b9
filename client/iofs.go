package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// IOFS shows what is below the directory root as an io/fs file system, for
// reading. It implements fs.ReadDirFS, fs.ReadFileFS, fs.StatFS, fs.SubFS and
// fs.ReadLinkFS. All calls are under ctx. Errors are *fs.PathError; they match
// fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid and
// fs.ErrClosed, and the kinds of fserror, under errors.Is.
func (f *FS) IOFS(ctx context.Context, root string) fs.FS {
	return &ioFS{ctx: ctx, fs: f, root: root}
}

type ioFS struct {
	ctx  context.Context // io/fs has none in its calls
	fs   *FS
	root string
}

var (
	_ fs.ReadDirFS  = (*ioFS)(nil)
	_ fs.ReadFileFS = (*ioFS)(nil)
	_ fs.StatFS     = (*ioFS)(nil)
	_ fs.SubFS      = (*ioFS)(nil)
	_ fs.ReadLinkFS = (*ioFS)(nil)
)

// at calls do with the path of a name, and makes its error one of io/fs.
func (i *ioFS) at(op, name string, do func(path string) error) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	p := i.root
	if name != "." {
		p = fspath.Join(i.root, name)
	}
	return ioError(op, name, do(p))
}

// Open implements fs.FS.
func (i *ioFS) Open(name string) (file fs.File, err error) {
	err = i.at("open", name, func(p string) error {
		r, err := i.fs.Open(i.ctx, p)
		if errors.Is(err, fserror.IsDirectory) {
			var info *FileInfo
			if info, err = i.fs.Stat(i.ctx, p); err == nil {
				file = &ioDir{fs: i, path: p, name: name, info: named(info, name)}
			}
			return err
		}
		if err != nil {
			return err
		}
		info, err := r.Stat()
		file = &ioFile{Reader: r, name: name, info: named(info, name)}
		return err
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// ReadFile implements fs.ReadFileFS.
func (i *ioFS) ReadFile(name string) (data []byte, err error) {
	err = i.at("readfile", name, func(p string) error { data, err = i.fs.ReadFile(i.ctx, p); return err })
	return data, err
}

// ReadDir implements fs.ReadDirFS.
func (i *ioFS) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = i.at("readdir", name, func(p string) error {
		for info, err := range i.fs.Entries(i.ctx, p) {
			if err != nil {
				return err
			}
			entries = append(entries, info)
		}
		return nil
	})
	return entries, err
}

// Stat implements fs.StatFS; it follows symbolic links.
func (i *ioFS) Stat(name string) (fs.FileInfo, error) { return i.stat(name, true) }

// Lstat implements fs.ReadLinkFS.
func (i *ioFS) Lstat(name string) (fs.FileInfo, error) { return i.stat(name, false) }

func (i *ioFS) stat(name string, follow bool) (out fs.FileInfo, err error) {
	err = i.at("stat", name, func(p string) error {
		info, err := i.fs.stat(i.ctx, "stat", p, follow)
		if err == nil {
			out = named(info, name)
		}
		return err
	})
	return out, err
}

// ReadLink implements fs.ReadLinkFS.
func (i *ioFS) ReadLink(name string) (target string, err error) {
	err = i.at("readlink", name, func(p string) error { target, err = i.fs.Readlink(i.ctx, p); return err })
	return target, err
}

// Sub implements fs.SubFS.
func (i *ioFS) Sub(dir string) (sub fs.FS, err error) {
	err = i.at("sub", dir, func(p string) error { sub = &ioFS{ctx: i.ctx, fs: i.fs, root: p}; return nil })
	return sub, err
}

// ioInfo has the name that io/fs expects: "." of the root.
type ioInfo struct {
	*FileInfo
	name string
}

// Name implements fs.FileInfo.
func (i ioInfo) Name() string { return i.name }

func named(info *FileInfo, name string) fs.FileInfo {
	return ioInfo{FileInfo: info, name: path.Base(name)}
}

// ioFile is an open file.
type ioFile struct {
	*Reader
	name string
	info fs.FileInfo
}

var (
	_ io.ReaderAt = (*ioFile)(nil)
	_ io.Seeker   = (*ioFile)(nil)
	_ io.WriterTo = (*ioFile)(nil)
)

func (f *ioFile) Stat() (fs.FileInfo, error) {
	if _, err := f.Reader.Stat(); err != nil {
		return nil, ioError("stat", f.name, err)
	}
	return f.info, nil
}

func (f *ioFile) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	return n, ioError("read", f.name, err)
}

func (f *ioFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Reader.ReadAt(p, off)
	return n, ioError("read", f.name, err)
}

func (f *ioFile) Seek(offset int64, whence int) (int64, error) {
	n, err := f.Reader.Seek(offset, whence)
	return n, ioError("seek", f.name, err)
}

func (f *ioFile) Close() error { return ioError("close", f.name, f.Reader.Close()) }

// ioDir is an open directory.
type ioDir struct {
	fs     *ioFS
	path   string
	name   string
	info   fs.FileInfo
	after  string
	done   bool
	closed bool
}

var _ fs.ReadDirFile = (*ioDir)(nil)

func (d *ioDir) Stat() (fs.FileInfo, error) { return d.info, nil }

func (d *ioDir) Read([]byte) (int, error) {
	return 0, ioError("read", d.name, fserror.New(fserror.IsDirectory, "read", d.path, "it is a directory"))
}

func (d *ioDir) Close() error {
	d.closed = true
	return nil
}

// ReadDir implements fs.ReadDirFile.
func (d *ioDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	var out []fs.DirEntry
	for !d.done && (n <= 0 || len(out) < n) {
		limit := listPage
		if n > 0 {
			limit = min(n-len(out), listPage)
		}
		infos, more, err := d.fs.fs.List(d.fs.ctx, d.path, d.after, limit)
		if err != nil {
			return out, ioError("readdir", d.name, err)
		}
		for _, info := range infos {
			out = append(out, info)
			d.after = info.Name()
		}
		d.done = !more
	}
	if n > 0 && len(out) == 0 {
		return nil, io.EOF
	}
	return out, nil
}

// ioError makes a *fs.PathError of an error of ours. io.EOF stays.
func ioError(op, name string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF itself
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: fserror.Under(err, "", "")}
}
