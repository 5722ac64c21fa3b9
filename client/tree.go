package client

import (
	"context"
	"errors"
	"io/fs"
	"time"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Mkdir makes a directory; its parent must exist. Exists, NotFound,
// NotDirectory.
func (f *FS) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	_, err := f.mkdir(ctx, door.At(path), &pb.MkdirRequest{Mode: filemode.Unix(mode)})
	return err
}

// MkdirAll makes a directory and the parents that are missing, all with that
// mode. One that exists is no error.
func (f *FS) MkdirAll(ctx context.Context, path string, mode fs.FileMode) error {
	_, err := f.mkdir(ctx, door.At(path), &pb.MkdirRequest{Mode: filemode.Unix(mode), Parents: true})
	return err
}

// mkdir fills in the call, the caller and the path of req, and sends it.
func (f *engine) mkdir(ctx context.Context, r door.Ref, req *pb.MkdirRequest) (inode uint64, err error) {
	if r, err = cleanRef("mkdir", r); err != nil {
		return 0, err
	}
	req.Call, req.Caller, req.At, req.HasMode = f.ids.Next(), f.by(ctx), at(ctx, r), true
	resp, err := f.change(ctx, "mkdir", r.Path, pb.Namenode_Mkdir_FullMethodName, req.Call, req)
	return resp.GetAttr().GetInode(), err
}

// Rename gives a file or directory another path. With overwrite, a file or an
// empty directory there is replaced; else Exists. Open files continue under their
// new name. InvalidArgument: a directory into itself.
func (f *FS) Rename(ctx context.Context, from, to string, overwrite bool) error {
	_, err := f.rename(ctx, door.At(from), door.At(to), 0, &pb.RenameRequest{Overwrite: overwrite})
	return err
}

// Publish is Rename of a file that also takes it from the granted lease that it
// is attached to, in one: so a file made under a temporary name, to be deleted
// should its maker die, appears whole and stays. NotFound if its lease has
// ended.
func (f *FS) Publish(ctx context.Context, from, to string, overwrite bool) error {
	_, err := f.rename(ctx, door.At(from), door.At(to), 0, &pb.RenameRequest{Overwrite: overwrite, Detach: true})
	return err
}

// rename sends a request that says all but what is renamed, and to what name, which
// has to lead to the inode expect, if that is not 0.
func (f *engine) rename(ctx context.Context, from, to door.Ref, expect uint64, req *pb.RenameRequest) (hidden bool, err error) {
	const op = "rename"
	if to, err = cleanRef(op, to); err != nil {
		return false, err
	}
	if from, err = cleanRef(op, from); err != nil {
		return false, err
	}
	req.Call, req.Caller, req.From, req.To = f.ids.Next(), f.by(ctx), at(ctx, from), at(ctx, to)
	req.To.Expect = expect
	resp, err := f.change(ctx, op, from.Path, pb.Namenode_Rename_FullMethodName, req.Call, req)
	return resp.GetHidden(), err
}

// Remove removes a file, a symbolic link or an empty directory. NotFound,
// NotEmpty. A file's writer, if any, loses its lease.
func (f *FS) Remove(ctx context.Context, path string) error {
	_, err := f.remove(ctx, door.At(path), 0, &pb.DeleteRequest{})
	return err
}

// RemoveAll removes a path with everything below it, at once. One that does
// not exist is no error.
func (f *FS) RemoveAll(ctx context.Context, path string) error {
	_, err := f.remove(ctx, door.At(path), 0, &pb.DeleteRequest{Recursive: true})
	if errors.Is(err, fserror.NotFound) {
		return nil
	}
	return err
}

// remove sends a request that says all but what is removed; expect is as of rename.
func (f *engine) remove(ctx context.Context, r door.Ref, expect uint64, req *pb.DeleteRequest) (hidden bool, err error) {
	if r, err = cleanRef("remove", r); err != nil {
		return false, err
	}
	req.Call, req.Caller, req.At = f.ids.Next(), f.by(ctx), at(ctx, r)
	req.At.Expect = expect
	resp, err := f.change(ctx, "remove", r.Path, pb.Namenode_Delete_FullMethodName, req.Call, req)
	return resp.GetHidden(), err
}

// Symlink makes path a symbolic link to target, which need not exist.
func (f *FS) Symlink(ctx context.Context, target, path string) error {
	return f.symlink(ctx, door.At(path), &pb.SymlinkRequest{Target: target})
}

// symlink fills in the call, the caller and the path of req, and sends it.
func (f *engine) symlink(ctx context.Context, r door.Ref, req *pb.SymlinkRequest) error {
	r, err := cleanRef("symlink", r)
	if err != nil {
		return err
	}
	if !utf8.ValidString(req.Target) {
		return fserror.New(fserror.InvalidArgument, "symlink", r.Path, "the target %q is not valid UTF-8; names here are", req.Target)
	}
	req.Call, req.Caller, req.At = f.ids.Next(), f.by(ctx), at(ctx, r)
	return f.mutate(ctx, "symlink", r.Path, pb.Namenode_Symlink_FullMethodName, req.Call, req)
}

