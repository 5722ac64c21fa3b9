package transfer

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/leasefs/leasefs/internal/fserror"
)

// LocalError gives an error of this machine's file system the kind that the
// same failure has in a namespace. Nil stays nil.
func LocalError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	kind := fserror.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = fserror.NotFound
	case errors.Is(err, fs.ErrExist):
		kind = fserror.Exists
	case errors.Is(err, fs.ErrPermission):
		kind = fserror.Permission
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = fserror.NoSpace
	case errors.Is(err, syscall.EISDIR):
		kind = fserror.IsDirectory
	case errors.Is(err, syscall.ENOTDIR):
		kind = fserror.NotDirectory
	case strings.HasSuffix(err.Error(), "path escapes from parent"): // os.Root has no name for it
		return fserror.New(fserror.Loop, op, path, "a symbolic link that leads out of the copy took the place of a file or directory; copy it again")
	}
	var pe *fs.PathError
	if errors.As(err, &pe) { // the path is said already
		err = pe.Err
	}
	return &fserror.Error{Op: op, Path: path, Kind: kind, Err: err}
}
