package vfs

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Full reports whether an error says that the disk, or the user's part of it, is full.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// KindOf is the kind that a namespace gives to the same failure as one of this machine's
// file system; Internal if it has none.
func KindOf(err error) fserror.Kind {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fserror.NotFound
	case errors.Is(err, fs.ErrExist):
		return fserror.Exists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fserror.Permission
	case Full(err):
		return fserror.NoSpace
	case errors.Is(err, syscall.EISDIR):
		return fserror.IsDirectory
	case errors.Is(err, syscall.ENOTDIR):
		return fserror.NotDirectory
	}
	return fserror.Internal
}
