package local

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// namedFolder holds the named objects of a namespace, each a file of its name.
const namedFolder = "named"

// smallObject is the length below which a named object may take what is left of the reserve:
// deleting blocks needs some.
const smallObject = 1 << 20

var _ blockstore.Objects = (*Store)(nil)

// object is what errors call a named object, and its file.
func (s *Store) object(op, name string) (what, file string, err error) {
	if err = blockstore.CheckNamed(op, name); err == nil {
		err = s.usable(op)
	}
	return "object " + name, filepath.Join(s.root, namedFolder, name), err
}

// PutNamed implements blockstore.Objects. NoSpace if a large object, such as an image, would go
// into the half of the reserve that is left for deleting: the journal may be on this disk.
func (s *Store) PutNamed(ctx context.Context, name string, body io.ReaderAt, length int64, crc32c uint32) error {
	what, file, err := s.object("put", name)
	switch {
	case err != nil:
		return err
	case length < 1:
		return fserror.New(fserror.InvalidArgument, "put", "", "%s: %d bytes", what, length)
	}
	if _, err := s.cfg.FS.Stat(file); err == nil { // it spares the work; the link decides
		return s.settleNamed(what, file, fs.ErrExist)
	}
	if err := makeDurable(s.cfg.FS, filepath.Dir(file)); err != nil {
		return diskError("put", what, err)
	}
	r := &booked{r: io.NewSectionReader(body, 0, length), pending: &s.pending}
	if length >= smallObject {
		if err := s.reserve(what, length, s.cfg.Reserve/2); err != nil {
			return err
		}
		r.left = length
	}
	defer func() { r.pending.Add(-r.left) }()
	tmp := s.tmp.name("named-")
	defer func() { _ = s.cfg.FS.Remove(tmp) }() // its second name is what counts
	err = s.write(ctx, what, tmp, source{body: r, length: length, crc: crc32c})
	if err != nil {
		return diskError("put", what, err)
	}
	return s.settleNamed(what, file, s.cfg.FS.Link(tmp, file))
}

// booked reads what reserve has booked. What was read is on the disk soon, and counts no more:
// an image may be as large as what is free beside it.
type booked struct {
	r       io.Reader
	pending *atomic.Int64
	left    int64 // booked still
}

func (b *booked) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	gone := min(int64(n), b.left)
	b.left -= gone
	b.pending.Add(-gone)
	return n, err
}

// settleNamed makes the folder durable after a link: also one that found the name
// taken, since who took it may not have come so far. A new name that cannot be
// made durable is taken back: no later fsync would prove anything about it.
func (s *Store) settleNamed(what, file string, linked error) error {
	if linked == nil || errors.Is(linked, fs.ErrExist) {
		if err := s.cfg.FS.SyncDir(filepath.Dir(file)); err != nil {
			if linked == nil {
				_ = s.cfg.FS.Remove(file) // the disk has failed already
			}
			linked = err
		}
	}
	return diskError("put", what, linked)
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
	what, file, err := s.object("get", name)
	if err != nil {
		return nil, err
	}
	r, err := s.get(what, file, offset, length)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// StatNamed implements blockstore.Objects. It reads the object.
func (s *Store) StatNamed(ctx context.Context, name string) (blockstore.NamedInfo, uint32, error) {
	what, file, err := s.object("stat", name)
	if err != nil {
		return blockstore.NamedInfo{}, 0, err
	}
	r, err := s.get(what, file, 0, -1)
	if err != nil {
		return blockstore.NamedInfo{}, 0, err
	}
	defer func() { _ = r.Close() }()
	crc, n, err := blockstore.SumCRC(&untilDone{ctx, r})
	if err != nil {
		return blockstore.NamedInfo{}, 0, diskError("stat", what, err)
	}
	info, err := s.cfg.FS.Stat(file)
	if err != nil {
		return blockstore.NamedInfo{}, 0, diskError("stat", what, err)
	}
	return blockstore.NamedInfo{Name: name, Length: n, Stored: info.ModTime()}, crc, nil
}

// ListNamed implements blockstore.Objects.
func (s *Store) ListNamed(_ context.Context, prefix, after string, limit int) ([]blockstore.NamedInfo, error) {
	if err := cmp.Or(blockstore.CheckList(prefix, after), s.usable("list")); err != nil {
		return nil, err
	}
	files, err := s.cfg.FS.List(filepath.Join(s.root, namedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, diskError("list", s.what(), err)
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
		info, err := s.cfg.FS.Stat(filepath.Join(s.root, namedFolder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went just now
		}
		if err != nil {
			return nil, diskError("list", "object "+name, err)
		}
		out = append(out, blockstore.NamedInfo{Name: name, Length: info.Size(), Stored: info.ModTime()})
	}
	return out, nil
}

// DeleteNamed implements blockstore.Objects.
func (s *Store) DeleteNamed(_ context.Context, names ...string) error {
	files := make([]string, len(names))
	for i, name := range names {
		var err error
		if _, files[i], err = s.object("delete", name); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return s.usable("delete")
	}
	for i, file := range files {
		if err := s.cfg.FS.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError("delete", "object "+names[i], err)
		}
	}
	err := s.cfg.FS.SyncDir(filepath.Join(s.root, namedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there never was one
	}
	return diskError("delete", "object "+names[0], err)
}
