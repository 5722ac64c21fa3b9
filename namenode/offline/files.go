package offline

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/backups"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// Files says what RewindFiles has brought back.
type Files struct {
	ID      [16]byte
	TxID    uint64    // of the last record before the moment
	Time    time.Time // when that was
	Last    uint64    // the newest record that the archive has
	Files   int       // regular ones, of Bytes bytes
	Bytes   int64
	Missing []string // files that were left out, since blocks of them are gone or damaged; sorted
}

// RewindFiles brings back the file, the link or the directory r.Path, with all that is below it,
// as it was at a moment of the archive: as plain files of this machine, at r.Dir. They have their
// permissions and times, and are the caller's: owners, ACLs and extended attributes are not
// brought back. It changes nothing in the store, and namenodes may run. Files of which blocks are gone or
// damaged are left out. r.Dir is there when all of it is on the disk; until then it is .NAME.part
// beside it. If it fails, nothing is left.
//
// NotFound if the moment is not kept, or had no such path; Exists if r.Dir or that is there.
func RewindFiles(ctx context.Context, r Rewinding) (Files, error) {
	from, newest, end, err := then(ctx, r)
	if err != nil {
		return Files{}, err
	}
	defer end()
	top, err := from.Tree.Stat(nil, calls.At(r.Path))
	if err != nil {
		return Files{}, err
	}
	p := &plain{source: from, log: r.Config.Logger, progress: r.Progress, sync: (*os.File).Sync}
	last, ms := from.Tree.Last()
	p.done = Files{ID: from.ID, TxID: last, Time: time.UnixMilli(ms), Last: newest}
	if err := p.bring(ctx, top.ID, filepath.Clean(r.Dir)); err != nil {
		return Files{}, err
	}
	slices.Sort(p.done.Missing)
	return p.done, nil
}

// plain is a RewindFiles under way.
type plain struct {
	source
	dir      string // where it is by now
	log      *slog.Logger
	progress func(bytes int64)
	sync     func(*os.File) error
	dirs     []made // the highest first

	mu   sync.Mutex
	mine bool // what is at dir was made by this
	done Files
}

// makes runs what makes a file, unless it is there.
func (p *plain) makes(do func() error) error {
	err := do()
	if err == nil {
		p.mu.Lock()
		p.mine = true
		p.mu.Unlock()
	}
	return here(err)
}

// made is a directory, which gets its permissions and time when all is in it.
type made struct {
	name string
	attr namespace.Attr
}

// bring makes dir of what is at an inode: under another name, until all of it is on the disk.
func (p *plain) bring(ctx context.Context, top namespace.InodeID, dir string) error {
	p.dir = filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".part")
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fserror.New(fserror.Exists, "", dir, "it is there: name what does not exist yet")
	}
	if _, err := os.Lstat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		return fserror.New(fserror.Exists, "", p.dir, "it is there: another restore or backup is writing it, or was cut off; remove it if none is, or name another folder")
	}
	parent, err := os.Open(filepath.Dir(dir)) //nolint:gosec // the caller's own folder
	if errors.Is(err, fs.ErrPermission) {
		parent = nil // who may write there and not list cannot sync it
	} else if err != nil {
		return here(err)
	} else {
		defer func() { _ = parent.Close() }()
	}
	if err = p.all(ctx, top); err == nil && p.mine {
		if err = p.publish(dir); err == nil && parent != nil {
			return here(p.sync(parent)) // what is there stays, whatever this says
		}
	}
	if err != nil && p.mine { // the error says why
		for _, d := range p.dirs {
			_ = os.Chmod(d.name, 0o700) //nolint:gosec // a folder; else what is in it cannot be removed
		}
		_ = os.RemoveAll(p.dir)
	}
	return err
}

// publish gives what was made its name.
func (p *plain) publish(dir string) error {
	if err := vfs.RenameNew(unix.AT_FDCWD, p.dir, dir); err != nil {
		return here(&fs.PathError{Op: "rename", Path: dir, Err: err})
	}
	p.dir = dir
	return nil
}

