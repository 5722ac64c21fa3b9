package transfer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"syscall"
	"unicode/utf8"

	"github.com/leasefs/leasefs/fserror"
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
	}
	var pe *fs.PathError
	if errors.As(err, &pe) { // the path is said already
		err = pe.Err
	}
	return &fserror.Error{Op: op, Path: path, Kind: kind, Err: err}
}

// tempInfix is part of each temporary name.
const tempInfix = ".leasefs-"

// tempName is a name beside name that nobody else has, of at most 255 bytes.
func tempName(name string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	keep := 255 - 1 - len(tempInfix) - 2*len(b)
	for len(name) > keep || !utf8.ValidString(name) {
		name = name[:len(name)-1]
	}
	return "." + name + tempInfix + hex.EncodeToString(b[:])
}
