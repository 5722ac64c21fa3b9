package lowlevel

import (
	"context"
	"errors"
	"io/fs"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// SetAttrAll changes the attributes of what is at a path, following a symbolic
// link, and of all that is below it, as of one moment, but of symbolic links.
// change says how, of each. What a name led to then is changed, wherever it is,
// and not what takes its place; what is gone is no error.
func (f FS) SetAttrAll(ctx context.Context, path string, change func(*client.FileInfo) client.AttrChange) error {
	return f.changeAll(ctx, path, func(i *client.FileInfo, path string) error {
		return f.SetAttrInode(ctx, i.Inode, path, change(i))
	})
}

// ChangeACLAll is SetAttrAll for ACLs; change returns false to change nothing.
func (f FS) ChangeACLAll(ctx context.Context, path string, change func(*client.FileInfo) (client.ACLChange, bool)) error {
	return f.changeAll(ctx, path, func(i *client.FileInfo, path string) error {
		c, ok := change(i)
		if !ok {
			return nil
		}
		return fserror.With(f.XattrsInode(i.Inode).ChangeACL(ctx, c), "setacl", path)
	})
}

// changeAll changes what is at a path, and all that is below it but symbolic links.
func (f FS) changeAll(ctx context.Context, path string, change func(i *client.FileInfo, path string) error) error {
	top, err := f.Locate(ctx, At(path))
	if err != nil {
		return err
	}
	// It may be what lets the rest be listed.
	if err := change(top, path); err != nil || !top.IsDir() {
		return err
	}
	first := true
	for i, err := range f.Find(client.WithoutLinks(ctx), top.Path, client.FindOptions{}) {
		switch {
		case err != nil:
			return err
		case first && i.Inode != top.Inode:
			return fserror.New(fserror.NotFound, "setattr", path, "another directory took its place; try again")
		case !first && i.Type() != fs.ModeSymlink:
			err = change(i, i.Path)
		}
		if err != nil && !errors.Is(err, fserror.NotFound) {
			return err
		}
		first = false
	}
	return nil
}
