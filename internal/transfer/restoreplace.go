package transfer

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// at is what has a path now, by the inode of the directory in which it is: whoever may move directories
// leads to no other one. NotFound; Exists if another directory is in the place of one of the snapshot.
func (r *restorer) at(ctx context.Context, p string) (lowlevel.Ref, error) {
	if p == "" {
		return lowlevel.Inode(r.dirs[""]), nil
	}
	dir := above(p)
	r.mu.Lock()
	inode := r.dirs[dir]
	r.mu.Unlock()
	if inode == 0 {
		is, err := r.look(ctx, dir)
		if err != nil {
			return lowlevel.Ref{}, err
		}
		if is == nil {
			return lowlevel.Ref{}, fserror.New(fserror.NotFound, opRestore, r.live(dir), "there is no such directory")
		}
		i, err := r.snapshot(ctx, dir)
		if err != nil {
			return lowlevel.Ref{}, err
		}
		if !is.IsDir() || !r.takes(dir, i, is) {
			return lowlevel.Ref{}, r.inWay(dir, i, is)
		}
		inode = is.Inode
	}
	return lowlevel.Ref{Base: inode, Path: path.Base(p)}, nil
}

// takes reports whether a directory that is there is the snapshot's, or may take its place, and notes it.
// One of another owner may have been moved there, for it to get the rights that the snapshot gives.
func (r *restorer) takes(p string, i, is *client.FileInfo) bool {
	if _, live := snapshots.Split(i.Inode); is.Inode != live && is.User != i.User {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dirs[p] == 0 {
		r.dirs[p] = is.Inode
	}
	return r.dirs[p] == is.Inode
}

// look returns what is at a path now, nil if nothing.
func (r *restorer) look(ctx context.Context, p string) (*client.FileInfo, error) {
	if r.o.DryRun && r.new[above(p)] {
		return nil, nil
	}
	at, err := r.at(ctx, p)
	if err != nil {
		return nil, err
	}
	is, _, err := r.fs.LstatKept(ctx, at)
	if errors.Is(err, fserror.NotFound) && !lowlevel.IsGone(err) {
		return nil, nil
	}
	return is, fserror.With(err, opRestore, r.live(p))
}

// ref is what is at a path, for a change that has to find an inode there, if that is not 0.
func (r *restorer) ref(ctx context.Context, p string, expect uint64) (*pb.Ref, error) {
	at, err := r.at(ctx, p)
	return &pb.Ref{Base: at.Base, Path: at.Path, How: uint32(pb.RefHow_REF_HOW_NO_LINKS), Expect: expect}, err
}

// remove removes what is at a path with all below it, if it is that inode still.
func (r *restorer) remove(ctx context.Context, p string, inode uint64) error {
	at, err := r.ref(ctx, p, inode)
	if err != nil {
		return err
	}
	return r.removeAt(ctx, p, at)
}

func (r *restorer) removeAt(ctx context.Context, p string, at *pb.Ref) error {
	err := r.fs.Ask(ctx, "remove", r.live(p), pb.Namenode_Delete_FullMethodName, func(id *pb.CallId, c *pb.Caller) any {
		return &pb.DeleteRequest{Call: id, Caller: c, At: at, Recursive: true, SkipTrash: at.GetPath() != path.Base(p)}
	}, new(pb.MutateResponse))
	if errors.Is(err, fserror.NotFound) {
		return nil
	}
	return err
}

// publish gives what put made under a temporary name, and in its place, its own name.
func (r *restorer) publish(ctx context.Context, p string, put func(temp lowlevel.Ref) (inode uint64, err error)) error {
	to, err := r.ref(ctx, p, 0)
	if err != nil {
		return err
	}
	temp := lowlevel.Ref{Base: to.GetBase(), Path: fspath.TempName(to.GetPath())}
	inode, err := put(temp)
	from := &pb.Ref{Base: temp.Base, Path: temp.Path, Expect: inode}
	if err == nil {
		err = r.fs.Ask(ctx, "rename", r.live(p), pb.Namenode_Rename_FullMethodName, func(id *pb.CallId, c *pb.Caller) any {
			return &pb.RenameRequest{Call: id, Caller: c, From: from, To: to, Overwrite: true, Detach: true, Unheld: true}
		}, new(pb.MutateResponse))
	}
	if err != nil && inode != 0 {
		late, cancel := lingering(ctx, stopGrace)
		defer cancel()
		_ = r.removeAt(late, p, from) // else the lease's end deletes it
	}
	return err
}

// above is the directory in which something is.
func above(p string) string { return p[:max(strings.LastIndexByte(p, '/'), 0)] }

// relative is the path of something in the snapshot, below its directory.
func (r *restorer) relative(i *client.FileInfo) string {
	return strings.TrimPrefix(strings.TrimPrefix(i.Path, r.old("")), "/")
}
