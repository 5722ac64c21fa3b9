package namenode

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/serve"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	defaultBlocks = 256
	maxBlocks     = 1000
	defaultList   = 1000
	maxList       = 10_000
	findPage      = 500
	findBytes     = 256 << 10 // of paths in a page
	maxWait       = 10 * time.Minute
)

// Stat answers a path's attributes.
func (s *tree) Stat(ctx context.Context, r *pb.StatRequest) (*pb.StatResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	c.Collect = r.GetCache()
	var a namespace.Attr
	resp := new(pb.StatResponse)
	err = s.engine.ViewAnswer(ctx, c, func(tx *engine.Tx) (err error) {
		if a, err = tx.Tree.Stat(c, ref(r.GetAt())); err == nil {
			err = access(c, a, r.GetAccess())
		}
		if err == nil && r.GetWhere() {
			resp.Path, _ = tx.Tree.Path(a.ID)
		}
		resp.Txid = tx.ListedTo()
		if err == nil || errors.Is(err, fserror.NotFound) {
			resp.Keys = mayCache(tx, c, r.GetCaller().GetSession(), false)
		}
		return err
	})
	switch {
	case err == nil:
		resp.Attr = s.attr(a)
	case len(resp.Keys) > 0: // that there is no such name may be kept too
		resp.Missing = wire.Detail(fserror.With(err, "stat", r.GetAt().AbsolutePath()))
	default:
		return nil, err
	}
	return resp, nil
}

// access refuses who has not all the permission bits want. Nobody runs what nobody may.
func access(c *namespace.Call, a namespace.Attr, want uint32) error {
	if want&^15 != 0 {
		return fserror.New(fserror.InvalidArgument, "", "", "permission bits are from 1 to 7, and 8 to own it, not %d", want)
	}
	if want&8 != 0 && !c.IsSuper() && !c.Owns(a.User) {
		return fserror.New(fserror.Permission, "", "", "user %s does not own it (owner %s)", c.User, a.User).Because(calls.NotOwner)
	}
	want &= 7
	runs := want&uint32(calls.MayExecute) == 0 || a.Type != namespace.TypeFile || a.Mode&0o111 != 0
	if runs && c.Allowed(a.Mode, a.User, a.Group, a.Access, uint16(want)) { //nolint:gosec // three bits
		return nil
	}
	return fserror.New(fserror.Permission, "", "", "user %s has not the permissions %03b (read, write, execute): owner %s, group %s, mode %04o", c.User, want, a.User, a.Group, a.Mode)
}

// List answers a page of a directory.
func (s *tree) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	limit := clampLimit(r.GetLimit(), defaultList, maxList)
	c.Collect = r.GetCache()
	var dir namespace.Attr
	var entries []namespace.Attr
	var next string
	var keys []*pb.CacheKey
	var keep []bool
	var txid uint64
	after, again := r.GetAfter(), false
	list := func(tx *engine.Tx) (err error) {
		c.Looks = c.Looks[:0]
		before := dir.ID
		if !again { // of the first look: a watch from there on tells what was made behind a later one
			txid = tx.ListedTo()
		}
		dir, entries, next, err = tx.Tree.List(c, ref(r.GetAt()), after, limit)
		if err == nil && again && dir.ID != before { // another directory has the name now
			txid = tx.ListedTo()
			dir, entries, next, err = tx.Tree.List(c, ref(r.GetAt()), r.GetAfter(), limit)
		}
		if err == nil {
			if keep = tx.LendEntries(c, r.GetCaller().GetSession(), dir, entries); keep != nil {
				keys = wireKeys(c.Looks)
			}
		}
		return err
	}
	for err = s.engine.ViewAnswer(ctx, c, list); err == nil && len(entries) == 0 && next != ""; err = s.engine.ViewAnswer(ctx, c, list) {
		if after, again = next, true; ctx.Err() != nil {
			return nil, fserror.Ended(ctx, "", "")
		}
	}
	if err != nil {
		return nil, err
	}
	resp := &pb.ListResponse{Directory: s.attr(dir), More: next != "", Entries: make([]*pb.Entry, 0, len(entries)), Keys: keys, Txid: txid}
	size := 0
	for i, a := range entries {
		if size += len(a.Name) + len(a.LinkTarget) + len(a.Xattr) + len(a.User) + len(a.Group) + 80; size > calls.PageBytes && len(resp.Entries) > 0 {
			resp.More = true
			break
		}
		resp.Entries = append(resp.Entries, &pb.Entry{Name: a.Name, Attr: s.attr(a), Keep: i < len(keep) && keep[i]})
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
// it waits until the file is longer or closed. A current writer of the file
// gets its tail whether or not it may read, for the block that is to cover it.
func (s *tree) GetFile(ctx context.Context, r *pb.GetFileRequest) (*pb.GetFileResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	if r.GetOffset() < 0 || r.GetLength() < 0 {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "offset %d or length %d is negative", r.GetOffset(), r.GetLength())
	}
	if w := r.GetWriter(); w != nil && ref(r.GetAt()) != namespace.Inode(namespace.InodeID(w.GetInode())) {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the writer is one of inode %d, and the request is not for the file of that number", w.GetInode())
	}
	c.Collect = r.GetCache() && r.GetWaitMs() == 0 // a wait goes by the inode, not by the path
	v, err := s.fileView(ctx, c, r)
	if err == nil && r.GetWaitMs() > 0 {
		v, err = s.waitBeyond(ctx, c, r, v)
	}
	if err != nil {
		return nil, err
	}
	return s.fileResponse(r, v)
}

