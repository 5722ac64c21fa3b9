package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/fspath"
)

const (
	smallFile  = 64 << 10 // bytes; up to it a file is made by one call
	batchBytes = 1 << 20  // of small files in one call
	batchFiles = 512
	// cleanupTime is how long the removal of a temporary file is tried after
	// its copy was given up.
	cleanupTime = 10 * time.Second
)

// Put copies the local file or, if asked, tree into the namespace. If remote is
// a directory the copy goes into it, under the local name; else remote is the
// copy's name. A symbolic link named by local itself is followed, one inside a
// tree is copied as a link. Permission bits and modification times are kept,
// those of symbolic links excepted. Directories that exist are merged into. With
// Xattrs, what the local file system has of user.* is kept too; a file is there
// with all of it or not at all.
func Put(ctx context.Context, fsys *client.FS, local, remote string, opts Options) (Result, error) {
	p := &putter{fs: fsys, opts: opts}
	p.progress = opts.Progress
	err := p.run(ctx, local, remote)
	return p.result(), err
}

type putter struct {
	counters
	fs   *client.FS
	opts Options
	dirs []dirAttr // made by this copy, parents first
}

// entry is one file or link to copy.
type entry struct {
	local, remote string
	info          fs.FileInfo
}

// dirAttr is what a directory gets when all is in it.
type dirAttr struct {
	path  string
	mode  fs.FileMode
	mtime time.Time
}

func (p *putter) run(ctx context.Context, local, remote string) error {
	info, err := os.Stat(local)
	if err != nil {
		return LocalError("put", local, err)
	}
	if info.IsDir() && !p.opts.Recursive {
		return fserror.New(fserror.IsDirectory, "put", local, "is a directory; -r copies it with all that is in it")
	}
	if remote, err = p.target(ctx, local, remote); err != nil {
		return err
	}
	if !info.IsDir() {
		return p.one(ctx, entry{local, remote, info})
	}
	if err := p.tree(ctx, local, remote); err != nil {
		return err
	}
	return p.finishDirs(ctx)
}

// target is where the copy goes.
func (p *putter) target(ctx context.Context, local, remote string) (string, error) {
	info, err := p.fs.Stat(ctx, remote)
	switch {
	case err == nil && info.IsDir():
		name := filepath.Base(local)
		if name == "." || name == ".." || name == "/" {
			return remote, nil // its contents
		}
		if err := fspath.CheckName(name); err != nil {
			return "", fserror.With(err, "put", local)
		}
		return fspath.Join(remote, name), nil
	case err == nil:
		return remote, nil
	case fserror.KindOf(err) != fserror.NotFound:
		return "", fserror.With(err, "put", remote)
	}
	if parent, _ := fspath.Split(remote); p.opts.Parents && parent != "/" {
		return remote, p.fs.MkdirAll(ctx, parent, 0o755)
	}
	return remote, nil
}

// one copies a single file that is not in a tree.
func (p *putter) one(ctx context.Context, e entry) error {
	if !e.info.Mode().IsRegular() {
		return p.special(e)
	}
	p.found(e.info.Size())
	if e.info.Size() <= smallFile {
		return p.small(ctx, []entry{e})
	}
	return p.large(ctx, e)
}

func (p *putter) special(e entry) error {
	if p.opts.SkipSpecial {
		p.skipped.Add(1)
		return nil
	}
	return fserror.New(fserror.Unsupported, "put", e.local, "is a special file (%s), which a namespace cannot hold; --skip-special leaves such files out", kindName(e.info.Mode()))
}

