package fuse

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
)

// isACL reports whether an extended attribute is one in which Linux has an ACL.
func isACL(attr string) bool { return attr == posixacl.XattrAccess || attr == posixacl.XattrDefault }

// getACL gives an ACL as Linux has it, by the numbers of this machine. Users and groups that
// it does not know are left out, as nobody here is one: so the kernel, which checks by it,
// decides as with them. What is only a mode is no ACL.
func getACL(ctx context.Context, n *node, attr string, dest []byte) (uint32, syscall.Errno) {
	ctx, end := n.m.op(ctx)
	defer end()
	i, _, err := n.look(ctx)
	if err != nil {
		return 0, inodeErrno(err)
	}
	if attr == posixacl.XattrAccess && !i.HasACL || attr == posixacl.XattrDefault && !i.HasDefault {
		return 0, syscall.ENODATA
	}
	list, err := n.m.fs.XattrsInode(n.ino).ACL(ctx)
	if err != nil {
		return 0, inodeErrno(err)
	}
	part := list.Part(attr == posixacl.XattrDefault)
	if len(part) == 0 || attr == posixacl.XattrAccess && !part.Extended() {
		return 0, syscall.ENODATA
	}
	return give(dest, part.EncodeLinux(n.m.ids.knownUser, n.m.ids.knownGroup))
}

// setACL sets an ACL, or with no bytes removes it. One that has users or groups which this
// machine does not know it cannot change, since the kernel has not seen these: EOPNOTSUPP.
func setACL(ctx context.Context, n *node, attr string, data []byte) syscall.Errno {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	byDefault := attr == posixacl.XattrDefault
	if e := n.settleNode(ctx); e != 0 {
		return e
	}
	list, err := n.m.fs.XattrsInode(n.ino).ACL(ctx)
	if err != nil {
		return aclErrno(err)
	}
	old := list.Part(byDefault)
	if slices.ContainsFunc(old, func(e client.ACLEntry) bool {
		_, user := n.m.ids.knownUser(e.Name)
		_, group := n.m.ids.knownGroup(e.Name)
		return e.Tag == client.ACLUser && !user || e.Tag == client.ACLGroup && !group
	}) {
		return syscall.EOPNOTSUPP
	}
	given, err := posixacl.DecodeLinux(data, n.m.ids.userName, n.m.ids.nameOfGroup)
	if err != nil {
		return syscall.EINVAL
	}
	change := client.ACLChange{Action: client.ACLExact, Entries: given}
	switch {
	case byDefault && len(given) == 0:
		change.Action = client.ACLRemoveDefault
	case byDefault:
		change.Entries = given.AsDefault()
	case len(given) == 0:
		change.Entries = posixacl.FromMode(list.Mode())
	}
	err = n.m.fs.XattrsInode(n.ino).ChangeACL(ctx, change)
	n.m.kernel.changes(ctx, n.ino, threadOf(raw))
	return aclErrno(err)
}

// aclErrno is inodeErrno for an ACL, with what Linux says of a default ACL of a file.
func aclErrno(err error) syscall.Errno {
	if errors.Is(err, fserror.Unsupported) {
		return syscall.EOPNOTSUPP
	}
	return inodeErrno(err)
}

// knownUser and knownGroup are the numbers of names that this machine knows.
func (c *ids) knownUser(name string) (uint32, bool) {
	id := c.uidOf(name)
	return id, id != c.noUser
}

func (c *ids) knownGroup(name string) (uint32, bool) {
	id := c.gidOf(name)
	return id, id != c.noGroup
}