// within runs do with an open directory.
func (p *plain) within(dir string, do func(*os.File) error) error {
	f, err := os.Open(dir) //nolint:gosec // the caller's own folder
	if err == nil {
		err = errors.Join(do(f), f.Close())
	}
	return here(err)
}

// all makes what is at an inode, and below it.
func (p *plain) all(ctx context.Context, top namespace.InodeID) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(restoreAtOnce)
	base := ""
	err := p.Tree.Walk(top, func(path []byte, a namespace.Attr) error {
		if base == "" {
			base = string(path)
		}
		below, whole := strings.TrimPrefix(strings.TrimPrefix(string(path), base), "/"), string(path)
		name := p.dir
		if below != "" {
			if !filepath.IsLocal(below) {
				return fserror.New(fserror.InvalidArgument, "", whole, "no file here can have that name")
			}
			name = filepath.Join(p.dir, below)
		}
		switch a.Type {
		case namespace.TypeDir:
			p.dirs = append(p.dirs, made{name, a})
			return p.makes(func() error { return os.Mkdir(name, 0o700) })
		case namespace.TypeSymlink:
			return p.makes(func() error { return os.Symlink(a.LinkTarget, name) })
		}
		f, err := p.Tree.File(nil, calls.Inode(a.ID))
		if err != nil {
			return err
		}
		g.Go(func() error { return p.file(gctx, whole, name, f) })
		return gctx.Err()
	})
	if gerr := g.Wait(); gerr != nil {
		err = gerr
	}
	for _, d := range slices.Backward(p.dirs) {
		if err == nil {
			err = p.within(d.name, func(f *os.File) error { return p.finish(f, d.attr) })
		}
	}
	return err
}

// file makes a file. One of which blocks cannot be had is left out.
func (p *plain) file(ctx context.Context, path, name string, f calls.FileView) error {
	var out *os.File
	err := p.makes(func() (err error) {
		out, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	if err = p.copyTo(ctx, out, f); err == nil {
		err = here(p.finish(out, f.Attr))
	}
	if cerr := out.Close(); err == nil {
		err = here(cerr)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, fserror.Damaged):
		p.log.Warn("a file is left out: a block of it cannot be had", "path", path, "cause", err)
		p.done.Missing = append(p.done.Missing, path)
		p.mine = p.mine && name != p.dir // nothing is there then
		return here(os.Remove(name))
	case err != nil:
		return err
	}
	p.done.Files++
	p.done.Bytes += f.Attr.Length
	if p.progress != nil {
		p.progress(p.done.Bytes)
	}
	return nil
}

// copyTo writes the content of a file.
func (p *plain) copyTo(ctx context.Context, out *os.File, f calls.FileView) error {
	for _, b := range f.Blocks {
		object := make([]byte, b.Stored)
		if err := p.ReadBlock(ctx, &backups.Message{Url: b.Key.String()}, object); err != nil {
			return err
		}
		if blockstore.CRC(object) != b.CRC {
			return fserror.New(fserror.Damaged, "", "", "block %s does not match its checksum", b.Key).Because(fserror.ReasonDamagedBlock)
		}
		if _, err := out.Write(object[:b.Used]); err != nil {
			return here(err)
		}
	}
	_, err := out.Write(f.Tail)
	return here(err)
}

// finish gives a file or directory its permissions, without the bits that would give its user's
// or group's rights to others, and its time, and makes it durable with all that.
func (p *plain) finish(f *os.File, a namespace.Attr) error {
	at := time.UnixMilli(a.MTime)
	err := f.Chmod(fs.FileMode(a.Mode) & fs.ModePerm)
	if err == nil {
		err = os.Chtimes(f.Name(), at, at)
	}
	if err == nil {
		err = p.sync(f)
	}
	return err
}

// here gives an error of this machine's file system a kind. Nil stays nil.
func here(err error) error {
	if err == nil {
		return nil
	}
	return fserror.Wrap(vfs.KindOf(err), "", "", err)
}
