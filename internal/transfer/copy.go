package transfer

import (
	"context"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// Copy copies a file within the namespace, with its permission bits and its ACL: into to, if
// that is a directory, else to that path. It is there whole or not at all. One
// that is open for write is copied as far as it was flushed. IsDirectory, and
// errors as of client.FS.WriteFrom.
func Copy(ctx context.Context, fsys *client.FS, from, to string, overwrite bool) error {
	const op = "cp"
	low := lowlevel.Of(fsys)
	info, err := fsys.Stat(ctx, from)
	if err != nil {
		return fserror.With(err, op, from)
	}
	if info.IsDir() {
		return fserror.New(fserror.IsDirectory, op, from, "is a directory").Because(fserror.ReasonTree)
	}
	there, err := low.Locate(ctx, lowlevel.At(to))
	if err == nil && there.IsDir() {
		_, name := fspath.Split(from)
		to, ctx = fspath.Join(there.Path, name), client.WithoutLinks(ctx)
		there, err = low.Lstat(ctx, to)
	}
	switch {
	case err == nil && there.Inode == info.Inode:
		return fserror.New(fserror.InvalidArgument, op, from, "%s is the same file; name another path", to)
	case err != nil && fserror.KindOf(err) != fserror.NotFound:
		return fserror.With(err, op, to)
	}
	r, _, err := low.OpenInode(ctx, info.Inode, from)
	if err != nil {
		return fserror.With(err, op, from)
	}
	defer func() { _ = r.Close() }() // only read
	opts := []client.OpenOption{client.WithMode(info.Mode() & filemode.Changeable)}
	if info.HasACL {
		list, err := low.XattrsInode(info.Inode).ACL(ctx)
		if err != nil {
			return fserror.With(err, op, from)
		}
		opts = append(opts, client.WithACL(list))
	}
	if overwrite {
		opts = append(opts, client.WithOverwrite())
	}
	return While(ctx, r, func() error {
		_, err := fsys.WriteFrom(ctx, to, r, opts...)
		return err
	})
}
