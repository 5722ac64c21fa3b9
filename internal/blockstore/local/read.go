package local

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

// open opens the file of a block, or of an object, for reading.
func (s *Store) open(what, file string) (vfs.File, int64, error) {
	f, err := s.cfg.FS.Open(file)
	if err != nil {
		return nil, 0, diskError("get", what, err)
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close()
		return nil, 0, diskError("get", what, err)
	}
	return f, size, nil
}

// get opens a range of one.
func (s *Store) get(what, file string, offset, length int64) (*section, error) {
	f, size, err := s.open(what, file)
	if err != nil {
		return nil, err
	}
	if offset < 0 || offset >= size || length < -1 {
		_ = f.Close()
		return nil, fserror.New(fserror.InvalidArgument, "get", "", "%s has %d bytes: no range of %d bytes from %d on", what, size, length, offset)
	}
	if length < 0 || length > size-offset {
		length = size - offset
	}
	return &section{io.NewSectionReader(f, offset, length), f}, nil
}

// section reads a range of a file. It has ReadAt and Seek too.
type section struct {
	*io.SectionReader
	io.Closer
}

// Get reads length bytes from offset on; length -1 reads to the end. A range
// that goes beyond the end is cut off; one that begins there or beyond is
// InvalidArgument. The bytes are not verified.
func (s *Store) Get(_ context.Context, key blockstore.Key, offset, length int64) (io.ReadCloser, error) {
	r, err := s.get(called(key), s.blockPath(key), offset, length)
	if err != nil {
		return nil, err
	}
	s.stats.gets.Add(1)
	s.stats.getBytes.Add(uint64(r.Size()))
	return r, nil
}

// Stat returns NotFound if there is no complete object of the key. Stored is
// the file's modification time. Retry while too many reads hang.
func (s *Store) Stat(ctx context.Context, key blockstore.Key) (blockstore.Info, error) {
	if err := s.gate.enter(ctx, "stat", called(key)); err != nil {
		return blockstore.Info{}, err
	}
	defer s.gate.leave()
	st, err := s.cfg.FS.Stat(s.blockPath(key))
	if err != nil {
		return blockstore.Info{}, diskError("stat", called(key), err)
	}
	return blockstore.Info{Key: key, Length: st.Size(), Stored: st.ModTime()}, nil
}

// Delete removes objects, durable when it returns; one that is missing already
// is no error. It continues after an error and returns the first. Folders
// that are empty then go, too.
func (s *Store) Delete(ctx context.Context, keys ...blockstore.Key) error {
	var kept blockstore.KeptError
	note := func(err error, of ...blockstore.Key) {
		if kept.Keys = append(kept.Keys, of...); kept.Err == nil {
			kept.Err = diskError("delete", called(of[0]), err)
		}
	}
	var over error
	touched := map[place][]blockstore.Key{}
	held := map[place]*folder{} // before files in them go: another call prunes none of these
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			over = fserror.Wrap(fserror.Canceled, "delete", "", err)
			break
		}
		p := placeOf(key)
		if held[p] == nil {
			held[p] = s.folders.get(p, s.folderPath(p))
		}
		switch err := s.cfg.FS.Remove(s.blockPath(key)); {
		case err == nil:
			s.stats.deletes.Add(1)
			touched[p] = append(touched[p], key)
		case errors.Is(err, fs.ErrNotExist):
		default:
			note(err, key)
		}
	}
	for p, d := range held {
		if gone := touched[p]; len(gone) > 0 {
			if err := d.sync(); err != nil {
				note(err, gone...)
			} else {
				s.folders.prune(p, d)
			}
		}
		s.folders.release(d)
	}
	if kept.Err == nil || over != nil {
		return cmp.Or(kept.Err, over)
	}
	return &kept
}

// List returns up to limit complete objects with keys greater than after, in
// the order of keys. It looks into no folder before after's, and stops at the
// limit; a page costs one listing of each folder that it touches.
func (s *Store) List(ctx context.Context, after blockstore.Key, limit int) ([]blockstore.Info, error) {
	var out []blockstore.Info
	terms, err := s.subfolders(s.root, termDigits, after.Term)
	if err != nil {
		return nil, err
	}
	for _, term := range terms {
		var from uint64
		if term == after.Term {
			from = after.Seq >> folderBits
		}
		termPath := filepath.Dir(s.folderPath(place{term, 0}))
		highs, err := s.subfolders(termPath, folderDigits, from)
		if err != nil {
			return nil, err
		}
		for _, high := range highs {
			if len(out) >= limit {
				return out, nil
			}
			if err := ctx.Err(); err != nil {
				return nil, fserror.Wrap(fserror.Canceled, "list", "", err)
			}
			if out, err = s.listFolder(out, place{term, high}, after, limit); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// subfolders returns the numbers of dir's folders of so many digits, from the
// given one on, in order.
func (s *Store) subfolders(dir string, digits int, from uint64) ([]uint64, error) {
	names, err := s.cfg.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, diskError("list", s.what(), err)
	}
	var out []uint64
	for _, name := range names {
		if n, ok := blockstore.ParseDigits(name, digits); ok && n >= from {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, cmp.Compare)
	return out, nil
}

// listFolder appends the blocks of one folder, up to limit in all.
func (s *Store) listFolder(out []blockstore.Info, p place, after blockstore.Key, limit int) ([]blockstore.Info, error) {
	path := s.folderPath(p)
	names, err := s.cfg.FS.List(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return out, nil
		}
		return nil, diskError("list", s.what(), err)
	}
	if len(names) == 0 { // as earlier releases, and crashes, have left them
		d := s.folders.get(p, path)
		s.folders.prune(p, d)
		s.folders.release(d)
	}
	for _, name := range names {
		key, ok := parseBlockName(p, name)
		if !ok || !after.Less(key) {
			continue
		}
		if len(out) >= limit {
			break
		}
		st, err := s.cfg.FS.Stat(filepath.Join(path, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, diskError("list", called(key), err)
		}
		if !st.Mode().IsRegular() {
			continue
		}
		out = append(out, blockstore.Info{Key: key, Length: st.Size(), Stored: st.ModTime()})
	}
	return out, nil
}
