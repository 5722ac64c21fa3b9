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

// full turns a name of io/fs into a path of the namespace.
func (i *ioFS) full(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return i.root, nil
	}
	return fspath.Join(i.root, name), nil
}

// Open implements fs.FS.
func (i *ioFS) Open(name string) (fs.File, error) {
	p, err := i.full("open", name)
	if err != nil {
		return nil, err
	}
	r, err := i.fs.Open(i.ctx, p)
	if err == nil {
		info, serr := r.Stat()
		if serr != nil {
			return nil, ioError("open", name, serr)
		}
		return &ioFile{Reader: r, name: name, info: named(info, name)}, nil
	}
	if !errors.Is(err, fserror.IsDirectory) {
		return nil, ioError("open", name, err)
	}
	info, err := i.fs.Stat(i.ctx, p)
	if err != nil {
		return nil, ioError("open", name, err)
	}
	return &ioDir{fs: i, path: p, name: name, info: named(info, name)}, nil
}

// ReadFile implements fs.ReadFileFS.
func (i *ioFS) ReadFile(name string) ([]byte, error) {
	p, err := i.full("readfile", name)
	if err != nil {
		return nil, err
	}
	data, err := i.fs.ReadFile(i.ctx, p)
	return data, ioError("readfile", name, err)
}

// ReadDir implements fs.ReadDirFS.
func (i *ioFS) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := i.full("readdir", name)
	if err != nil {
		return nil, err
	}
	infos, err := i.fs.ReadDir(i.ctx, p)
	entries := make([]fs.DirEntry, len(infos))
	for k, info := range infos {
		entries[k] = info
	}
	return entries, ioError("readdir", name, err)
}

// Stat implements fs.StatFS; it follows symbolic links.
func (i *ioFS) Stat(name string) (fs.FileInfo, error) { return i.stat(name, true) }

// Lstat implements fs.ReadLinkFS.
func (i *ioFS) Lstat(name string) (fs.FileInfo, error) { return i.stat(name, false) }

func (i *ioFS) stat(name string, follow bool) (fs.FileInfo, error) {
	p, err := i.full("stat", name)
	if err != nil {
		return nil, err
	}
	info, err := i.fs.stat(i.ctx, "stat", p, follow)
	if err != nil {
		return nil, ioError("stat", name, err)
	}
	return named(info, name), nil
}

// ReadLink implements fs.ReadLinkFS.
func (i *ioFS) ReadLink(name string) (string, error) {
	p, err := i.full("readlink", name)
	if err != nil {
		return "", err
	}
	target, err := i.fs.Readlink(i.ctx, p)
	return target, ioError("readlink", name, err)
}

// Sub implements fs.SubFS.
func (i *ioFS) Sub(dir string) (fs.FS, error) {
	p, err := i.full("sub", dir)
	if err != nil {
		return nil, err
	}
	return &ioFS{ctx: i.ctx, fs: i.fs, root: p}, nil
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

// pathCause matches both an error of io/fs and its cause.
type pathCause struct{ err, target error }

func (c *pathCause) Error() string   { return c.err.Error() }
func (c *pathCause) Unwrap() []error { return []error{c.err, c.target} }

// ioError makes a *fs.PathError of an error of ours. io.EOF stays.
func ioError(op, name string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF itself
		return err
	}
	cause := err
	var e *fserror.Error
	if errors.As(err, &e) {
		c := *e
		c.Op, c.Path = "", "" // the PathError has them
		cause = &c
		if target := ioTarget(e.Kind); target != nil {
			cause = &pathCause{err: &c, target: target}
		}
	}
	return &fs.PathError{Op: op, Path: name, Err: cause}
}

func ioTarget(k fserror.Kind) error {
	switch k {
	case fserror.NotFound:
		return fs.ErrNotExist
	case fserror.Exists:
		return fs.ErrExist
	case fserror.Permission:
		return fs.ErrPermission
	case fserror.InvalidPath, fserror.NameTooLong, fserror.InvalidArgument:
		return fs.ErrInvalid
	case fserror.Closed:
		return fs.ErrClosed
	}
	return nil
}
