package hadoop

import (
	"context"

	"github.com/leasefs/leasefs/client"
)

// ACL returns the entries of a file's ACLs that its permission does not say: of the access
// ACL not the owner, the mask and others.
func (f FS) ACL(ctx context.Context, i *client.FileInfo) (entries client.ACL, err error) {
	if !i.HasACL && !i.HasDefault {
		return nil, nil
	}
	list, err := f.XattrsInode(i.Inode).ACL(ctx)
	if err != nil {
		return nil, err
	}
	extended := list.Part(false).Extended()
	for _, e := range list {
		if e.Default || extended && (e.Tag == client.ACLUser || e.Tag == client.ACLOwningGroup || e.Tag == client.ACLGroup) {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// ChangeACL changes the ACLs of a file; a change that makes no sense is Hadoop's AclException.
func (f FS) ChangeACL(ctx context.Context, path string, c client.ACLChange) error {
	err := f.Xattrs(path).ChangeACL(ctx, c)
	if client.KindOf(err) == client.ErrInvalidArgument {
		return Named(ACL, err)
	}
	return err
}
