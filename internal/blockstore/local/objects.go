package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

// namedFolder holds the named objects of a namespace, each a file of its name.
const namedFolder = "named"

var _ blockstore.Objects = (*Store)(nil)

func (s *Store) namedFile(op, name string) (string, error) {
	if !blockstore.ValidNamed(name) {
		return "", fserror.New(fserror.InvalidArgument, op, "", "%.250q is no name of an object (at most 200 of a-z, 0-9, dot, hyphen, underscore)", name)
	}
	return filepath.Join(s.root, namedFolder, name), nil
}

func namedError(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fserror.New(fserror.NotFound, op, "", "no object %s", name)
	case errors.Is(err, fs.ErrExist):
		return fserror.New(fserror.Exists, op, "", "there is an object %s already", name)
	}
	var own *fserror.Error
	if errors.As(err, &own) {
		return err
	}
	return &fserror.Error{Op: op, Kind: diskKind(err), Message: "object " + name, Err: err}
}

func closedError(op string) error {
	return fserror.New(fserror.Closed, op, "", "the block store is closed")
}

// PutNamed implements blockstore.Objects.
func (s *Store) PutNamed(ctx context.Context, name string, body io.ReaderAt, length int64, crc32c uint32) error {
	file, err := s.namedFile("put", name)
	switch {
	case err != nil:
		return err
	case length < 1:
		return fserror.New(fserror.InvalidArgument, "put", "", "object %s: %d bytes", name, length)
	case s.closed.Load():
		return closedError("put")
	}
	if _, err := s.cfg.FS.Stat(file); err == nil { // it spares the work; the link decides
		return s.settleNamed("put", name, file, fs.ErrExist)
	}
	if err := makeDurable(s.cfg.FS, filepath.Dir(file)); err != nil {
		return namedError("put", name, err)
	}
	tmp := s.tmp.name("named-")
	defer func() { _ = s.cfg.FS.Remove(tmp) }() // its second name is what counts
	if err := s.writeNamed(ctx, name, tmp, io.NewSectionReader(body, 0, length), length, crc32c); err != nil {
		return namedError("put", name, err)
	}
	return s.settleNamed("put", name, file, s.cfg.FS.Link(tmp, file))
}

// settleNamed makes the folder durable after a link: also one that found the name
// taken, since who took it may not have come so far. A new name that cannot be
// made durable is taken back: no later fsync would prove anything about it.
func (s *Store) settleNamed(op, name, file string, linked error) error {
	if linked == nil || errors.Is(linked, fs.ErrExist) {
		if err := s.cfg.FS.SyncDir(filepath.Dir(file)); err != nil {
			if linked == nil {
				_ = s.cfg.FS.Remove(file) // the disk has failed already
			}
			linked = err
		}
	}
	return namedError(op, name, linked)
}

func (s *Store) writeNamed(ctx context.Context, name, tmp string, body io.Reader, length int64, crc32c uint32) error {
	f, err := s.cfg.FS.CreateExclusive(tmp)
	if err != nil {
		return err
	}
	return vfs.Durably(f, func() error {
		crc, n, err := blockstore.SumCRC(io.TeeReader(&untilDone{ctx, body}, f))
		if err == nil && (n != length || crc != crc32c) {
			err = fserror.New(fserror.Damaged, "put", "", "object %s: %d bytes with checksum %08x came, not %d with %08x", name, n, crc, length, crc32c)
		}
		return err
	})
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context //nolint:containedctx // of the one call that it lives in
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// GetNamed implements blockstore.Objects.
func (s *Store) GetNamed(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	file, err := s.namedFile("get", name)
	if err != nil {
		return nil, err
	}
	switch {
	case offset < 0 || length < -1:
		return nil, fserror.New(fserror.InvalidArgument, "get", "", "object %s: no range of %d bytes from %d on", name, length, offset)
	case s.closed.Load():
		return nil, closedError("get")
	}
	f, err := s.cfg.FS.Open(file)
	if err != nil {
		return nil, namedError("get", name, err)
	}
	size, err := f.Size()
	if err == nil && offset >= size {
		err = fserror.New(fserror.InvalidArgument, "get", "", "object %s has %d bytes: no range from %d on", name, size, offset)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, namedError("get", name, err)
	}
	if length < 0 || length > size-offset {
		length = size - offset
	}
	return &section{io.NewSectionReader(f, offset, length), f}, nil
}

// section is a part of an open file.
type section struct {
	*io.SectionReader
	f vfs.File
}

func (s *section) Close() error { return s.f.Close() }

// StatNamed implements blockstore.Objects. It reads the object.
func (s *Store) StatNamed(ctx context.Context, name string) (blockstore.NamedInfo, uint32, error) {
	r, err := s.GetNamed(ctx, name, 0, -1)
	if err != nil {
		return blockstore.NamedInfo{}, 0, err
	}
	defer func() { _ = r.Close() }()
	crc, n, err := blockstore.SumCRC(&untilDone{ctx, r})
	if err != nil {
		return blockstore.NamedInfo{}, 0, namedError("stat", name, err)
	}
	file, err := s.namedFile("stat", name)
	if err != nil {
		return blockstore.NamedInfo{}, 0, err
	}
	info, err := s.cfg.FS.Stat(file)
	if err != nil {
		return blockstore.NamedInfo{}, 0, namedError("stat", name, err)
	}
	return blockstore.NamedInfo{Name: name, Length: n, Stored: info.ModTime()}, crc, nil
}

// ListNamed implements blockstore.Objects.
func (s *Store) ListNamed(_ context.Context, prefix, after string, limit int) ([]blockstore.NamedInfo, error) {
	for _, part := range []string{prefix, after} {
		if part != "" && !blockstore.ValidNamed(part) {
			return nil, fserror.New(fserror.InvalidArgument, "list", "", "%.250q begins no name of an object", part)
		}
	}
	if s.closed.Load() {
		return nil, closedError("list")
	}
	files, err := s.cfg.FS.List(filepath.Join(s.root, namedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, namedError("list", prefix, err)
	}
	var names []string
	for _, name := range files {
		if blockstore.ValidNamed(name) && strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []blockstore.NamedInfo
	for _, name := range names {
		if len(out) >= limit {
			break
		}
		file, err := s.namedFile("list", name)
		if err != nil {
			return nil, err
		}
		info, err := s.cfg.FS.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went just now
		}
		if err != nil {
			return nil, namedError("list", name, err)
		}
		out = append(out, blockstore.NamedInfo{Name: name, Length: info.Size(), Stored: info.ModTime()})
	}
	return out, nil
}

// DeleteNamed implements blockstore.Objects.
func (s *Store) DeleteNamed(_ context.Context, names ...string) error {
	if s.closed.Load() {
		return closedError("delete")
	}
	files := make([]string, len(names))
	for i, name := range names {
		var err error
		if files[i], err = s.namedFile("delete", name); err != nil {
			return err
		}
	}
	for i, file := range files {
		name := names[i]
		if err := s.cfg.FS.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return namedError("delete", name, err)
		}
	}
	if len(names) == 0 {
		return nil
	}
	err := s.cfg.FS.SyncDir(filepath.Join(s.root, namedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there never was one
	}
	return namedError("delete", names[0], err)
}
