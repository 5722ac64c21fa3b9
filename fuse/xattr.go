package fuse

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// The extended attributes that the mount itself provides (all but that of the lease can only
// be read), and the prefix of those that files have.
const (
	xattrPrefix = "leasefs."
	xattrHolder = xattrPrefix + "holder"
	xattrEpoch  = xattrPrefix + "epoch"
	xattrLease  = xattrPrefix + "lease"

	userPrefix = "user."
)

// Getxattr gives an extended attribute of the file, or what is said of the lease
// on it.
func (n *node) Getxattr(ctx context.Context, attr string, dest []byte) (uint32, syscall.Errno) {
	switch {
	case strings.HasPrefix(attr, userPrefix), strings.HasPrefix(attr, xattrPrefix):
	case isACL(attr):
		return getACL(ctx, n, attr, dest)
	case strings.HasPrefix(attr, "security."):
		return 0, syscall.ENODATA
	default:
		return 0, syscall.ENOTSUP
	}
	ctx, end := n.m.op(ctx)
	defer end()
	if strings.HasPrefix(attr, userPrefix) {
		all, e := n.xattrs(ctx)
		if e != 0 {
			return 0, e
		}
		for _, x := range all {
			if x.Name == attr {
				return give(dest, x.Value)
			}
		}
		return 0, syscall.ENODATA
	}
	i, _, err := n.look(ctx)
	if err != nil {
		return 0, inodeErrno(err)
	}
	value := leaseXattr(i, attr)
	if value == "" {
		return 0, syscall.ENODATA
	}
	return give(dest, []byte(value))
}

func leaseXattr(i *client.FileInfo, attr string) string {
	switch {
	case attr == xattrLease && i.Lease != 0:
		return i.Lease.String()
	case i.Open == nil:
	case attr == xattrHolder:
		return i.Open.Holder.Client
	case attr == xattrEpoch:
		return strconv.FormatUint(i.Open.Epoch, 10)
	case attr == xattrLease:
		return i.Open.Session
	}
	return ""
}

// give copies a value to where it is wanted; ERANGE if there is no room.
func give(dest, value []byte) (uint32, syscall.Errno) {
	if len(value) > len(dest) {
		return uint32(len(value)), syscall.ERANGE //nolint:gosec // at most 16 KiB
	}
	return uint32(copy(dest, value)), 0 //nolint:gosec // likewise
}

// xattrs are the node's extended attributes. That there are none is seen from
// its other attributes, which are kept as a rule.
func (n *node) xattrs(ctx context.Context) ([]client.Xattr, syscall.Errno) {
	i, _, err := n.look(ctx)
	if err == nil && i.Xattrs == 0 {
		return nil, 0
	}
	if err != nil {
		return nil, inodeErrno(err)
	}
	all, err := n.m.fs.XattrsInode(n.ino).All(ctx)
	return all, inodeErrno(err)
}

// Listxattr lists those of the user namespace: what can only be read would make
// cp -a and rsync -X fail where they copy it to.
func (n *node) Listxattr(ctx context.Context, dest []byte) (uint32, syscall.Errno) {
	ctx, end := n.m.op(ctx)
	defer end()
	all, e := n.xattrs(ctx)
	if e != 0 {
		return 0, e
	}
	var names []byte
	for _, x := range all {
		names = append(append(names, x.Name...), 0)
	}
	return give(dest, names)
}

// Setxattr sets one of the user namespace, or attaches the node to a granted lease.
func (n *node) Setxattr(ctx context.Context, attr string, data []byte, flags uint32) syscall.Errno {
	if attr == xattrLease {
		return attachTo(ctx, n, strings.TrimRight(string(data), "\x00\n"), flags)
	}
	if isACL(attr) {
		return setACL(ctx, n, attr, data)
	}
	if !strings.HasPrefix(attr, userPrefix) {
		return noXattr(attr)
	}
	mode := client.XattrAny
	switch flags {
	case 0:
	case unix.XATTR_CREATE:
		mode = client.XattrCreate
	case unix.XATTR_REPLACE:
		mode = client.XattrReplace
	default:
		return syscall.EINVAL
	}
	ctx, end := n.m.op(ctx)
	defer end()
	if e := n.settleNode(ctx); e != 0 {
		return e
	}
	return xattrErrno(n.m.fs.XattrsInode(n.ino).Set(ctx, attr, data, mode))
}

// attachTo attaches a node to the granted lease that has an id, or a name of the mount's user.
func attachTo(raw context.Context, n *node, lease string, flags uint32) syscall.Errno {
	ctx, end := n.m.op(raw)
	id, err := n.m.fs.Leases().Find(ctx, lease)
	end()
	if k := fserror.KindOf(err); k == fserror.NotFound || k == fserror.InvalidArgument {
		return syscall.EINVAL // the file is there, and the value names no lease
	}
	if err != nil {
		return errno(err)
	}
	return attach(raw, n, id, flags)
}

// attach attaches a node to a granted lease, or with 0 detaches it. Only its owner may,
// which the namenode checks.
func attach(raw context.Context, n *node, id client.LeaseID, flags uint32) syscall.Errno {
	ctx, end := n.m.op(raw)
	defer end()
	i, _, err := n.look(ctx)
	if err != nil {
		return inodeErrno(err)
	}
	switch {
	case flags == unix.XATTR_CREATE && i.Lease != 0:
		return syscall.EEXIST
	case (id == 0 || flags == unix.XATTR_REPLACE) && i.Lease == 0:
		return syscall.ENODATA
	}
	err = n.m.fs.AttachInode(ctx, n.ino, id)
	if fe := (*fserror.Error)(nil); errors.As(err, &fe) && fe.Reason == fserror.ReasonNoLease {
		return syscall.EINVAL // the file is there
	}
	return inodeErrno(err)
}

// Removexattr removes one of the user namespace, or detaches the node from its granted
// lease.
func (n *node) Removexattr(ctx context.Context, attr string) syscall.Errno {
	if attr == xattrLease {
		return attach(ctx, n, 0, 0)
	}
	if isACL(attr) {
		return setACL(ctx, n, attr, nil)
	}
	if !strings.HasPrefix(attr, userPrefix) {
		return noXattr(attr)
	}
	ctx, end := n.m.op(ctx)
	defer end()
	if e := n.settleNode(ctx); e != 0 {
		return e
	}
	return xattrErrno(n.m.fs.XattrsInode(n.ino).Remove(ctx, attr))
}

func noXattr(attr string) syscall.Errno {
	if strings.HasPrefix(attr, xattrPrefix) {
		return syscall.EPERM
	}
	return syscall.ENOTSUP
}

// xattrErrno is inodeErrno for a change of an extended attribute.
func xattrErrno(err error) syscall.Errno {
	switch {
	case client.IsNoXattr(err):
		return syscall.ENODATA
	case errors.Is(err, fserror.TooLarge):
		return syscall.E2BIG
	}
	return inodeErrno(err)
}
