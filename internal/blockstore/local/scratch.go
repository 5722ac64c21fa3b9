package local

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/vfs"
)

// scratch is a store's part of the folder of temporary files, which all stores of
// a namespace share. What crashed stores left there is removed at the next open.
type scratch struct {
	fs   vfs.FS
	dir  string
	id   string    // of the store, in the names of its files
	lock io.Closer // held while the store is open
	next atomic.Uint64
}

// open takes the store's lock and removes leftovers.
func (t *scratch) open() error {
	for t.lock == nil {
		if err := t.takeID(); err != nil {
			return err
		}
	}
	if err := t.sweep(); err != nil {
		_ = t.lock.Close()
		return err
	}
	return nil
}

// close gives the lock back. Its file goes first, so that nobody takes a lock
// that is already nobody's for a leftover.
func (t *scratch) close() error {
	err := t.fs.Remove(filepath.Join(t.dir, t.id+lockSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, t.lock.Close())
}

// name is a new one for a file; kind is a part of it.
func (t *scratch) name(kind string) string {
	return filepath.Join(t.dir, t.id+"-"+kind+strconv.FormatUint(t.next.Add(1), 10)+tmpSuffix)
}

// takeID gives the store an id, and the lock that says that it lives. The lock
// stays nil if a sweep of another store took the file for a leftover.
func (t *scratch) takeID() error {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return err
	}
	t.id = hex.EncodeToString(raw[:])
	name := filepath.Join(t.dir, t.id+lockSuffix)
	f, err := t.fs.CreateExclusive(name)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	lock, err := t.fs.Lock(name)
	if errors.Is(err, vfs.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := t.fs.Stat(name); err != nil { // removed before we had the lock
		_ = lock.Close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	t.lock = lock
	return nil
}

// sweep removes the temporary files of stores that are gone. Files of unknown
// names stay. One store sweeps at a time; another continues without.
func (t *scratch) sweep() error {
	turn, err := t.fs.Lock(filepath.Join(t.dir, sweepLock))
	if errors.Is(err, vfs.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = turn.Close() }()
	names, err := t.fs.List(t.dir)
	if err != nil {
		return err
	}
	left := map[string][]string{} // by the id of the store that made them
	for _, name := range names {
		if id, ok := ownerOf(name); ok && id != t.id {
			left[id] = append(left[id], name)
		}
	}
	for id, names := range left {
		if err := t.sweepOne(id, names); err != nil {
			return err
		}
	}
	return nil
}

// sweepOne removes the files of one store if it is gone, its lock's file last.
func (t *scratch) sweepOne(id string, names []string) error {
	lockName := id + lockSuffix
	lock, err := t.fs.Lock(filepath.Join(t.dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil // it lives
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	names = append(slices.DeleteFunc(names, func(n string) bool { return n == lockName }), lockName)
	for _, name := range names {
		if err := t.fs.Remove(filepath.Join(t.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