func kindName(m fs.FileMode) string {
	switch {
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "of an unknown type"
}

// tree copies a directory: one goroutine walks and makes directories, the
// workers copy.
func (p *putter) tree(ctx context.Context, local, remote string) error {
	g, ctx := errgroup.WithContext(ctx)
	jobs := make(chan []entry, p.opts.workers())
	g.Go(func() error {
		defer close(jobs)
		w := putWalk{p: p, ctx: ctx, jobs: jobs, local: local, remote: remote}
		// A final slash walks into a link named by the user.
		if err := filepath.WalkDir(strings.TrimSuffix(local, "/")+"/", w.visit); err != nil {
			return err
		}
		return w.send()
	})
	for range p.opts.workers() {
		g.Go(func() error {
			for job := range jobs {
				if err := p.copy(ctx, job); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// putWalk gathers what it finds into jobs: many small files or one large one.
type putWalk struct {
	p             *putter
	ctx           context.Context //nolint:containedctx // of one walk
	jobs          chan<- []entry
	local, remote string
	batch         []entry
	bytes         int64
}

func (w *putWalk) visit(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return LocalError("put", path, err)
	}
	info, err := d.Info()
	if err != nil {
		return LocalError("put", path, err)
	}
	rel, err := filepath.Rel(w.local, path)
	if err != nil {
		return LocalError("put", path, err)
	}
	remote := w.remote
	if rel != "." {
		if err := fspath.CheckName(d.Name()); err != nil {
			return fserror.With(err, "put", path)
		}
		remote = fspath.Join(w.remote, filepath.ToSlash(rel))
	}
	e := entry{path, remote, info}
	switch {
	case info.IsDir():
		return w.p.mkdir(w.ctx, e)
	case info.Mode().Type() == fs.ModeSymlink:
		return w.put(e)
	case !info.Mode().IsRegular():
		return w.p.special(e)
	}
	w.p.found(info.Size())
	if info.Size() > smallFile {
		return w.put(e)
	}
	w.batch = append(w.batch, e)
	w.bytes += info.Size()
	if len(w.batch) >= batchFiles || w.bytes >= batchBytes {
		return w.send()
	}
	return nil
}

func (w *putWalk) send() error {
	batch := w.batch
	w.batch, w.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	return w.put(batch...)
}

func (w *putWalk) put(job ...entry) error {
	select {
	case w.jobs <- job:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

// mkdir makes a directory that its owner can fill; it gets its own mode at the end.
func (p *putter) mkdir(ctx context.Context, e entry) error {
	mode := e.info.Mode() & (fs.ModePerm | fs.ModeSticky)
	err := p.fs.Mkdir(ctx, e.remote, mode|0o700)
	if err == nil {
		p.directories.Add(1)
		p.dirs = append(p.dirs, dirAttr{e.remote, mode, e.info.ModTime()})
		return p.dirXattrs(ctx, e)
	}
	if fserror.KindOf(err) == fserror.Exists {
		if info, serr := p.fs.Stat(ctx, e.remote); serr == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// finishDirs sets times and modes, children first: a mode may shut them off.
func (p *putter) finishDirs(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(p.opts.workers())
	for _, d := range p.dirs {
		g.Go(func() error { return p.fs.Chtimes(gctx, d.path, d.mtime) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := len(p.dirs) - 1; i >= 0; i-- {
		if d := p.dirs[i]; d.mode&0o700 != 0o700 {
			if err := p.fs.Chmod(ctx, d.path, d.mode); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *putter) copy(ctx context.Context, job []entry) error {
	first := job[0]
	switch {
	case first.info.Mode().Type() == fs.ModeSymlink:
		return p.link(ctx, first)
	case first.info.Size() > smallFile:
		return p.large(ctx, first)
	}
	return p.small(ctx, job)
}

func (p *putter) link(ctx context.Context, e entry) error {
	target, err := os.Readlink(e.local)
	if err != nil {
		return LocalError("put", e.local, err)
	}
	if err := p.symlink(ctx, target, e.remote); err != nil {
		return err
	}
	p.symlinks.Add(1)
	return nil
}

func (p *putter) symlink(ctx context.Context, target, remote string) error {
	err := p.fs.Symlink(ctx, target, remote)
	if !p.opts.Overwrite || fserror.KindOf(err) != fserror.Exists {
		return err
	}
	temp := besides(remote)
	if err := p.fs.Symlink(ctx, target, temp); err != nil {
		return err
	}
	return p.place(ctx, temp, remote)
}

// small makes whole files by one call.
func (p *putter) small(ctx context.Context, job []entry) error {
	files := make([]client.FileData, 0, len(job))
	var rest []entry
	var bytes int64
	for _, e := range job {
		data, more, err := p.readSmall(e)
		if err != nil {
			return err
		}
		if more {
			rest = append(rest, e)
			continue
		}
		files = append(files, client.FileData{Path: e.remote, Data: data, Options: p.options(e)})
		bytes += int64(len(data))
	}
	errs, err := p.fs.WriteFiles(ctx, files)
	var made int64
	for i, one := range errs {
		if one != nil && err == nil {
			err = fserror.With(one, "put", files[i].Path)
		}
		if one == nil {
			made++
		} else {
			bytes -= int64(len(files[i].Data))
		}
	}
	if err != nil && len(errs) == 0 {
		return err
	}
	p.done(made, bytes)
	if err != nil {
		return err
	}
	for _, e := range rest {
		if err := p.large(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// readSmall reads a small file, or says that there is more to it: it has grown
// since it was found, or has extended attributes.
func (p *putter) readSmall(e entry) (data []byte, more bool, err error) {
	f, err := os.Open(e.local)
	if err != nil {
		return nil, false, LocalError("put", e.local, err)
	}
	defer func() { _ = f.Close() }() // only read
	if p.opts.Xattrs {
		names, err := xattrNames(f)
		if err != nil || len(names) > 0 {
			return nil, true, LocalError("put", e.local, err)
		}
	}
	buf := make([]byte, min(e.info.Size(), smallFile)+1)
	n, err := io.ReadFull(f, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return buf[:n], false, nil
	}
	if err != nil {
		return nil, false, LocalError("put", e.local, err)
	}
	// More than was there when it was found: read on up to the limit.
	rest, err := io.ReadAll(io.LimitReader(f, smallFile+1-int64(n)))
	data = append(buf, rest...)
	return data, len(data) > smallFile, LocalError("put", e.local, err)
}

func (p *putter) options(e entry) []client.OpenOption {
	opts := []client.OpenOption{client.WithMode(e.info.Mode() & (fs.ModePerm | fs.ModeSticky)), client.WithMTime(e.info.ModTime())}
	if p.opts.Overwrite {
		opts = append(opts, client.WithOverwrite())
	}
	return opts
}

// large copies a file that is published when all of it is there.
func (p *putter) large(ctx context.Context, e entry) (err error) {
	src, err := os.Open(e.local)
	if err != nil {
		return LocalError("put", e.local, err)
	}
	defer func() { _ = src.Close() }() // only read
	counted := &countingReader{r: src, count: p.moved, stop: func() error { return context.Cause(ctx) }}
	opts := p.options(e)
	if p.opts.Xattrs {
		all, err := readXattrs(src)
		if err != nil {
			return LocalError("put", e.local, err)
		}
		opts = append(opts, client.WithXattrs(all))
	}
	if _, err := p.fs.WriteFrom(ctx, e.remote, counted, opts...); err != nil {
		var local *fs.PathError
		if errors.As(err, &local) {
			return LocalError("put", e.local, err)
		}
		if errors.Is(err, fserror.Exists) && !p.opts.Overwrite {
			return fserror.New(fserror.Exists, "put", e.remote, "exists already; --overwrite replaces it")
		}
		return named(err, e.remote)
	}
	p.done(1, 0)
	return nil
}

// named is err under the name of the file that is copied.
func named(err error, path string) error {
	var e *fserror.Error
	if !errors.As(err, &e) {
		return fserror.With(err, "put", path)
	}
	c := *e
	c.Op, c.Path = "put", path
	return &c
}

// place renames a finished temporary file to its name, or removes it.
func (p *putter) place(ctx context.Context, temp, remote string) error {
	err := p.fs.Rename(ctx, temp, remote, p.opts.Overwrite)
	if err != nil {
		p.discard(ctx, temp)
	}
	if err == nil {
		return nil
	}
	return named(err, remote)
}

// discard removes a temporary file even though ctx may be over. Its failure
// adds nothing to the error that led here.
func (p *putter) discard(ctx context.Context, temp string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_ = p.fs.Remove(ctx, temp)
}

// besides is a temporary path in the same directory.
func besides(path string) string {
	dir, name := fspath.Split(path)
	return fspath.Join(dir, fspath.TempName(name))
}
