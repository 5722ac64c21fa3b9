package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Get copies a file or, if asked, a tree out of the namespace. If local is a
// directory the copy goes into it, under the remote name; else local is the
// copy's name. A file open for write is copied as far as it was flushed. Each
// file is durable when it is renamed into place, and all that was made, with the
// directories on the way to it, when Get returns without an error. No link below
// either of the two is followed (see doc.go). Links, modes, times, extended
// attributes and merging are as with Put; a local file system that keeps no such
// attributes is an error (Unsupported) if there are any.
func Get(ctx context.Context, fsys *client.FS, remote, local string, opts Options) (Result, error) {
	g := newGetter(fsys, opts, (*os.File).Sync)
	err := g.run(ctx, remote, local)
	return g.result(), err
}

// newGetter makes one that makes directories durable with sync.
func newGetter(fsys *client.FS, opts Options, sync func(*os.File) error) *getter {
	g := &getter{fs: lowlevel.Of(fsys), opts: opts, sync: sync, touched: make(map[string]bool)}
	g.progress = opts.Progress
	return g
}

type getter struct {
	counters
	fs   lowlevel.FS
	opts Options
	sync func(dir *os.File) error
	root *os.Root   // of all local paths
	dirs []localDir // made by this copy, parents first

	mu      sync.Mutex
	touched map[string]bool // directories with new names, to sync
}

// item is one file or link to copy.
type item struct {
	remote, local string // the local path is below the root
	info          *client.FileInfo
}

// localDir is what a directory gets when all is in it.
type localDir struct {
	path  string
	mode  fs.FileMode
	mtime time.Time
}

func (g *getter) run(ctx context.Context, remote, local string) error {
	info, err := g.fs.Locate(ctx, lowlevel.At(remote))
	if err != nil {
		return fserror.With(err, "get", remote)
	}
	if info.IsDir() && !g.opts.Recursive {
		return fserror.New(fserror.IsDirectory, "get", remote, "is a directory").Because(fserror.ReasonTreeNotAsked)
	}
	if local, err = g.target(remote, local); err != nil {
		return err
	}
	defer func() { _ = g.root.Close() }() // nothing is written by it
	if info.IsDir() {
		err = g.tree(client.WithoutLinks(ctx), item{info.Path, local, info})
	} else {
		g.found(info.Length)
		err = g.file(ctx, item{remote, local, info})
	}
	if err != nil {
		return err
	}
	return g.finish()
}

// target opens the directory that the copy goes into, and returns where in it.
func (g *getter) target(remote, local string) (path string, err error) {
	local = filepath.Clean(local)
	info, err := os.Stat(local)
	dir, name := filepath.Split(local)
	switch {
	case err == nil && info.IsDir() && remote == "/":
		dir, name = local, "."
	case err == nil && info.IsDir():
		dir = local
		_, name = fspath.Split(remote)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", LocalError("get", local, err)
	case dir == "":
		dir = "."
	case g.opts.Parents:
		err = g.mkdirAll(filepath.Clean(dir))
	default:
		err = nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		if g.root, err = os.OpenRoot(dir); errors.Is(err, fs.ErrNotExist) {
			return "", fserror.New(fserror.NotFound, "get", local, "no such directory: %s", filepath.Clean(dir))
		}
	}
	return name, LocalError("get", local, err)
}