// fileView is a file of one moment.
type fileView struct {
	calls.FileView
	path string
	keys []*pb.CacheKey // what it depends on, if the caller may keep it
}

func (s *tree) fileView(ctx context.Context, c *namespace.Call, r *pb.GetFileRequest) (v fileView, err error) {
	c.Looks = nil
	err = s.engine.ViewAnswer(ctx, c, func(tx *engine.Tx) (err error) {
		if r.GetWriter() != nil {
			w, err := writerID(r.GetWriter())
			if err != nil {
				return err
			}
			if err := s.writer(ctx, tx, c, w); err != nil {
				return err
			}
			defer func(super bool) { c.Super = super }(c.Super) // what all share it takes as who it is
			c.Super = true                                      // the writer's token is all the right that it takes
		}
		if v.FileView, err = tx.Tree.File(c, ref(r.GetAt())); err == nil {
			v.path, _ = tx.Tree.Path(v.Attr.ID)
			if r.GetWriter() != nil {
				v.Blocks = nil
			}
			v.keys = mayCache(tx, c, r.GetCaller().GetSession(), false)
		}
		return err
	})
	return v, err
}

// waitBeyond watches first and looks then, so that no change is missed.
func (s *tree) waitBeyond(ctx context.Context, c *namespace.Call, r *pb.GetFileRequest, v fileView) (fileView, error) {
	back, err := s.front.Park(ctx, taker(ctx, c))
	if err != nil {
		return v, err
	}
	defer back()
	over := time.NewTimer(min(time.Duration(r.GetWaitMs())*time.Millisecond, maxWait))
	defer over.Stop()
	byInode := &pb.GetFileRequest{Caller: r.GetCaller(), At: pb.Inode(uint64(v.Attr.ID)), Writer: r.GetWriter()}
	waits := func() bool {
		n := v.Attr.Length - r.GetWaitBeyond()
		return v.Attr.Open != nil && n <= 0 && (n == 0 || !r.GetOrBelow())
	}
	for waits() {
		changed, done := s.events.Wait(uint64(v.Attr.ID))
		next, err := s.fileView(ctx, c, byInode)
		if err != nil {
			done()
			return v, err
		}
		v = next
		if !waits() {
			done()
			break
		}
		select {
		case <-changed:
			done()
		case <-over.C:
			done()
			return v, s.role.Active()
		case <-ctx.Done():
			done()
			return v, ctx.Err()
		case <-s.loops.Done():
			done()
			return v, s.role.Active()
		}
	}
	return v, nil
}

// fileResponse picks the part that was asked for and signs its URLs.
func (s *tree) fileResponse(r *pb.GetFileRequest, v fileView) (*pb.GetFileResponse, error) {
	resp := &pb.GetFileResponse{Attr: s.attr(v.Attr), Path: v.path, Keys: v.keys, UrlsExpireMs: s.cfg.URLLife.Milliseconds(), Cut: v.Cut}
	limit := clampLimit(r.GetMaxBlocks(), defaultBlocks, maxBlocks)
	now := s.cfg.Clock.Wall()
	expires := now.Add(s.cfg.URLLife)
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
			// Temporary credentials may end before the URL's life.
			resp.UrlsExpireMs = min(resp.UrlsExpireMs, max(signed.Expires.Sub(now).Milliseconds(), 0))
		}
		resp.Blocks = append(resp.Blocks, out)
	}
	if from := max(r.GetOffset(), resp.TailOffset); from < end {
		resp.Tail = v.Tail[from-resp.TailOffset : end-resp.TailOffset]
		resp.TailCrc32C = blockstore.CRC(resp.Tail)
	}
	return resp, nil
}

