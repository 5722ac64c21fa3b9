package client

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// lowLevel are the lowlevel.Calls of an FS; what they do is said there.
type lowLevel struct{ *FS }

func init() { door.Calls = func(fs any) any { return lowLevel{fs.(*FS)} } }

func (f lowLevel) LstatKept(ctx context.Context, r door.Ref) (i *FileInfo, kept bool, err error) {
	const op = "stat"
	if r, err = cleanRef(op, r); err != nil {
		return nil, false, err
	}
	attr, _, kept, err := f.keptStat(ctx, op, stat(asOf(ctx), r))
	if err != nil {
		return nil, kept, err
	}
	return fileInfo(r.Path, attr), kept, nil
}

func (f lowLevel) ListAt(ctx context.Context, dir door.Ref, after string, limit int) (entries []*FileInfo, more bool, err error) {
	return f.list(ctx, dir, after, limit)
}

func (f lowLevel) CacheRemaining() time.Duration {
	if f.cache == nil {
		return 0
	}
	return f.cache.Remaining()
}

func (f lowLevel) Locate(ctx context.Context, at door.Ref) (_ *FileInfo, err error) {
	if at.Base == 0 {
		if at.Path, err = clean("stat", at.Path); err != nil {
			return nil, err
		}
	}
	resp := new(pb.StatResponse)
	req := &pb.StatRequest{Caller: f.by(ctx), At: follow(ctx, at), Where: true}
	if err := f.nn.Do(ctx, &namecall.Call{Op: "stat", Path: at.Path}, pb.Namenode_Stat_FullMethodName, req, resp); err != nil {
		return nil, err
	}
	i := fileInfo(resp.GetPath(), resp.GetAttr())
	i.TxID = resp.GetTxid()
	return i, nil
}

func (f lowLevel) OpenInode(ctx context.Context, inode uint64, path string) (r *Reader, kept bool, err error) {
	r = newReader(ctx, f.engine, path, inode)
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

func (f lowLevel) AttachInode(ctx context.Context, inode uint64, id LeaseID) error {
	if id == 0 {
		return f.detach(ctx, "", pb.Inode(inode))
	}
	return f.attach(ctx, id, "", pb.Inode(inode))
}

func (f lowLevel) Ask(ctx context.Context, op, path, method string, req func(*pb.CallId, *pb.Caller) any, resp any) error {
	id := f.ids.Next()
	defer f.ids.Retire(id)
	_, mutates := resp.(*pb.MutateResponse)
	return f.nn.Do(ctx, &namecall.Call{Op: op, Path: path, Mutates: mutates}, method, req(id, f.by(ctx)), resp)
}

func (f lowLevel) CloseOrKeep(ctx context.Context, w *Writer) error { return w.close(ctx, true) }

func (f lowLevel) ScratchLease(ctx context.Context) (LeaseID, error) { return f.scratch.lease(ctx) }

func (f lowLevel) Described(path string, a *pb.Attr) *FileInfo { return fileInfo(path, a) }

func (f lowLevel) XattrsInode(inode uint64) *Xattrs { return &Xattrs{fs: f.engine, inode: inode} }

func (f lowLevel) CreateAt(ctx context.Context, r door.Ref, path string, opts ...OpenOption) (*Writer, error) {
	w, _, err := f.create(ctx, r, path, opts)
	return w, err
}

func (f lowLevel) CreateSeen(ctx context.Context, path string, opts ...OpenOption) (*Writer, *FileInfo, error) {
	opts = append(slices.Clip(opts), func(o *openOptions) { o.describe = true })
	w, attr, err := f.create(ctx, door.At(path), "", opts)
	if err != nil {
		return nil, nil, err
	}
	if attr.GetUser() != "" {
		return w, fileInfo(w.path, attr), nil
	}
	i, _, err := f.LstatKept(ctx, door.Inode(w.Inode())) // it has another name already
	if err != nil {
		return nil, nil, errors.Join(err, w.AbortContext(context.WithoutCancel(ctx)))
	}
	return w, i, nil
}

func (f lowLevel) CreateClosed(ctx context.Context, r door.Ref, opts ...OpenOption) (inode uint64, err error) {
	_, resp, err := f.createCall(ctx, r, opts, true)
	return resp.GetAttr().GetInode(), err
}

func (f lowLevel) MkdirFor(ctx context.Context, r door.Ref, mode, umask fs.FileMode, owner Owner) (inode uint64, err error) {
	return f.mkdir(ctx, r, &pb.MkdirRequest{Mode: filemode.Unix(mode), Less: filemode.Unix(umask), Owner: owner.wire()})
}

func (f lowLevel) SymlinkFor(ctx context.Context, target string, r door.Ref, owner Owner) error {
	return f.symlink(ctx, r, &pb.SymlinkRequest{Target: target, Owner: owner.wire()})
}

func (f lowLevel) AppendInode(ctx context.Context, inode uint64, path string, resume bool, opts ...OpenOption) (*Writer, error) {
	o := gather(opts)
	o.inode, o.resume = inode, resume
	return f.append(ctx, path, &o)
}

func (f lowLevel) RecoverOpening(ctx context.Context, inode, epoch uint64, path string) (RecoverResult, error) {
	return f.recoverEpoch(ctx, path, pb.Inode(inode), true, epoch)
}

func (f lowLevel) TruncateInode(ctx context.Context, inode uint64, path string, length int64) error {
	return f.truncate(ctx, path, pb.Inode(inode), length)
}

func (f lowLevel) SetAttrInode(ctx context.Context, inode uint64, path string, c AttrChange) error {
	return f.changeAttr(ctx, path, pb.Inode(inode), c)
}

func (f lowLevel) RenameAt(ctx context.Context, from, to door.Ref, overwrite bool, old door.Taken) (hidden bool, err error) {
	return f.rename(ctx, from, to, old.Inode, &pb.RenameRequest{Overwrite: overwrite, Hide: hide(old)})
}

func (f lowLevel) RemoveTaken(ctx context.Context, r door.Ref, old door.Taken) (hidden bool, err error) {
	return f.remove(ctx, r, old.Inode, &pb.DeleteRequest{Only: pb.FileType_FILE_TYPE_FILE, Hide: hide(old), KeptAs: old.Was, SkipTrash: old.Scrap})
}

func hide(old door.Taken) *pb.Hide {
	if old.Hidden == "" {
		return nil
	}
	return &pb.Hide{Inode: old.Inode, Name: old.Hidden, Lease: old.Lease}
}

func (f lowLevel) RemoveDir(ctx context.Context, r door.Ref) error {
	_, err := f.remove(ctx, r, 0, &pb.DeleteRequest{Only: pb.FileType_FILE_TYPE_DIRECTORY})
	return err
}

func (f lowLevel) RemoveTree(ctx context.Context, path string) error {
	_, err := f.remove(ctx, door.At(path), 0, &pb.DeleteRequest{Recursive: true})
	return err
}

func (f lowLevel) Vouch() { f.session.Vouch() }

// RefreshKept is Refresh that also tells whether what it saw is kept.
func (r *Reader) RefreshKept(ctx context.Context) (kept bool, err error) {
	resp, at, kept, err := r.fs.keptFile(ctx, "open", r.path, readKey{readFile, door.Inode(r.inode), asOf(ctx)})
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