// mkdirAll makes a directory and its parents, durably.
func (g *getter) mkdirAll(dir string) error {
	var changed []string // directories that get a name
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		changed = append(changed, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // as mkdir -p
		return err
	}
	for _, at := range changed {
		d, err := os.Open(at) //nolint:gosec // the user names it
		if err == nil {
			err = errors.Join(g.sync(d), d.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// local is the name of a path below the root, for errors.
func (g *getter) local(path string) string { return filepath.Join(g.root.Name(), path) }

func (g *getter) localError(path string, err error) error {
	return LocalError("get", g.local(path), err)
}

func (g *getter) tree(ctx context.Context, root item) error {
	return share(ctx, g.opts.workers(), 4*g.opts.workers(), func(ctx context.Context, send func(item) error) error {
		return g.walk(ctx, root, send)
	}, func(ctx context.Context, it item) error {
		if it.info.Mode().Type() == fs.ModeSymlink {
			return g.link(it)
		}
		return g.file(ctx, it)
	})
}

// walk makes directories and hands the rest to the workers. It keeps a list of
// what is left instead of calling itself: trees may be deep.
func (g *getter) walk(ctx context.Context, root item, send func(item) error) error {
	left := []item{root}
	for len(left) > 0 {
		dir := left[len(left)-1]
		left = left[:len(left)-1]
		if err := g.mkdir(ctx, dir); err != nil {
			return err
		}
		for info, err := range g.fs.Entries(ctx, dir.remote) {
			if err != nil {
				return fserror.With(err, "get", dir.remote)
			}
			name := info.Name()
			if err := fspath.CheckName(name); err != nil { // never leave the target, whatever the server says
				return fserror.With(err, "get", dir.remote)
			}
			it := item{fspath.Join(dir.remote, name), filepath.Join(dir.local, name), info}
			if info.IsDir() {
				left = append(left, it)
				continue
			}
			if info.Mode().IsRegular() {
				g.found(info.Length)
			}
			if err := send(it); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *getter) mkdir(ctx context.Context, it item) error {
	mode := it.info.Mode() & filemode.Changeable
	err := g.root.Mkdir(it.local, mode.Perm()|0o700) // os.Root takes no other bits; finish sets them
	if err == nil {
		g.directories.Add(1)
		g.dirs = append(g.dirs, localDir{it.local, mode, it.info.ModTime()})
		g.touch(filepath.Dir(it.local))
		return g.dirXattrs(ctx, it)
	}
	info, serr := g.root.Lstat(it.local)
	switch {
	case serr == nil && info.IsDir():
		return nil
	case serr == nil && info.Mode().Type() == fs.ModeSymlink:
		return linkInTheWay("get", g.local(it.local))
	}
	return g.localError(it.local, err)
}

// linkInTheWay is the error of a tree that has a directory where its target has
// a link.
func linkInTheWay(op, path string) error {
	return fserror.New(fserror.NotDirectory, op, path, "is a symbolic link, which a copy does not follow; remove it, or copy to where it leads")
}

func (g *getter) link(it item) error {
	to, err := g.open(it)
	if err != nil {
		return err
	}
	defer to.close()
	if err := to.dir.Symlink(it.info.LinkTarget, to.temp); err != nil {
		return g.localError(it.local, err)
	}
	if err := g.place(to); err != nil {
		return err
	}
	g.symlinks.Add(1)
	return nil
}

// spot is where a file goes: its directory is looked up once.
type spot struct {
	item
	dir        *os.Root
	name, temp string // in dir
}

func (g *getter) open(it item) (to spot, err error) {
	dir, err := g.root.OpenRoot(filepath.Dir(it.local))
	name := filepath.Base(it.local)
	return spot{it, dir, name, fspath.TempName(name)}, g.localError(it.local, err)
}

func (s *spot) close() { _ = s.dir.Close() } // nothing is written by it

func (s *spot) taken() bool {
	_, err := s.dir.Lstat(s.name)
	return err == nil
}

// file copies to a temporary file, syncs and renames it.
func (g *getter) file(ctx context.Context, it item) (err error) {
	to, err := g.open(it)
	if err != nil {
		return err
	}
	defer to.close()
	if !g.opts.Overwrite && to.taken() {
		return existsLocally(g.local(it.local))
	}
	src, _, err := g.fs.OpenInode(ctx, it.info.Inode, it.remote)
	if err != nil {
		return fserror.With(err, "get", it.remote)
	}
	defer func() { _ = src.Close() }() // only read
	f, err := to.dir.OpenFile(to.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return g.localError(it.local, err)
	}
	if err := g.fill(ctx, f, src, to); err != nil {
		_ = f.Close()
		_ = to.dir.Remove(to.temp) // adds nothing to the error that led here
		return err
	}
	if err := g.place(to); err != nil {
		return err
	}
	g.done(1, 0)
	return nil
}

// fill makes the temporary file durable with all its attributes.
func (g *getter) fill(ctx context.Context, f *os.File, src *client.Reader, to spot) error {
	counted := &countingReader{r: src, count: g.moved, stop: func() error { return context.Cause(ctx) }}
	if err := While(ctx, src, func() error {
		_, err := io.CopyBuffer(struct{ io.Writer }{f}, counted, make([]byte, 256<<10))
		return err
	}); err != nil {
		var remote *fserror.Error
		if errors.As(err, &remote) || ctx.Err() != nil {
			return fserror.With(err, "get", to.remote)
		}
		return g.localError(to.local, err)
	}
	if err := g.xattrs(ctx, f, to.item); err != nil {
		return err
	}
	mtime := to.info.ModTime()
	err := f.Chmod(to.info.Mode() & filemode.Changeable)
	if err == nil {
		err = to.dir.Chtimes(to.temp, mtime, mtime)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	return g.localError(to.local, err)
}

// place renames a finished temporary file to its name, or removes it.
func (g *getter) place(to spot) error {
	err := g.rename(to)
	if err != nil {
		_ = to.dir.Remove(to.temp) // adds nothing to the error that led here
		return err
	}
	g.touch(filepath.Dir(to.local))
	return nil
}

func (g *getter) rename(to spot) error {
	if g.opts.Overwrite {
		return g.localError(to.local, to.dir.Rename(to.temp, to.name))
	}
	d, err := to.dir.Open(".")
	if err != nil {
		return g.localError(to.local, err)
	}
	defer func() { _ = d.Close() }() // nothing is written by it
	if err = vfs.RenameNew(int(d.Fd()), to.temp, to.name); errors.Is(err, unix.EEXIST) {
		return existsLocally(g.local(to.local))
	}
	return g.localError(to.local, err)
}

func existsLocally(local string) error {
	return fserror.New(fserror.Exists, "get", local, "exists already")
}

func (g *getter) touch(dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.touched[dir] = true
}

// finish gives the directories that were made their modes and times, children first,
// and syncs them and those that were there and have new names.
func (g *getter) finish() error {
	for i := len(g.dirs) - 1; i >= 0; i-- {
		d := g.dirs[i]
		err := g.withDir(d.path, func(f *os.File) error {
			if err := f.Chmod(d.mode); err != nil {
				return err
			}
			if err := g.root.Chtimes(d.path, d.mtime, d.mtime); err != nil {
				return err
			}
			return g.sync(f)
		})
		if err != nil {
			return err
		}
		delete(g.touched, d.path)
	}
	for dir := range g.touched {
		if err := g.withDir(dir, g.sync); err != nil {
			return err
		}
	}
	return nil
}

// withDir runs f with an open directory below the root.
func (g *getter) withDir(path string, f func(*os.File) error) error {
	d, err := g.root.Open(path)
	if err == nil {
		err = errors.Join(f(d), d.Close())
	}
	return g.localError(path, err)
}
