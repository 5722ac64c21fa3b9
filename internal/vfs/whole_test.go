package vfs

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// steps is a file that notes what is done to it.
type steps struct {
	did         []string
	sync, close error
}

func (s *steps) Sync() error { s.did = append(s.did, "sync"); return s.sync }

func (s *steps) Close() error { s.did = append(s.did, "close"); return s.close }

// A file is closed whatever fails, synced only if all was written, and the first
// error counts.
func TestDurably(t *testing.T) {
	fill, sync, shut := errors.New("fill"), errors.New("sync"), errors.New("close")
	for _, c := range []struct {
		fill, sync, close, want error
		did                     []string
	}{
		{did: []string{"fill", "sync", "close"}},
		{fill: fill, close: shut, want: fill, did: []string{"fill", "close"}},
		{sync: sync, close: shut, want: sync, did: []string{"fill", "sync", "close"}},
		{close: shut, want: shut, did: []string{"fill", "sync", "close"}},
	} {
		s := &steps{sync: c.sync, close: c.close}
		err := Durably(s, func() error { s.did = append(s.did, "fill"); return c.fill })
		if !errors.Is(err, c.want) || !slices.Equal(s.did, c.did) {
			t.Errorf("%v after %q", err, s.did)
		}
	}
}

// A failure of this machine has the kind that the namespace gives to the same.
func TestKindOf(t *testing.T) {
	for err, want := range map[error]fserror.Kind{
		fs.ErrNotExist: fserror.NotFound, fs.ErrExist: fserror.Exists, fs.ErrPermission: fserror.Permission, syscall.EROFS: fserror.Permission,
		syscall.ENOSPC: fserror.NoSpace, syscall.EDQUOT: fserror.NoSpace, syscall.EISDIR: fserror.IsDirectory, syscall.ENOTDIR: fserror.NotDirectory,
		syscall.EIO: fserror.Internal,
	} {
		err := &fs.PathError{Op: "open", Path: "/a", Err: err}
		if got := KindOf(err); got != want || Full(err) != (want == fserror.NoSpace) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