// Readlink returns what a symbolic link points to. InvalidArgument if it is
// none.
func (f *FS) Readlink(ctx context.Context, path string) (string, error) {
	i, err := f.stat(ctx, "readlink", path, false)
	if err != nil {
		return "", err
	}
	if i.Mode()&fs.ModeSymlink == 0 {
		return "", fserror.New(fserror.InvalidArgument, "readlink", i.Path, "it is no symbolic link")
	}
	return i.LinkTarget, nil
}

// Chmod sets the permission bits and the sticky bit.
func (f *FS) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return f.setAttr(ctx, "chmod", path, &pb.SetAttrRequest{SetMode: true, Mode: filemode.Unix(mode)})
}

// Chown sets user and group; an empty one stays.
func (f *FS) Chown(ctx context.Context, path, user, group string) error {
	return f.setAttr(ctx, "chown", path, &pb.SetAttrRequest{User: user, Group: group})
}

// Chtimes sets the modification time, to the millisecond. The zero time means
// now, by the namenode's clock.
func (f *FS) Chtimes(ctx context.Context, path string, mtime time.Time) error {
	req := &pb.SetAttrRequest{SetMtime: true}
	if !mtime.IsZero() {
		req.MtimeUnixMs = mtime.UnixMilli()
	}
	return f.setAttr(ctx, "chtimes", path, req)
}

func (f *engine) setAttr(ctx context.Context, op, path string, req *pb.SetAttrRequest) error {
	path, err := clean(op, path)
	if err != nil {
		return err
	}
	req.Call, req.Caller, req.At = f.ids.Next(), f.by(ctx), followPath(ctx, path)
	return f.mutate(ctx, op, path, pb.Namenode_SetAttr_FullMethodName, req.Call, req)
}

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
	return f.changeAttr(ctx, path, at(ctx, door.At(path)), c)
}

func (f *engine) changeAttr(ctx context.Context, path string, at *pb.Ref, c AttrChange) error {
	const op = "setattr"
	req := &pb.SetAttrRequest{
		Call: f.ids.Next(), Caller: f.by(ctx), At: at,
		SetMode: c.SetMode, Mode: filemode.Unix(c.Mode), User: c.User, Group: c.Group, SetMtime: c.SetMTime,
	}
	if c.SetMTime && !c.MTime.IsZero() {
		req.MtimeUnixMs = c.MTime.UnixMilli()
	}
	return f.mutate(ctx, op, path, pb.Namenode_SetAttr_FullMethodName, req.Call, req)
}

// Truncate cuts a closed file to length bytes, which must not be more than it
// has: InvalidArgument. Held if it is open for write.
func (f *FS) Truncate(ctx context.Context, path string, length int64) error {
	path, err := clean("truncate", path)
	if err != nil {
		return err
	}
	return f.truncate(ctx, path, followPath(ctx, path), length)
}

func (f *engine) truncate(ctx context.Context, path string, at *pb.Ref, length int64) error {
	id := f.ids.Next()
	return f.mutate(ctx, "truncate", path, pb.Namenode_Truncate_FullMethodName, id,
		&pb.TruncateRequest{Call: id, Caller: f.by(ctx), At: at, Length: length})
}

// Concat appends the sources, closed files, to the target in that order, and
// removes them: a change of metadata only.
func (f *FS) Concat(ctx context.Context, target string, sources ...string) error {
	target, err := clean("concat", target)
	if err != nil {
		return err
	}
	list := make([]*pb.Ref, len(sources))
	for i, s := range sources {
		if s, err = clean("concat", s); err != nil {
			return err
		}
		list[i] = at(ctx, door.At(s))
	}
	id := f.ids.Next()
	return f.mutate(ctx, "concat", target, pb.Namenode_Concat_FullMethodName, id,
		&pb.ConcatRequest{Call: id, Caller: f.by(ctx), Target: followPath(ctx, target), Sources: list})
}

// Stat describes what is at a path, following a symbolic link at its end.
// NotFound, Loop.
func (f *FS) Stat(ctx context.Context, path string) (*FileInfo, error) {
	return f.stat(ctx, "stat", path, true)
}

// Lstat is Stat for a symbolic link itself.
func (f *FS) Lstat(ctx context.Context, path string) (*FileInfo, error) {
	return f.stat(ctx, "stat", path, false)
}

func (f *engine) stat(ctx context.Context, op, path string, follow bool) (*FileInfo, error) {
	path, err := clean(op, path)
	if err != nil {
		return nil, err
	}
	k := readKey{readName, door.At(path), asOf(ctx)}
	if follow {
		k.kind = readFollowed
	}
	attr, txid, _, err := f.keptStat(ctx, op, k)
	if err != nil {
		return nil, err
	}
	i := fileInfo(path, attr)
	i.TxID = txid
	return i, nil
}

// change sends one changing call, which happens at most once.
func (f *engine) change(ctx context.Context, op, path, method string, id *pb.CallId, req any) (*pb.MutateResponse, error) {
	defer f.ids.Retire(id)
	resp := new(pb.MutateResponse)
	return resp, f.nn.Do(ctx, &namecall.Call{Op: op, Path: path, Mutates: true}, method, req, resp)
}

func (f *engine) mutate(ctx context.Context, op, path, method string, id *pb.CallId, req any) error {
	_, err := f.change(ctx, op, path, method, id, req)
	return err
}
