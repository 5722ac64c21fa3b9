package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// maxFile is how many bytes one file may have.
const maxFile = 16 << 20

// settled is how long ago a file must have been changed before it was read, for its times
// to tell whether it has changed since: the times of some file systems are that coarse.
const settled = 2 * time.Second

// File is what a group of files says, such as a certificate and its key. It is safe for
// concurrent use.
type File[T any] struct {
	names []string
	parse func(contents [][]byte) (T, error)
	clock clock.Clock
	value atomic.Pointer[T]

	mu       sync.Mutex
	stamps   []stamp // of what was read last; nil: read them again
	sum      [32]byte
	problem  string // that was told last
	readOnce bool   // it is no regular file: a pipe gives its content once
}

// stamp is how a change of a file is noticed.
type stamp struct {
	size  int64
	mtime time.Time
	info  fs.FileInfo // for os.SameFile
}

// Open reads the files. parse gets their contents in order.
func Open[T any](c clock.Clock, parse func(contents [][]byte) (T, error), names ...string) (*File[T], error) {
	f := &File[T]{names: names, parse: parse, clock: c}
	if _, err := f.Check(); err != nil {
		return nil, err
	}
	return f, nil
}

// Get returns what the files said when they were last read whole.
func (f *File[T]) Get() T { return *f.value.Load() }

// Check reads the files again if they have changed. An error says that they cannot be used
// as they are now, and is returned once: what Get returns stays as it was.
func (f *File[T]) Check() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readOnce {
		return false, nil
	}
	changed, err = f.read()
	if err == nil {
		f.problem = ""
		return changed, nil
	}
	f.stamps = nil
	if err.Error() == f.problem {
		return false, nil
	}
	f.problem = err.Error()
	return false, err
}

func (f *File[T]) read() (changed bool, err error) {
	began := f.clock.Wall()
	stamps, fresh, regular := make([]stamp, len(f.names)), false, true
	for i, name := range f.names {
		info, err := os.Stat(name)
		if err != nil {
			return false, unreadable(name, err)
		}
		if regular = regular && info.Mode().IsRegular(); !regular && f.value.Load() != nil {
			// To open a pipe may take for ever.
			return false, fserror.New(fserror.InvalidArgument, "read", name, "it is no regular file any more; put one in its place")
		}
		stamps[i] = stamp{info.Size(), info.ModTime(), info}
		// Also a time in the future, as of another machine's clock, is no help.
		fresh = fresh || began.Sub(info.ModTime()) < settled
	}
	if f.same(stamps) {
		return false, nil
	}
	contents, sum := make([][]byte, len(f.names)), sha256.New()
	for i, name := range f.names {
		if contents[i], err = readFile(name); err != nil {
			return false, err
		}
		fmt.Fprintf(sum, "%d ", len(contents[i]))
		sum.Write(contents[i])
	}
	if now := [32]byte(sum.Sum(nil)); f.value.Load() == nil || now != f.sum {
		v, err := f.parse(contents)
		if err != nil {
			return false, err
		}
		f.value.Store(&v)
		f.sum, changed = now, true
	}
	f.stamps, f.readOnce = stamps, !regular
	if fresh {
		f.stamps = nil
	}
	return changed, nil
}

// same reports whether the files are, by all that they show, as they were read.
func (f *File[T]) same(stamps []stamp) bool {
	if f.stamps == nil {
		return false
	}
	for i, s := range stamps {
		if o := f.stamps[i]; s.size != o.size || !s.mtime.Equal(o.mtime) || !os.SameFile(s.info, o.info) {
			return false
		}
	}
	return true
}

func readFile(name string) ([]byte, error) {
	r, err := os.Open(name) //nolint:gosec // who configures it names the file
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer func() { _ = r.Close() }() // nothing was written
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r, maxFile+1))
	switch {
	case err != nil:
		return nil, unreadable(name, err)
	case n > maxFile:
		return nil, fserror.New(fserror.TooLarge, "read", name, "larger than %d bytes; check that it is the right file", maxFile)
	}
	return b.Bytes(), nil
}

func unreadable(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) { // the path is said already
		err = pe.Err
	}
	kind := fserror.InvalidArgument
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = fserror.NotFound
	case errors.Is(err, fs.ErrPermission):
		kind = fserror.Permission
	}
	return &fserror.Error{Op: "read", Path: name, Kind: kind, Err: err}
}