// Summary counts what is below a path, of one moment.
func (s *tree) Summary(ctx context.Context, r *pb.SummaryRequest) (*pb.SummaryResponse, error) {
	resp := &pb.SummaryResponse{}
	top := namespace.InodeID(0)
	err := s.walk(ctx, r.GetCaller(), r.GetAt(), func(w *walk, path []byte, a namespace.Attr) error {
		if top == 0 { // it comes first
			top, resp.SnapshotBytes = a.ID, namespace.HeldBelow(w.tree, nil, []namespace.InodeID{a.ID})[a.ID]
			resp.TrashBytes = s.trash.BytesBelow(string(path))
		}
		switch a.Type {
		case namespace.TypeFile:
			resp.Files++
		case namespace.TypeDir:
			resp.Directories++
		case namespace.TypeSymlink:
			resp.Symlinks++
		}
		if resp.Length += a.Length; a.Open != nil {
			resp.OpenFiles++
		}
		return nil
	})
	resp.Stored = resp.Length
	return resp, err
}

// walk is one of the few walks of the whole tree that are on the way at once;
// others wait.
type walk struct {
	s    *tree
	ctx  context.Context //nolint:containedctx // one call's
	c    *namespace.Call
	on   bool
	tree *namespace.Tree // as it is looked at
	txid uint64          // of the last change that is in it
}

func (w *walk) takeTurn() error {
	back, err := w.s.front.Park(w.ctx, taker(w.ctx, w.c))
	if err != nil {
		return err
	}
	defer back()
	err = w.s.walkers.Begin(w.ctx, w.c.User)
	w.on = err == nil
	return err
}

func (w *walk) giveTurn() {
	if w.on {
		w.on = false
		w.s.walkers.End(w.c.User)
	}
}

// aside runs what may take long, such as sending, while others may walk.
func (w *walk) aside(fn func() error) error {
	w.giveTurn()
	if err := fn(); err != nil {
		return err
	}
	return w.takeTurn()
}

// send gives a client a part of a long answer, for which a clone of the tree is
// held: so it ends the stream of one that takes nothing for a minute.
func (s *desk) send(ctx context.Context, fn func() error) error {
	return serve.Within(ctx, s.patience, fn)
}

// walk runs fn over everything below a path on a snapshot, without a lock. The
// path that fn gets is good until it returns.
func (s *tree) walk(ctx context.Context, who *pb.Caller, at *pb.Ref, fn func(w *walk, path []byte, a namespace.Attr) error) error {
	c, err := s.caller(ctx, who)
	if err != nil {
		return err
	}
	w := &walk{s: s, ctx: ctx, c: c}
	if err := w.takeTurn(); err != nil {
		return err
	}
	defer w.giveTurn()
	t, err := s.engine.Snapshot(ctx)
	if err != nil {
		return err
	}
	root, err := t.Stat(c, ref(at))
	if err != nil {
		return err
	}
	n := 0
	w.tree = t
	w.txid, _ = t.Last() // durable, as is the whole snapshot
	return t.Walk(root.ID, func(p []byte, a namespace.Attr) error {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if a.Type == namespace.TypeDir && !c.MayList(a) {
			return fserror.New(fserror.Permission, "", string(p), "user %s may not read this directory (mode %o, owner %s:%s)", c.User, a.Mode, a.User, a.Group)
		}
		return fn(w, p, a)
	})
}

// Find streams everything below a path.
func (s *tree) Find(r *pb.FindRequest, stream grpc.ServerStreamingServer[pb.FindResponse]) error {
	var page []*pb.FoundEntry
	size, txid := 0, uint64(0)
	send := func() error {
		m := &pb.FindResponse{Entries: page, Txid: txid}
		page, size = nil, 0
		return s.send(stream.Context(), func() error { return stream.Send(m) })
	}
	err := s.walk(stream.Context(), r.GetCaller(), r.GetAt(), func(w *walk, p []byte, a namespace.Attr) error {
		txid = w.txid
		if (r.GetOpenOnly() || r.GetHolder() != "") && a.Open == nil {
			return nil
		}
		if h := r.GetHolder(); h != "" && a.Open.Holder.Client != h && !strings.EqualFold(sessionName(a.Open.Holder.Session), h) {
			return nil
		}
		page = append(page, &pb.FoundEntry{Path: string(p), Attr: s.attr(a)})
		if size += len(p) + len(a.LinkTarget); len(page) == findPage || size >= findBytes {
			return w.aside(send)
		}
		return nil
	})
	if err != nil || len(page) == 0 {
		return err
	}
	return send()
}
