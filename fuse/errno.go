package fuse

import (
	"errors"
	"syscall"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// errno is what a caller through the kernel gets for an error.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	case client.IsNotOwner(err):
		return syscall.EPERM
	case lowlevel.IsGone(err):
		return syscall.ESTALE
	case fserror.OverQuota(err):
		return syscall.EDQUOT
	}
	switch k := fserror.KindOf(err); k {
	case fserror.Closed: // of the client, under a request: the mount ends
		return syscall.EIO
	default:
		return k.Errno()
	}
}

// inodeErrno is errno of what was asked by number: that it is not there means
// that it is gone, not that a name is missing.
func inodeErrno(err error) syscall.Errno {
	if errors.Is(err, fserror.NotFound) {
		return syscall.ESTALE
	}
	return errno(err)
}
