package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
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
	p := &putter{fs: lowlevel.Of(fsys), opts: opts}
	p.progress = opts.Progress
	err := p.run(ctx, local, remote)
	return p.result(), err
}

type putter struct {
	counters
	fs   lowlevel.FS
	opts Options
	root *os.Root    // of a tree
	dirs []remoteDir // made by this copy, parents first
}

// entry is one file or link to copy.
type entry struct {
	local, remote string
	below         string // of a tree: the local path below its root
	info          fs.FileInfo
}

// remoteDir is what a directory gets when all is in it.
type remoteDir struct {
	inode uint64
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
		return fserror.New(fserror.IsDirectory, "put", local, "is a directory").Because(fserror.ReasonTreeNotAsked)
	}
	remote, exact, err := p.target(ctx, local, remote)
	if err != nil {
		return err
	}
	if !exact || info.IsDir() {
		ctx = client.WithoutLinks(ctx)
	}
	if !info.IsDir() {
		return p.one(ctx, entry{local: local, remote: remote, info: info})
	}
	if err := p.tree(ctx, local, remote); err != nil {
		return err
	}
	return p.finishDirs(ctx)
}

// target is where the copy goes, and whether that is exactly what the user named,
// which may be a link to a file; in a directory that was named no link is followed.
func (p *putter) target(ctx context.Context, local, remote string) (path string, exact bool, err error) {
	info, err := p.fs.Locate(ctx, lowlevel.At(remote))
	switch {
	case err == nil && info.IsDir():
		name := filepath.Base(local)
		if name == "." || name == ".." || name == "/" {
			return info.Path, false, nil // its contents
		}
		if err := fspath.CheckName(name); err != nil {
			return "", false, fserror.With(err, "put", local)
		}
		return fspath.Join(info.Path, name), false, nil
	case err == nil:
		return remote, true, nil
	case fserror.KindOf(err) != fserror.NotFound:
		return "", false, fserror.With(err, "put", remote)
	}
	parent, name := fspath.Split(remote)
	if p.opts.Parents && parent != "/" {
		if err := p.fs.MkdirMasked(ctx, parent, 0o777, 0o777&^p.fs.Info().DirMode, true); err != nil {
			return "", false, err
		}
	}
	info, err = p.fs.Locate(ctx, lowlevel.At(parent))
	if fserror.KindOf(err) == fserror.NotFound {
		return "", false, fserror.New(fserror.NotFound, "put", remote, "no such directory: %s", parent)
	}
	if err != nil {
		return "", false, fserror.With(err, "put", remote)
	}
	return fspath.Join(info.Path, name), true, nil
}

