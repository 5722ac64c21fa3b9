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
// damaged are left out. If it fails, nothing is left.
//
// NotFound if the moment is not kept, or had no such path; Exists if r.Dir is there.
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
	if _, err := os.Lstat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
		return Files{}, fserror.New(fserror.Exists, "", r.Dir, "it is there: name what does not exist yet")
	}
	p := &plain{source: from, dir: r.Dir, log: r.Config.Logger, progress: r.Progress}
	last, ms := from.Tree.Last()
	p.done = Files{ID: from.ID, TxID: last, Time: time.UnixMilli(ms), Last: newest}
	if err := p.all(ctx, top.ID); err != nil {
		if p.mine {
			_ = os.RemoveAll(r.Dir) // the error says why
		}
		return Files{}, err
	}
	slices.Sort(p.done.Missing)
	return p.done, nil
}

// plain is a RewindFiles under way.
type plain struct {
	source
	dir      string
	log      *slog.Logger
	progress func(bytes int64)
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
			err = finish(d.name, d.attr)
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
	err = p.copyTo(ctx, out, f)
	if cerr := out.Close(); err == nil {
		err = here(cerr)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, fserror.Damaged):
		p.log.Warn("a file is left out: a block of it cannot be had", "path", path, "cause", err)
		p.done.Missing = append(p.done.Missing, path)
		return here(os.Remove(name))
	case err != nil:
		return err
	}
	p.done.Files++
	p.done.Bytes += f.Attr.Length
	if p.progress != nil {
		p.progress(p.done.Bytes)
	}
	return finish(name, f.Attr)
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
// or group's rights to others, and its time.
func finish(name string, a namespace.Attr) error {
	at := time.UnixMilli(a.MTime)
	err := os.Chmod(name, fs.FileMode(a.Mode)&fs.ModePerm)
	if err == nil {
		err = os.Chtimes(name, at, at)
	}
	return here(err)
}

// here gives an error of this machine's file system a kind. Nil stays nil.
func here(err error) error {
	if err == nil {
		return nil
	}
	return fserror.Wrap(vfs.KindOf(err), "", "", err)
}
