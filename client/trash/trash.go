// Package trash shows what was deleted and can be restored, restores it, and removes it for
// good.
//
// What is deleted or replaced comes into the trash if its directory says so, or the nearest
// above that says anything, by the extended attribute Xattr. Who deleted something sees it in the
// trash, who owned it does, and superusers.
package trash

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Xattr is the extended attribute of a directory that says for how long what is deleted below
// it is kept, such as 7d, 12h, 30m or 90s, at most 365d; or off. Its owner may set it.
const Xattr = "user.leasefs.trash"

// maxPage is how many entries a call is about at most.
const maxPage = 1000

// Entry is what was deleted, with all that was below it.
type Entry struct {
	ID      uint64 // the inode
	Path    string // that it had
	User    string // who deleted it
	Owner   string // whose it is
	IsDir   bool
	Length  int64         // bytes, of a directory those of all files below it; -1: they are not counted yet
	Deleted time.Time     // by the namenode's clock, to the millisecond
	Left    time.Duration // for how long it is still kept, if room does not get short
	Kept    time.Duration // for how long it has been kept, by the namenode's clocks; -1: a namenode of an earlier release does not say
}

// Filter says what List tells of.
type Filter struct {
	Below string // only what had that path, or was below it; empty: all
	All   bool   // of all users, which only a superuser may ask for; else what the caller deleted or owned
}

// List calls fn for the entries, the newest first, or of all users by ID, until fn returns an
// error, which it returns. Permission: of all users.
func List(ctx context.Context, fs *client.FS, f Filter, fn func(*Entry) error) error {
	req := &pb.ListTrashRequest{All: f.All, Below: f.Below}
	for {
		resp := new(pb.ListTrashResponse)
		err := lowlevel.Of(fs).Ask(ctx, "trash ls", f.Below, pb.Namenode_ListTrash_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
			req.Caller = c
			return req
		}, resp)
		if err != nil {
			return err
		}
		for _, m := range resp.GetEntries() {
			a := m.GetAttr()
			e := &Entry{
				ID: m.GetInode(), Path: m.GetPath(), User: m.GetUser(), Owner: a.GetUser(), IsDir: a.GetType() == pb.FileType_FILE_TYPE_DIRECTORY,
				Length: a.GetLength(), Deleted: time.UnixMilli(m.GetTimeUnixMs()), Left: time.Duration(m.GetLeftMs()) * time.Millisecond, Kept: -1,
			}
			if m.KeptMs != nil {
				e.Kept = time.Duration(m.GetKeptMs()) * time.Millisecond
			}
			if err := fn(e); err != nil {
				return err
			}
		}
		if req.Cursor = resp.GetNextCursor(); req.Cursor == "" {
			return nil
		}
	}
}

// Restore gives an entry a path, at which nothing may be. Errors: NotFound (the entry, or the
// directory), Exists, Permission, NotDirectory, NameTooLong (also of what is below it).
func Restore(ctx context.Context, fs *client.FS, id uint64, path string) error {
	return lowlevel.Of(fs).Ask(ctx, "restore", path, pb.Namenode_RestoreTrash_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.RestoreTrashRequest{Call: call, Caller: c, Inode: id, To: pb.At(path)}
	}, new(pb.MutateResponse))
}

// Empty removes entries for good, and returns how many. What is not there any more is no error, nor
// is what the caller may only restore beside what he may remove. Permission: nothing was removed,
// and there is something that he may only restore.
func Empty(ctx context.Context, fs *client.FS, ids ...uint64) (removed int, err error) {
	var refused error
	for len(ids) > 0 {
		n := min(len(ids), maxPage)
		resp := new(pb.MutateResponse)
		err := lowlevel.Of(fs).Ask(ctx, "trash empty", "", pb.Namenode_EmptyTrash_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
			return &pb.EmptyTrashRequest{Call: call, Caller: c, Inodes: ids[:n]}
		}, resp)
		switch fserror.KindOf(err) {
		case fserror.Permission:
			refused = err
		case fserror.NotFound:
		default:
			if err != nil {
				return removed, err
			}
		}
		removed += int(resp.GetAttr().GetLength())
		ids = ids[n:]
	}
	if removed > 0 {
		refused = nil
	}
	return removed, refused
}

// Remove removes a file or a symbolic link, or if recursive also a directory with all that is in
// it, and tells whether the trash has it now; with skip it is removed for good. Errors: as of
// client.FS.Remove, and IsDirectory.
func Remove(ctx context.Context, fs *client.FS, path string, recursive, skip bool) (trashed bool, err error) {
	only := pb.FileType_FILE_TYPE_UNSPECIFIED
	if !recursive {
		only = pb.FileType_FILE_TYPE_FILE
	}
	resp := new(pb.MutateResponse)
	err = lowlevel.Of(fs).Ask(ctx, "remove", path, pb.Namenode_Delete_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.DeleteRequest{Call: call, Caller: c, At: pb.At(path), Recursive: recursive, Only: only, SkipTrash: skip}
	}, resp)
	return resp.GetTrashed(), err
}
