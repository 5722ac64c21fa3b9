package namenode

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	defaultBlocks = 256
	maxBlocks     = 1000
	defaultList   = 1000
	maxList       = 10_000
	maxListBytes  = 2 << 20 // of names and attributes in one answer
	findPage      = 500
	maxWait       = 10 * time.Minute
)

// Stat answers a path's attributes.
func (s *service) Stat(ctx context.Context, r *pb.StatRequest) (*pb.StatResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	var a namespace.Attr
	err = s.read(ctx, c, func() (err error) {
		a, err = s.tree.Stat(c, r.GetPath(), r.GetFollow())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &pb.StatResponse{Attr: s.attr(a)}, nil
}

// List answers a page of a directory.
func (s *service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	limit := clampLimit(r.GetLimit(), defaultList, maxList)
	var dir namespace.Attr
	var entries []namespace.Attr
	var more bool
	err = s.read(ctx, c, func() (err error) {
		dir, entries, more, err = s.tree.List(c, r.GetPath(), r.GetAfter(), limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := &pb.ListResponse{Directory: s.attr(dir), More: more, Entries: make([]*pb.Entry, 0, len(entries))}
	size := 0
	for _, a := range entries {
		if size += len(a.Name) + len(a.LinkTarget) + len(a.User) + len(a.Group) + 80; size > maxListBytes && len(resp.Entries) > 0 {
			resp.More = true
			break
		}
		resp.Entries = append(resp.Entries, &pb.Entry{Name: a.Name, Attr: s.attr(a)})
	}
	return resp, nil
}

func clampLimit(n int32, def, most int) int {
	switch {
	case n <= 0:
		return def
	case int(n) > most:
		return most
	}
	return int(n)
}

// GetFile answers all that a reader needs, as of one moment. With wait_beyond
// it waits until the file is longer or closed.
func (s *service) GetFile(ctx context.Context, r *pb.GetFileRequest) (*pb.GetFileResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	if r.GetOffset() < 0 || r.GetLength() < 0 {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "offset %d or length %d is negative", r.GetOffset(), r.GetLength())
	}
	v, path, err := s.fileView(ctx, c, r)
	if err == nil && r.GetWaitMs() > 0 {
		v, path, err = s.waitBeyond(ctx, c, r, v, path)
	}
	if err != nil {
		return nil, err
	}
	return s.fileResponse(r, v, path)
}

func (s *Server) fileView(ctx context.Context, c *namespace.Call, r *pb.GetFileRequest) (v namespace.FileView, path string, err error) {
	err = s.read(ctx, c, func() (err error) {
		if r.GetInode() == 0 {
			v, err = s.tree.File(c, r.GetPath())
		} else {
			v, err = s.tree.FileInode(c, namespace.InodeID(r.GetInode()))
		}
		if err == nil {
			path, _ = s.tree.Path(v.Attr.ID)
		}
		return err
	})
	return v, path, err
}

// waitBeyond watches first and looks then, so that no change is missed.
func (s *Server) waitBeyond(ctx context.Context, c *namespace.Call, r *pb.GetFileRequest, v namespace.FileView, path string) (namespace.FileView, string, error) {
	over := time.NewTimer(min(time.Duration(r.GetWaitMs())*time.Millisecond, maxWait))
	defer over.Stop()
	byInode := &pb.GetFileRequest{Inode: uint64(v.Attr.ID)}
	for v.Attr.Length <= r.GetWaitBeyond() && v.Attr.Open != nil {
		changed, done := s.waits.watch(v.Attr.ID)
		next, nextPath, err := s.fileView(ctx, c, byInode)
		if err != nil {
			done()
			return v, path, err
		}
		v, path = next, nextPath
		if v.Attr.Length > r.GetWaitBeyond() || v.Attr.Open == nil {
			done()
			break
		}
		select {
		case <-changed:
			done()
		case <-over.C:
			done()
			return v, path, nil
		case <-ctx.Done():
			done()
			return v, path, ctx.Err()
		case <-s.stopping.Done():
			done()
			return v, path, s.checkActive()
		}
	}
	return v, path, nil
}

// fileResponse picks the part that was asked for and signs its URLs.
func (s *Server) fileResponse(r *pb.GetFileRequest, v namespace.FileView, path string) (*pb.GetFileResponse, error) {
	resp := &pb.GetFileResponse{Attr: s.attr(v.Attr), Path: path, UrlsExpireMs: s.cfg.URLLife.Milliseconds()}
	limit := clampLimit(r.GetMaxBlocks(), defaultBlocks, maxBlocks)
	expires := s.cfg.Clock.Wall().Add(s.cfg.URLLife)
	end := v.Attr.Length
	if r.GetLength() > 0 && r.GetOffset()+r.GetLength() > 0 {
		end = min(end, r.GetOffset()+r.GetLength())
	}
	var at int64
	resp.TailOffset = v.Attr.Length - int64(len(v.Tail))
	resp.BlocksOffset = resp.TailOffset
	for i, b := range v.Blocks {
		begin := at
		at += int64(b.Used)
		if at <= r.GetOffset() {
			continue
		}
		if begin >= end {
			return resp, nil // nothing of the tail was asked for
		}
		if len(resp.Blocks) == limit {
			resp.MoreBlocks = true
			return resp, nil
		}
		if len(resp.Blocks) == 0 {
			resp.BlocksOffset = begin
		}
		out := &pb.Block{Term: b.Key.Term, Seq: b.Key.Seq, StoredLength: int64(b.Stored), UsedLength: int64(b.Used), Crc32C: b.CRC}
		if !r.GetNoUrls() {
			signed, err := s.store.SignGet(v.Blocks[i].Key, expires)
			if err != nil {
				return nil, err
			}
			out.Url, out.Headers = signed.URL, flatten(signed.Header)
		}
		resp.Blocks = append(resp.Blocks, out)
	}
	if from := max(r.GetOffset(), resp.TailOffset); from < end {
		resp.Tail = v.Tail[from-resp.TailOffset : end-resp.TailOffset]
		resp.TailCrc32C = crc32.Checksum(resp.Tail, castagnoli)
	}
	return resp, nil
}

// Summary counts what is below a path, of one moment.
func (s *service) Summary(ctx context.Context, r *pb.SummaryRequest) (*pb.SummaryResponse, error) {
	resp := &pb.SummaryResponse{}
	err := s.walk(ctx, r.GetCaller(), r.GetPath(), func(_ string, a namespace.Attr) error {
		switch a.Type {
		case namespace.TypeFile:
			resp.Files++
		case namespace.TypeDir:
			resp.Directories++
		case namespace.TypeSymlink:
			resp.Symlinks++
		}
		if a.Open != nil {
			resp.OpenFiles++
		}
		resp.Length += a.Length
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Stored = resp.Length
	return resp, nil
}

// walk runs fn over everything below a path on a snapshot, without a lock. At
// most a few walks run at once; others wait.
func (s *Server) walk(ctx context.Context, who *pb.Caller, path string, fn func(path string, a namespace.Attr) error) error {
	c, err := s.caller(ctx, who)
	if err != nil {
		return err
	}
	select {
	case s.walkers <- struct{}{}:
		defer func() { <-s.walkers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	root, err := t.Stat(c, path, true)
	if err != nil {
		return err
	}
	n := 0
	return t.Walk(root.ID, func(p string, a namespace.Attr) error {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if a.Type == namespace.TypeDir && !mayList(c, a) {
			return fserror.New(fserror.Permission, "", p, "user %s may not read this directory (mode %o, owner %s:%s)", c.User, a.Mode, a.User, a.Group)
		}
		return fn(p, a)
	})
}

// mayList is the r and x bits of a directory for the caller.
func mayList(c *namespace.Call, a namespace.Attr) bool {
	bits := a.Mode & 7
	switch {
	case c.Super:
		return true
	case a.User == c.User:
		bits = a.Mode >> 6 & 7
	case slices.Contains(c.Groups, a.Group):
		bits = a.Mode >> 3 & 7
	}
	return bits&5 == 5
}

// Find streams everything below a path.
func (s *service) Find(r *pb.FindRequest, stream grpc.ServerStreamingServer[pb.FindResponse]) error {
	var page []*pb.FoundEntry
	send := func() error {
		if len(page) == 0 {
			return nil
		}
		err := stream.Send(&pb.FindResponse{Entries: page})
		page = nil
		return err
	}
	err := s.walk(stream.Context(), r.GetCaller(), r.GetPath(), func(p string, a namespace.Attr) error {
		if (r.GetOpenOnly() || r.GetHolder() != "") && a.Open == nil {
			return nil
		}
		if h := r.GetHolder(); h != "" && a.Open.Holder.Client != h && !strings.EqualFold(hexSession(a.Open.Holder.Session), h) {
			return nil
		}
		page = append(page, &pb.FoundEntry{Path: p, Attr: s.attr(a)})
		if len(page) == findPage {
			return send()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return send()
}

func asHeld(err error) (*fserror.Error, bool) {
	var fe *fserror.Error
	ok := errors.As(err, &fe) && fe.Kind == fserror.Held
	return fe, ok
}
