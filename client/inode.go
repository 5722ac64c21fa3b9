package client

import (
	"context"
	"io/fs"
	"math"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// This file has what a mount needs beyond a program: files by number, answers
// together with whether they are kept, and openings told in full.

// LstatKept is Lstat that also tells whether the answer, that there is nothing
// of that name included, is kept: then it is good for CacheRemaining, or until
// OnRevoke says otherwise.
func (f *FS) LstatKept(ctx context.Context, path string) (i *FileInfo, kept bool, err error) {
	const op = "stat"
	if path, err = clean(op, path); err != nil {
		return nil, false, err
	}
	attr, _, kept, err := f.keptStat(ctx, op, path, readKey{kind: readLstat, path: path})
	if err != nil {
		return nil, kept, err
	}
	return fileInfo(path, attr), kept, nil
}

// StatInode is LstatKept for an inode, wherever it is now. The FileInfo has no
// path. NotFound if it is not in the tree any more.
func (f *FS) StatInode(ctx context.Context, inode uint64) (i *FileInfo, kept bool, err error) {
	attr, _, kept, err := f.keptStat(ctx, "stat", "", readKey{kind: readLstat, inode: inode})
	if err != nil {
		return nil, kept, err
	}
	return fileInfo("", attr), kept, nil
}

// OpenInode is Open for a file by number; path is for its errors. kept tells
// whether its view of the file is: as long as it is, Refresh would not change it.
func (f *FS) OpenInode(ctx context.Context, inode uint64, path string) (r *Reader, kept bool, err error) {
	r = newReader(f, path, inode)
	if kept, err = r.RefreshKept(ctx); err != nil {
		r.cancel()
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		r.cancel()
		return nil, false, fserror.New(fserror.Closed, "open", path, "the client is closed")
	}
	f.readers[r] = struct{}{}
	return r, kept, nil
}

// RefreshKept is Refresh that also tells whether what it saw is kept.
func (r *Reader) RefreshKept(ctx context.Context) (kept bool, err error) {
	resp, at, kept, err := r.fs.keptFile(ctx, "open", r.path, readKey{kind: readFile, inode: r.inode})
	if err != nil {
		return false, err
	}
	return kept, r.take(resp, at, 0)
}

// ReadAtContext is ReadAt under a context. With ahead, whole blocks are fetched
// and those after them too, wherever the last read was.
func (r *Reader) ReadAtContext(ctx context.Context, p []byte, off int64, ahead bool) (int, error) {
	if off < 0 {
		return 0, fserror.New(fserror.InvalidArgument, "read", r.path, "negative offset %d", off)
	}
	return r.readAt(ctx, p, off, ahead)
}

// CreateClosed makes an empty file, as Create and Close do, and returns its
// inode. Options as of Create.
func (f *FS) CreateClosed(ctx context.Context, path string, opts ...OpenOption) (inode uint64, err error) {
	if path, err = clean("create", path); err != nil {
		return 0, err
	}
	o := gather(opts)
	req := f.createRequest(f.callerIn(ctx), o.at(ctx, path), &o)
	req.Close = true
	req.Call = f.ids.Begin()
	defer f.ids.End(req.Call)
	resp := new(pb.OpenResponse)
	c := namecall.Call{Op: "create", Path: path, Mutates: true}
	err = f.createCall(ctx, &c, req, resp)
	return resp.GetAttr().GetInode(), err
}

// SetModTime is the modification time that Close will give the file, to the
// millisecond; the zero time: that of Close. It must not be called while the
// Writer is being closed.
func (w *Writer) SetModTime(t time.Time) {
	w.mtime = 0
	if !t.IsZero() {
		w.mtime = t.UnixMilli()
	}
}

// KeepModTime leaves the modification time as it is at Close, unless that has
// bytes to make durable. It must not be called while the Writer is being closed.
func (w *Writer) KeepModTime() { w.mtime = math.MinInt64 }

// AttrChange is what SetAttr changes; what is not set stays.
type AttrChange struct {
	SetMode  bool
	Mode     fs.FileMode // permission bits and sticky bit
	User     string
	Group    string
	SetMTime bool
	MTime    time.Time // the zero time: now, by the namenode's clock
}

// SetAttr changes several attributes at once: of a symbolic link at the end of
// the path, those of the link itself.
func (f *FS) SetAttr(ctx context.Context, path string, c AttrChange) error {
	path, err := clean("setattr", path)
	if err != nil {
		return err
	}
	return f.changeAttr(ctx, path, at(ctx, path), c)
}

// SetAttrInode is SetAttr for an inode, wherever it is; path is for errors.
// NotFound if it is not in the tree any more.
func (f *FS) SetAttrInode(ctx context.Context, inode uint64, path string, c AttrChange) error {
	return f.changeAttr(ctx, path, pb.Inode(inode), c)
}

func (f *FS) changeAttr(ctx context.Context, path string, at *pb.Ref, c AttrChange) error {
	const op = "setattr"
	req := &pb.SetAttrRequest{
		Call: f.ids.Begin(), Caller: f.callerIn(ctx), At: at,
		SetMode: c.SetMode, Mode: modeToWire(c.Mode), User: c.User, Group: c.Group, SetMtime: c.SetMTime,
	}
	if c.SetMTime && !c.MTime.IsZero() {
		req.MtimeUnixMs = c.MTime.UnixMilli()
	}
	return f.mutate(ctx, op, path, pb.Namenode_SetAttr_FullMethodName, req.Call, req)
}

// AppendInode is Append for a file by number, wherever it is; path is for
// errors, and the Writer's. NotFound if it is not in the tree any more.
func (f *FS) AppendInode(ctx context.Context, inode uint64, path string, opts ...OpenOption) (*Writer, error) {
	o := gather(opts)
	o.inode = inode
	return f.append(ctx, path, &o)
}

// TruncateInode is Truncate for a file by number, wherever it is; path is for
// errors.
func (f *FS) TruncateInode(ctx context.Context, inode uint64, path string, length int64) error {
	return f.truncate(ctx, path, pb.Inode(inode), length)
}

// Taken says from what RenameOver and RemoveTaken take a name, and what becomes of it.
type Taken struct {
	Inode  uint64  // NotFound, and no change, if another has the name by then; 0: whatever has it
	Hidden string  // the name that it gets, in the directory where it is; empty: it is deleted
	Lease  LeaseID // with Hidden: the granted lease that it is attached to
}

// RenameOver is Rename with overwrite of what old says, which is hidden in the same
// step if that is wanted; then hidden is true.
func (f *FS) RenameOver(ctx context.Context, from, to string, old Taken) (hidden bool, err error) {
	if from, err = clean("rename", from); err != nil {
		return false, err
	}
	if to, err = clean("rename", to); err != nil {
		return false, err
	}
	id := f.ids.Begin()
	return f.taking(ctx, "rename", from, pb.Namenode_Rename_FullMethodName, id,
		&pb.RenameRequest{Call: id, Caller: f.callerIn(ctx), From: at(ctx, from), To: old.at(ctx, to), Overwrite: true, Hide: old.hide()})
}

// RemoveTaken is RemoveFile of what old says, which is hidden instead if that is
// wanted; then hidden is true. What is another user's is deleted all the same, unless
// a superuser asks.
func (f *FS) RemoveTaken(ctx context.Context, path string, old Taken) (hidden bool, err error) {
	if path, err = clean("remove", path); err != nil {
		return false, err
	}
	id := f.ids.Begin()
	return f.taking(ctx, "remove", path, pb.Namenode_Delete_FullMethodName, id,
		&pb.DeleteRequest{Call: id, Caller: f.callerIn(ctx), At: old.at(ctx, path), Only: pb.FileType_FILE_TYPE_FILE, Hide: old.hide()})
}

// at is the name that is taken.
func (t Taken) at(ctx context.Context, path string) *pb.Ref {
	r := at(ctx, path)
	r.Expect = t.Inode
	return r
}

func (t Taken) hide() *pb.Hide {
	if t.Hidden == "" {
		return nil
	}
	return &pb.Hide{Inode: t.Inode, Name: t.Hidden, Lease: uint64(t.Lease)}
}

func (f *FS) taking(ctx context.Context, op, path, method string, id *pb.CallId, req any) (bool, error) {
	resp, err := f.change(ctx, op, path, method, id, req)
	return resp.GetHidden(), err
}

// RemoveInode is RemoveFile by number, wherever the file is. NotFound if it is not in
// the tree any more.
func (f *FS) RemoveInode(ctx context.Context, inode uint64) error {
	id := f.ids.Begin()
	return f.mutate(ctx, "remove", "", pb.Namenode_Delete_FullMethodName, id,
		&pb.DeleteRequest{Call: id, Caller: f.callerIn(ctx), At: pb.Inode(inode), Only: pb.FileType_FILE_TYPE_FILE})
}

// RemoveFile is Remove of what is no directory: IsDirectory if it is one.
func (f *FS) RemoveFile(ctx context.Context, path string) error {
	_, err := f.RemoveTaken(ctx, path, Taken{})
	return err
}

// RemoveDir is Remove of an empty directory: NotDirectory if it is none.
func (f *FS) RemoveDir(ctx context.Context, path string) error {
	path, err := clean("remove", path)
	if err != nil {
		return err
	}
	id := f.ids.Begin()
	return f.mutate(ctx, "remove", path, pb.Namenode_Delete_FullMethodName, id,
		&pb.DeleteRequest{Call: id, Caller: f.callerIn(ctx), At: at(ctx, path), Only: pb.FileType_FILE_TYPE_DIRECTORY})
}