// open opens a local file to read it: of a tree, one that is in it.
func (p *putter) open(e entry) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_NONBLOCK // a pipe that took its place makes nobody wait
	open := func() (*os.File, error) { return os.OpenFile(e.local, flags, 0) }
	if p.root != nil {
		open = func() (*os.File, error) { return p.root.OpenFile(e.below, flags, 0) }
	}
	f, err := open()
	if err != nil {
		return nil, LocalError("put", e.local, err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		return f, nil
	}
	_ = f.Close() // only read
	if err != nil {
		return nil, LocalError("put", e.local, err)
	}
	return nil, fserror.New(fserror.Unsupported, "put", e.local, "was replaced while it was copied, and is no regular file now; copy it again")
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
	return fserror.New(fserror.Unsupported, "put", e.local, "is a special file (%s), which a namespace cannot hold", kindName(e.info.Mode())).Because(fserror.ReasonSpecialFile)
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
func (p *putter) tree(ctx context.Context, local, remote string) (err error) {
	if p.root, err = os.OpenRoot(local); err != nil { // a link that the user names is followed
		return LocalError("put", local, err)
	}
	defer func() { _ = p.root.Close() }() // only read
	return share(ctx, p.opts.workers(), p.opts.workers(), func(ctx context.Context, put func([]entry) error) error {
		w := putWalk{p: p, ctx: ctx, put: put, local: local, remote: remote}
		if err := fs.WalkDir(p.root.FS(), ".", w.visit); err != nil {
			return err
		}
		return w.send()
	}, p.copy)
}

// putWalk gathers what it finds into jobs: many small files or one large one.
type putWalk struct {
	p             *putter
	ctx           context.Context //nolint:containedctx // of one walk
	put           func([]entry) error
	local, remote string
	batch         []entry
	bytes         int64
}

func (w *putWalk) visit(below string, d fs.DirEntry, err error) error {
	e := entry{local: filepath.Join(w.local, below), remote: w.remote, below: below}
	if err == nil && below != "." {
		if err := fspath.CheckName(d.Name()); err != nil {
			return fserror.With(err, "put", e.local)
		}
		e.remote = fspath.Join(w.remote, below)
	}
	if err == nil {
		e.info, err = w.p.root.Lstat(below)
	}
	if err != nil {
		return LocalError("put", e.local, err)
	}
	info := e.info
	switch {
	case info.IsDir():
		return w.p.mkdir(w.ctx, e)
	case info.Mode().Type() == fs.ModeSymlink:
		return w.put([]entry{e})
	case !info.Mode().IsRegular():
		return w.p.special(e)
	}
	w.p.found(info.Size())
	if info.Size() > smallFile {
		return w.put([]entry{e})
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
	return w.put(batch)
}

// mkdir makes a directory that its owner can fill; it gets its own mode at the end.
func (p *putter) mkdir(ctx context.Context, e entry) error {
	mode := e.info.Mode() & filemode.Changeable
	inode, err := p.fs.MkdirFor(ctx, lowlevel.At(e.remote), mode|0o700, 0, client.Owner{})
	if err == nil {
		p.directories.Add(1)
		p.dirs = append(p.dirs, remoteDir{inode, e.remote, mode, e.info.ModTime()})
		return p.dirXattrs(ctx, e, inode)
	}
	if fserror.KindOf(err) == fserror.Exists {
		info, serr := p.fs.Lstat(ctx, e.remote)
		switch {
		case serr == nil && info.IsDir():
			return nil
		case serr == nil && info.Mode().Type() == fs.ModeSymlink:
			return linkInTheWay("put", e.remote)
		}
	}
	return err
}

// finishDirs sets times and modes, children first: a mode may shut them off.
func (p *putter) finishDirs(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(p.opts.workers())
	for _, d := range p.dirs {
		g.Go(func() error { return p.change(gctx, d, client.AttrChange{SetMTime: true, MTime: d.mtime}) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := len(p.dirs) - 1; i >= 0; i-- {
		if d := p.dirs[i]; d.mode&0o700 != 0o700 {
			if err := p.change(ctx, d, client.AttrChange{SetMode: true, Mode: d.mode}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *putter) change(ctx context.Context, d remoteDir, c client.AttrChange) error {
	return named(p.fs.SetAttrInode(ctx, d.inode, d.path, c), d.path)
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
	target, err := p.root.Readlink(e.below)
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
	lease, err := p.fs.ScratchLease(ctx) // should this process die, the temporary link is gone with it
	if err != nil {
		return named(err, remote)
	}
	temp := besides(remote)
	if err := p.fs.Leases().Symlink(ctx, lease, target, temp); err != nil {
		return named(err, remote)
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
	f, err := p.open(e)
	if err != nil {
		return nil, false, err
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
	opts := []client.OpenOption{client.WithMode(e.info.Mode() & filemode.Changeable), client.WithMTime(e.info.ModTime())}
	if p.opts.Overwrite {
		opts = append(opts, client.WithOverwrite())
	}
	if p.opts.Lease != 0 {
		opts = append(opts, client.WithLease(p.opts.Lease))
	}
	return opts
}

// large copies a file that is published when all of it is there.
func (p *putter) large(ctx context.Context, e entry) (err error) {
	src, err := p.open(e)
	if err != nil {
		return err
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
			return fserror.New(fserror.Exists, "put", e.remote, "exists already")
		}
		return named(err, e.remote)
	}
	p.done(1, 0)
	return nil
}

// named is err under the name of the file that is copied.
func named(err error, path string) error {
	return fserror.With(fserror.Under(err, "put", path), "put", path)
}

// place renames a finished temporary link to its name, or removes it. What another is writing
// there stays.
func (p *putter) place(ctx context.Context, temp, remote string) error {
	at := func(path string) *pb.Ref {
		return &pb.Ref{Path: path, How: uint32(pb.RefHow_REF_HOW_NO_LINKS)} // it is in a tree
	}
	err := p.fs.Ask(ctx, "rename", remote, pb.Namenode_Rename_FullMethodName, func(id *pb.CallId, c *pb.Caller) any {
		return &pb.RenameRequest{Call: id, Caller: c, From: at(temp), To: at(remote), Overwrite: true, Detach: true, Unheld: true}
	}, new(pb.MutateResponse))
	if err != nil {
		p.discard(ctx, temp)
	}
	return named(err, remote)
}

// discard removes a temporary link for good, even though ctx may be over. Its failure
// adds nothing to the error that led here.
func (p *putter) discard(ctx context.Context, temp string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_, _ = p.fs.RemoveTaken(ctx, lowlevel.At(temp), lowlevel.Taken{Scrap: true})
}

// besides is a temporary path in the same directory.
func besides(path string) string {
	dir, name := fspath.Split(path)
	return fspath.Join(dir, fspath.TempName(name))
}
