package client

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// listPage is how many entries a call of ReadDir and Entries asks for.
const listPage = 5000

// List lists up to limit entries of a directory (0: 1,000; at most 10,000)
// whose names are greater than after, in the order of names. more tells
// whether there are others; the last name is the next after, so that changes
// in between do not upset it. NotFound, NotDirectory.
func (f *FS) List(ctx context.Context, path, after string, limit int) (entries []*FileInfo, more bool, err error) {
	return f.list(ctx, door.At(path), after, limit)
}

func (f *engine) list(ctx context.Context, r door.Ref, after string, limit int) (entries []*FileInfo, more bool, err error) {
	if r, err = cleanRef("list", r); err != nil {
		return nil, false, err
	}
	req := &pb.ListRequest{Caller: f.by(ctx), At: follow(ctx, r), After: after, Limit: int32(min(max(limit, 0), 10_000)), Cache: f.cache != nil}
	ticket := f.beginRead()
	resp := new(pb.ListResponse)
	if err := f.nn.Do(ctx, &namecall.Call{Op: "list", Path: r.Path}, pb.Namenode_List_FullMethodName, req, resp); err != nil {
		return nil, false, err
	}
	entries = make([]*FileInfo, len(resp.GetEntries()))
	for i, e := range resp.GetEntries() {
		at := door.Ref{Base: r.Base, Path: e.GetName()}
		if r.Base == 0 {
			at.Path = fspath.Join(r.Path, at.Path)
		}
		entries[i] = fileInfo(at.Path, e.GetAttr())
		entries[i].TxID = resp.GetTxid()
		if e.GetKeep() && len(resp.GetKeys()) > 0 {
			f.keepStat(ticket, stat(asOf(ctx), at), e.GetAttr(), entryKeys(resp, e))
		}
	}
	return entries, resp.GetMore() && len(entries) > 0, nil
}

// entryKeys is what an entry of a listing depends on.
func entryKeys(r *pb.ListResponse, e *pb.Entry) []*pb.CacheKey {
	keys := append(slices.Clip(r.GetKeys()),
		&pb.CacheKey{Kind: keyName, Inode: r.GetDirectory().GetInode(), Name: e.GetName()},
		&pb.CacheKey{Kind: keyAttr, Inode: e.GetAttr().GetInode()})
	if id := e.GetAttr().GetLease(); id != 0 {
		keys = append(keys, &pb.CacheKey{Kind: keyLease, Inode: id})
	}
	if e.GetAttr().GetType() == pb.FileType_FILE_TYPE_DIRECTORY {
		keys = append(keys, &pb.CacheKey{Kind: keyEntries, Inode: e.GetAttr().GetInode()})
	}
	return keys
}

// ReadDir lists a whole directory in the order of names. A very large one is
// better read with Entries.
func (f *FS) ReadDir(ctx context.Context, path string) ([]*FileInfo, error) {
	var all []*FileInfo
	for i, err := range f.Entries(ctx, path) {
		if err != nil {
			return all, err
		}
		all = append(all, i)
	}
	return all, nil
}

// Entries yields the entries of a directory in the order of names, asking for
// a page at a time. It ends after the first error.
func (f *FS) Entries(ctx context.Context, path string) iter.Seq2[*FileInfo, error] {
	return func(yield func(*FileInfo, error) bool) {
		after := ""
		for {
			entries, more, err := f.List(ctx, path, after, listPage)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if !more {
				return
			}
			after = entries[len(entries)-1].Name()
		}
	}
}

// Find yields everything below a path that matches, the path itself included,
// as of one moment; FileInfo.Path is the full path. It ends after the first
// error; one in the middle (Unavailable) means that the rest is missing.
func (f *FS) Find(ctx context.Context, path string, opts FindOptions) iter.Seq2[*FileInfo, error] {
	return func(yield func(*FileInfo, error) bool) {
		path, err := clean("find", path)
		if err != nil {
			yield(nil, err)
			return
		}
		req := &pb.FindRequest{Caller: f.by(ctx), At: followPath(ctx, path), OpenOnly: opts.OpenOnly, Holder: opts.Holder}
		err = namecall.Receive(ctx, f.nn, "find", path, func(ctx context.Context, c grpc.ClientConnInterface) (grpc.ServerStreamingClient[pb.FindResponse], error) {
			return pb.NewNamenodeClient(c).Find(ctx, req)
		}, func(m *pb.FindResponse) (bool, error) {
			for _, e := range m.GetEntries() {
				i := fileInfo(e.GetPath(), e.GetAttr())
				i.TxID = m.GetTxid()
				if !yield(i, nil) {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// Summary counts what is below a path, the path itself included. It takes
// about a microsecond an inode. NotFound.
func (f *FS) Summary(ctx context.Context, path string) (Summary, error) {
	path, err := clean("summary", path)
	if err != nil {
		return Summary{}, err
	}
	r := new(pb.SummaryResponse)
	c := namecall.Call{Op: "summary", Path: path, Wait: namecall.NoLimit}
	if err := f.nn.Do(ctx, &c, pb.Namenode_Summary_FullMethodName, &pb.SummaryRequest{Caller: f.by(ctx), At: followPath(ctx, path)}, r); err != nil {
		return Summary{}, err
	}
	return Summary{
		Files: r.GetFiles(), Directories: r.GetDirectories(), Symlinks: r.GetSymlinks(), OpenFiles: r.GetOpenFiles(),
		Length: r.GetLength(), Stored: r.GetStored(), SnapshotBytes: r.GetSnapshotBytes(), TrashBytes: r.GetTrashBytes(),
	}, nil
}
