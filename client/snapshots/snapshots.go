// Package snapshots makes snapshots of directories, lists them, and tells what was changed since.
//
// A snapshot is a directory, with all that is below it, as it was at one moment. It costs nothing to
// make, whatever there is below, and is read, not written, at DIR/.snapshot/NAME, by the permissions
// that held then. A superuser has to allow a directory to have some; its owner makes, renames and
// deletes them. While a directory has some, it cannot be deleted.
package snapshots

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Dir is the name below which a directory shows its snapshots. Its listing leaves it out.
const Dir = ".snapshot"

// Path is where a snapshot of a directory is, or where something is in it: below is relative to the
// directory, and may be empty.
func Path(dir, name, below string) string {
	path := fspath.Join(fspath.Join(dir, Dir), name)
	if below != "" {
		path = fspath.Join(path, below)
	}
	return path
}

// idShift is how many bits of an inode's number are those of the live inode.
const idShift = 44

// Split tells of the number of an inode in which snapshot it is, 0 if in none, and which number it
// has, or had, outside of it.
func Split(inode uint64) (id, live uint64) { return inode >> idShift, inode & (1<<idShift - 1) }

// Inode is the number that an inode has in a snapshot.
func Inode(id, live uint64) uint64 { return id<<idShift | live }

// Snapshot is a snapshot of a directory.
type Snapshot struct {
	ID   uint64 // distinct in a namespace, not in the order in which they were made
	Name string
	Made time.Time        // by the namenode's clock, to the millisecond
	Info *client.FileInfo // of the directory as it was; its path is that of the snapshot
	// Held is how many bytes blocks take that only snapshots have, and of these this one as the newest:
	// to delete it alone frees as many, or fewer if older ones have them, too.
	Held int64
}

// Allow lets a directory have snapshots. That it may have some already is no error. Errors: NotFound,
// NotDirectory, Permission (who is no superuser), Exists (an entry .snapshot), NoSpace (so many are
// allowed that no more can be), ReadOnly (below a snapshot).
func Allow(ctx context.Context, fs *client.FS, dir string) error {
	return allow(ctx, fs, "snapshot allow", dir, true)
}

// Disallow refuses a directory to have snapshots. Errors: as of Allow, and NotEmpty if it has some.
func Disallow(ctx context.Context, fs *client.FS, dir string) error {
	return allow(ctx, fs, "snapshot disallow", dir, false)
}

func allow(ctx context.Context, fs *client.FS, op, dir string, yes bool) error {
	return lowlevel.Of(fs).Ask(ctx, op, dir, pb.Namenode_AllowSnapshots_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.AllowSnapshotsRequest{Call: call, Caller: c, At: pb.Follow(dir), Allow: yes}
	}, new(pb.MutateResponse))
}

// Make makes a snapshot of a directory as it is now, and returns its name: name, or if that is empty
// one that tells the time in UTC, such as s20260728-153059.123. A file that is open for write is in it
// as far as it was flushed. Errors: NotFound, NotDirectory, Unsupported (the directory may have none),
// Exists (the name), Permission (who neither owns the directory nor is a superuser), InvalidPath and
// NameTooLong (the name), NoSpace (a limit, which it names), InvalidArgument (the directory, or one
// above it, is attached to a granted lease), ReadOnly (below a snapshot).
func Make(ctx context.Context, fs *client.FS, dir, name string) (string, error) {
	resp := new(pb.MutateResponse)
	err := lowlevel.Of(fs).Ask(ctx, "snapshot create", dir, pb.Namenode_MakeSnapshot_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.MakeSnapshotRequest{Call: call, Caller: c, At: pb.Follow(dir), Name: name}
	}, resp)
	return resp.GetSnapshot(), err
}

// Rename gives a snapshot another name. Errors: as of Make, and NotFound if there is none of that name.
func Rename(ctx context.Context, fs *client.FS, dir, name, newName string) error {
	return lowlevel.Of(fs).Ask(ctx, "snapshot rename", dir, pb.Namenode_RenameSnapshot_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.RenameSnapshotRequest{Call: call, Caller: c, At: pb.Follow(dir), Name: name, NewName: newName}
	}, new(pb.MutateResponse))
}

// Delete deletes a snapshot: what only it has is freed in the background. Whoever reads in it gets
// NotFound. Errors: as of Rename.
func Delete(ctx context.Context, fs *client.FS, dir, name string) error {
	return lowlevel.Of(fs).Ask(ctx, "snapshot rm", dir, pb.Namenode_DeleteSnapshot_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.DeleteSnapshotRequest{Call: call, Caller: c, At: pb.Follow(dir), Name: name}
	}, new(pb.MutateResponse))
}

// List calls fn for the snapshots of a directory in the order of names, until fn returns an error,
// which it returns. Errors: NotFound, NotDirectory, Unsupported (the directory may have none),
// Permission (who may not read it).
func List(ctx context.Context, fs *client.FS, dir string, fn func(*Snapshot) error) error {
	low, req := lowlevel.Of(fs), &pb.ListSnapshotsRequest{At: pb.Follow(dir)}
	for {
		resp := new(pb.ListSnapshotsResponse)
		err := low.Ask(ctx, "snapshot ls", dir, pb.Namenode_ListSnapshots_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
			req.Caller = c
			return req
		}, resp)
		if err != nil {
			return err
		}
		for _, m := range resp.GetSnapshots() {
			s := &Snapshot{ID: m.GetId(), Name: m.GetName(), Made: time.UnixMilli(m.GetTimeUnixMs()), Info: low.Described(Path(dir, m.GetName(), ""), m.GetAttr()), Held: m.GetHeldBytes()}
			if err := fn(s); err != nil {
				return err
			}
		}
		if req.After = resp.GetNext(); req.After == "" {
			return nil
		}
	}
}

// DirInfo is a directory that may have snapshots.
type DirInfo struct {
	*client.FileInfo
	Snapshots int   // how many it has
	Held      int64 // the sum of theirs
}

// Dirs calls fn for the directories that may have snapshots and that the caller owns (of a superuser:
// all), those made first first, until fn returns an error, which it returns.
func Dirs(ctx context.Context, fs *client.FS, fn func(DirInfo) error) error {
	low, req := lowlevel.Of(fs), new(pb.ListSnapshotDirsRequest)
	for {
		resp := new(pb.ListSnapshotDirsResponse)
		err := low.Ask(ctx, "snapshot ls", "", pb.Namenode_ListSnapshotDirs_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
			req.Caller = c
			return req
		}, resp)
		if err != nil {
			return err
		}
		for _, m := range resp.GetDirs() {
			if err := fn(DirInfo{low.Described(m.GetPath(), m.GetAttr()), int(m.GetSnapshots()), m.GetHeldBytes()}); err != nil { //nolint:gosec // a count
				return err
			}
		}
		if req.From = resp.GetNext(); req.From == 0 {
			return nil
		}
	}
}
