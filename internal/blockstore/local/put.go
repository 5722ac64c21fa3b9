package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

// pieceSize is how much of a PUT is read, summed and written at a time.
const pieceSize = 512 << 10

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// source is an object on its way in.
type source struct {
	body    io.Reader
	length  int64
	crc     uint32
	expires time.Time // after it nothing is published; zero: never
	// waiting is called before each piece is read that has yet to come from
	// somewhere else; nil: it is at hand.
	waiting func()
}

// Put stores an object, durable when it returns.
//
// Exists if the key is taken (by a block that is durable), Damaged if the
// object has not the checksum, InvalidArgument if it is empty, TooLarge, NoSpace
// (disk or reserve), Closed, Unavailable (any other error of the disk).
func (s *Store) Put(ctx context.Context, key blockstore.Key, object []byte, crc32c uint32) error {
	return s.put(ctx, key, source{body: bytes.NewReader(object), length: int64(len(object)), crc: crc32c})
}

func (s *Store) put(ctx context.Context, key blockstore.Key, src source) error {
	if err := s.usable("put"); err != nil {
		return err
	}
	if err := blockstore.CheckLength(key, src.length, s.cfg.MaxObject); err != nil {
		return err
	}
	p, what := placeOf(key), called(key)
	if err := s.reserve(what, src.length, s.cfg.Reserve); err != nil {
		return err
	}
	defer s.pending.Add(-src.length)

	d := s.folders.getForPut(p, s.folderPath(p))
	defer s.folders.release(d)
	if err := d.make(); err != nil {
		return diskError("put", what, err)
	}
	// Not needed for correctness (link decides), but spares a retry its bytes.
	if _, err := s.cfg.FS.Stat(s.blockPath(key)); err == nil {
		return diskError("put", what, cmp.Or(s.confirm(d, key), fs.ErrExist))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return diskError("put", what, err)
	}

	tmp := s.tmp.name("")
	defer func() { _ = s.cfg.FS.Remove(tmp) }() // after the link too; what stays is swept at Open
	if err := s.write(ctx, what, tmp, src); err != nil {
		return diskError("put", what, err)
	}
	if !src.expires.IsZero() && s.mac.now().After(src.expires) {
		// The collector may have swept the key already, relying on this.
		return expired(key, src.expires)
	}
	if err := d.link(tmp, key); err != nil {
		return diskError("put", what, err)
	}
	s.stats.puts.Add(1)
	s.stats.putBytes.Add(uint64(src.length))
	return nil
}

// confirm returns nil when the block that has the key is durable. Of one from
// before this store was opened that is not known, whatever an fsync says now:
// the fsync of its link may have failed, and only the process have ended. Its
// name is made again then, for a copy of it, and that is synced.
func (s *Store) confirm(d *folder, key blockstore.Key) error {
	if !d.isOld(key) {
		return d.settle(key)
	}
	tmp := s.tmp.name("")
	defer func() { _ = s.cfg.FS.Remove(tmp) }()
	if err := s.copyFile(s.blockPath(key), tmp); err != nil {
		return err
	}
	return d.replace(tmp, key)
}

// copyFile makes a durable copy under a new name, which itself is not durable.
func (s *Store) copyFile(from, to string) error {
	src, err := s.cfg.FS.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := s.cfg.FS.CreateExclusive(to)
	if err != nil {
		return err
	}
	return vfs.Durably(dst, func() error { _, err := io.Copy(dst, src); return err })
}

// reserve books length bytes of the disk, of which so many have to stay free. The caller takes
// them off pending again.
func (s *Store) reserve(what string, length, stays int64) error {
	// The bytes of PUTs under way count in full though part of them is on the
	// disk by now: too much by at most MaxPuts objects, on the safe side.
	pending := s.pending.Add(length)
	free, _, err := s.cfg.FS.Usage(s.root)
	switch {
	case err != nil:
		err = diskError("put", what, err)
	case free-pending < stays:
		err = fserror.New(fserror.NoSpace, "put", "", "%s: %d bytes, and %d are free above the reserve of %d: delete files or add disk",
			what, length, max(free-stays-(pending-length), 0), stays)
	}
	if err != nil {
		s.pending.Add(-length)
	}
	return err
}

// write makes the file tmp of the object's bytes and syncs it.
func (s *Store) write(ctx context.Context, what, tmp string, src source) error {
	f, err := s.cfg.FS.CreateExclusive(tmp)
	if err != nil {
		return err
	}
	return vfs.Durably(f, func() error { return fill(ctx, what, f, src) })
}

// fill copies the object into f and compares length and checksum.
func fill(ctx context.Context, what string, f vfs.File, src source) error {
	piece := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(piece)
	var crc uint32
	flusher := newWriteback(f)
	for left := src.length; left > 0; {
		if err := ctx.Err(); err != nil {
			return brokenOff(what, src.length-left, src.length, err)
		}
		if src.waiting != nil {
			src.waiting()
		}
		part := piece[:min(left, pieceSize)]
		switch n, err := io.ReadFull(src.body, part); {
		case err == nil:
		case src.waiting != nil:
			return brokenOff(what, src.length-left+int64(n), src.length, err)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fserror.New(fserror.Damaged, "put", "", "%s: the bytes end after %d, %d were announced", what, src.length-left+int64(n), src.length)
		default:
			return err
		}
		crc = blockstore.UpdateCRC(crc, part)
		if _, err := f.Write(part); err != nil {
			return err
		}
		flusher.wrote(int64(len(part)))
		left -= int64(len(part))
	}
	if crc != src.crc {
		return fserror.New(fserror.Damaged, "put", "", "%s: the bytes received have checksum %08x, %08x was announced", what, crc, src.crc)
	}
	return nil
}

// called is what errors call a block.
func called(key blockstore.Key) string { return "block " + key.String() }

func expired(key blockstore.Key, at time.Time) error {
	return fserror.New(fserror.Permission, "", "", "block %s: the signed URL expired at %s", key, at.UTC().Format(time.RFC3339Nano))
}

func brokenOff(what string, got, want int64, err error) error {
	return &fserror.Error{Op: "put", Kind: fserror.Canceled, Err: err,
		Message: fmt.Sprintf("%s: broken off after %d of %d bytes", what, got, want)}
}

// diskError is an error of the file system about a block, or an object. What is
// missing, or in the way, has its own kind; but in a put a missing file means that
// somebody removed a folder, which makes the store Unavailable.
func diskError(op, what string, err error) error {
	var own *fserror.Error
	kind := fserror.Unavailable
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.Is(err, fs.ErrExist):
		return fserror.New(fserror.Exists, op, "", "%s is there already, from the first PUT", what)
	case errors.Is(err, fs.ErrNotExist) && op != "put":
		return fserror.New(fserror.NotFound, op, "", "no %s", what)
	case vfs.Full(err):
		kind = fserror.NoSpace
	}
	return &fserror.Error{Op: op, Kind: kind, Message: what, Err: err}
}
