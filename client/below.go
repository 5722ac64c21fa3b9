package client

import (
	"context"
	"errors"
	"io/fs"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// SetAttrAll changes the attributes of what is at a path, following a symbolic
// link, and of all that is below it, as of one moment, but of symbolic links.
// change says how, of each. What a name led to then is changed, wherever it is,
// and not what takes its place; what is gone is no error.
func (f *FS) SetAttrAll(ctx context.Context, path string, change func(*FileInfo) AttrChange) error {
	top, err := f.Locate(ctx, path)
	if err != nil {
		return err
	}
	// It may be what lets the rest be listed.
	if err := f.SetAttrInode(ctx, top.Inode, path, change(top)); err != nil || !top.IsDir() {
		return err
	}
	first := true
	for i, err := range f.Find(WithoutLinks(ctx), top.Path, FindOptions{}) {
		switch {
		case err != nil:
			return err
		case first && i.Inode != top.Inode:
			return fserror.New(fserror.NotFound, "setattr", path, "another directory took its place; try again")
		case !first && i.Type() != fs.ModeSymlink:
			err = f.SetAttrInode(ctx, i.Inode, i.Path, change(i))
		}
		if err != nil && !errors.Is(err, fserror.NotFound) {
			return err
		}
		first = false
	}
	return nil
}

// RenameInto is Rename into the directory of that inode, wherever it is, under
// the name that the file or directory has. NotDirectory, NotFound.
func (f *FS) RenameInto(ctx context.Context, from string, dir uint64, overwrite bool) error {
	from, err := clean("rename", from)
	if err != nil {
		return err
	}
	_, name := fspath.Split(from)
	id := f.ids.Begin()
	return f.mutate(ctx, "rename", from, pb.Namenode_Rename_FullMethodName, id,
		&pb.RenameRequest{Call: id, Caller: f.callerIn(ctx), From: at(ctx, from), To: &pb.Ref{Base: dir, Path: name}, Overwrite: overwrite})
}

// RemoveTree is RemoveAll of what has to exist: else NotFound.
func (f *FS) RemoveTree(ctx context.Context, path string) error { return f.remove(ctx, path, true) }
