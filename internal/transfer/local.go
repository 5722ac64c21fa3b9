package transfer

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

// LocalError gives an error of this machine's file system the kind that the
// same failure has in a namespace. Nil stays nil.
func LocalError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	kind := vfs.KindOf(err)
	if kind == fserror.Internal && strings.HasSuffix(err.Error(), "path escapes from parent") { // os.Root has no name for it
		return fserror.New(fserror.Loop, op, path, "a symbolic link that leads out of the copy took the place of a file or directory; copy it again")
	}
	var pe *fs.PathError
	if errors.As(err, &pe) { // the path is said already
		err = pe.Err
	}
	return &fserror.Error{Op: op, Path: path, Kind: kind, Err: err}
}
