package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/fspath"
)

// Get copies a file or, if asked, a tree out of the namespace. If local is a
// directory the copy goes into it, under the remote name; else local is the
// copy's name. A file open for write is copied as far as it was flushed. Each
// file is durable when it is renamed into place. Links, modes, times, extended
// attributes and merging are as with Put; a local file system that keeps no such
// attributes is an error (Unsupported) if there are any.
func Get(ctx context.Context, fsys *client.FS, remote, local string, opts Options) (Result, error) {
	g := &getter{fs: fsys, opts: opts, touched: make(map[string]bool)}
	g.progress = opts.Progress
	err := g.run(ctx, remote, local)
	return g.result(), err
}

type getter struct {
	counters
	fs   *client.FS
	opts Options
	dirs []dirAttr // made by this copy, parents first

	mu      sync.Mutex
	touched map[string]bool // directories with new names, to sync
}

// item is one file or link to copy.
type item struct {
	remote, local string
	info          *client.FileInfo
}

func (g *getter) run(ctx context.Context, remote, local string) error {
	info, err := g.fs.Stat(ctx, remote)
	if err != nil {
		return fserror.With(err, "get", remote)
	}
	if info.IsDir() && !g.opts.Recursive {
		return fserror.New(fserror.IsDirectory, "get", remote, "is a directory; -r copies it with all that is in it")
	}
	if local, err = g.target(remote, local); err != nil {
		return err
	}
	if info.IsDir() {
		err = g.tree(ctx, item{remote, local, info})
	} else {
		g.found(info.Length)
		err = g.file(ctx, item{remote, local, info})
	}
	if err != nil {
		return err
	}
	return g.finish()
}

// target is where the copy goes.
func (g *getter) target(remote, local string) (string, error) {
	info, err := os.Stat(local)
	if err == nil && info.IsDir() {
		if remote == "/" {
			return local, nil
		}
		_, name := fspath.Split(remote)
		return filepath.Join(local, name), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", LocalError("get", local, err)
	}
	if g.opts.Parents {
		return local, LocalError("get", local, os.MkdirAll(filepath.Dir(local), 0o777)) //nolint:gosec // as mkdir -p
	}
	return local, nil
}

func (g *getter) tree(ctx context.Context, root item) error {
	group, ctx := errgroup.WithContext(ctx)
	jobs := make(chan item, 4*g.opts.workers())
	group.Go(func() error {
		defer close(jobs)
		return g.walk(ctx, root, jobs)
	})
	for range g.opts.workers() {
		group.Go(func() error {
			for j := range jobs {
				copyOne := g.file
				if j.info.Mode().Type() == fs.ModeSymlink {
					copyOne = g.link
				}
				if err := copyOne(ctx, j); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// walk makes directories and hands the rest to the workers. It keeps a list of
// what is left instead of calling itself: trees may be deep.
func (g *getter) walk(ctx context.Context, root item, jobs chan<- item) error {
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
			select {
			case jobs <- it:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func (g *getter) mkdir(ctx context.Context, it item) error {
	mode := it.info.Mode() & (fs.ModePerm | fs.ModeSticky)
	err := os.Mkdir(it.local, mode|0o700)
	if err == nil {
		g.directories.Add(1)
		g.dirs = append(g.dirs, dirAttr{it.local, mode, it.info.ModTime()})
		g.touch(it.local)
		return g.dirXattrs(ctx, it)
	}
	if info, serr := os.Stat(it.local); serr == nil && info.IsDir() {
		return nil
	}
	return LocalError("get", it.local, err)
}

func (g *getter) link(_ context.Context, it item) error {
	temp := filepath.Join(filepath.Dir(it.local), fspath.TempName(filepath.Base(it.local)))
	if err := os.Symlink(it.info.LinkTarget, temp); err != nil {
		return LocalError("get", it.local, err)
	}
	if err := g.place(temp, it.local); err != nil {
		return err
	}
	g.symlinks.Add(1)
	return nil
}

// file copies to a temporary file, syncs and renames it.
func (g *getter) file(ctx context.Context, it item) (err error) {
	if !g.opts.Overwrite {
		if _, err := os.Lstat(it.local); err == nil {
			return existsLocally(it.local)
		}
	}
	src, err := g.fs.Open(ctx, it.remote)
	if err != nil {
		return fserror.With(err, "get", it.remote)
	}
	defer func() { _ = src.Close() }() // only read
	temp := filepath.Join(filepath.Dir(it.local), fspath.TempName(filepath.Base(it.local)))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the place
	if err != nil {
		return LocalError("get", it.local, err)
	}
	if err := g.fill(ctx, f, src, it); err != nil {
		_ = f.Close()
		_ = os.Remove(temp) // adds nothing to the error that led here
		return err
	}
	if err := g.place(temp, it.local); err != nil {
		return err
	}
	g.done(1, 0)
	return nil
}

// fill makes the temporary file durable with all its attributes.
func (g *getter) fill(ctx context.Context, f *os.File, src *client.Reader, it item) error {
	counted := &countingReader{r: src, count: g.moved, stop: func() error { return context.Cause(ctx) }}
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, counted, make([]byte, 256<<10)); err != nil {
		var remote *fserror.Error
		if errors.As(err, &remote) || ctx.Err() != nil {
			return fserror.With(err, "get", it.remote)
		}
		return LocalError("get", it.local, err)
	}
	if err := g.xattrs(ctx, f, it); err != nil {
		return err
	}
	mtime := it.info.ModTime()
	err := f.Chmod(it.info.Mode() & (fs.ModePerm | fs.ModeSticky))
	if err == nil {
		err = os.Chtimes(f.Name(), mtime, mtime)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	return LocalError("get", it.local, err)
}

// place renames a finished temporary file to its name, or removes it.
func (g *getter) place(temp, local string) error {
	err := g.rename(temp, local)
	if err != nil {
		_ = os.Remove(temp) // adds nothing to the error that led here
		return err
	}
	g.touch(filepath.Dir(local))
	return nil
}

func (g *getter) rename(temp, local string) error {
	if g.opts.Overwrite {
		return LocalError("get", local, os.Rename(temp, local))
	}
	err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, local, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return existsLocally(local)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // this file system cannot
		if _, serr := os.Lstat(local); serr == nil {
			return existsLocally(local)
		}
		err = os.Rename(temp, local)
	}
	return LocalError("get", local, err)
}

func existsLocally(local string) error {
	return fserror.New(fserror.Exists, "get", local, "exists already; --overwrite replaces it")
}

func (g *getter) touch(dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.touched[dir] = true
}

// finish syncs directories, and sets their times and modes, children first.
func (g *getter) finish() error {
	for dir := range g.touched {
		if err := syncDir(dir); err != nil {
			return LocalError("get", dir, err)
		}
	}
	for i := len(g.dirs) - 1; i >= 0; i-- {
		d := g.dirs[i]
		err := os.Chmod(d.path, d.mode)
		if err == nil {
			err = os.Chtimes(d.path, d.mtime, d.mtime)
		}
		if err != nil {
			return LocalError("get", d.path, err)
		}
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path) //nolint:gosec // the user names the place
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
