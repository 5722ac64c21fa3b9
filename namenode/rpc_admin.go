package namenode

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/backups"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/space"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Status tells how the namenode is; everybody may ask, also while it starts. It
// waits for nothing: what it counts is of this moment, and a crash may still
// take the changes after DurableTxid back.
func (s *operators) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	resp := &pb.StatusResponse{Address: s.front.Addr(), Role: "starting", Version: s.cfg.Version, Trusts: s.cfg.trusts()}
	if s.audit.On() {
		a := s.audit.Stats()
		resp.Audit = &pb.AuditStatus{Lines: a.Lines, Lost: a.Lost, Problem: a.Problem}
	}
	role := s.role.Status()
	if role.Role == "starting" {
		return resp, nil
	}
	n := s.engine.Facts()
	ls := s.leases.Stats()
	resp.Role, resp.Term = role.Role, n.Term
	resp.FeatureLevel, resp.NewestLevel = n.Level.Level, levels.Newest()
	resp.Txid, resp.DurableTxid = n.Last, s.journal.Durable()
	if role.Role == "standby" {
		resp.DurableTxid = max(resp.DurableTxid, role.Newest) // what it has not applied yet is its lag
		resp.ActiveAddress = role.Active
	}
	resp.Short, resp.DiskError = s.shortOf(role), role.DiskError
	resp.Inodes, resp.Files, resp.Directories, resp.Blocks = uint64(n.Inodes), uint64(n.Files), uint64(n.Dirs), uint64(n.Blocks)
	resp.OpenFiles, resp.Leases, resp.Sessions = uint64(n.Open), uint64(ls.Leases), uint64(ls.Connected)
	resp.GrantedLeases = uint64(n.Leases)
	resp.UptimeMs = (s.cfg.Clock.Mono() - s.started).Milliseconds()
	resp.NamespaceId = hex.EncodeToString(s.dir.ID[:])
	resp.TailBytes, resp.StoredBytes, resp.GarbageBlocks, resp.GarbageBytes = n.TailBytes, n.StoredBytes, uint64(n.Garbage), n.GarbageBytes
	bin := s.tree.trash.Sizes()
	resp.TrashFiles, resp.TrashBytes = bin.Files, bin.Bytes
	resp.Snapshots, resp.SnapshotBlocks, resp.SnapshotBytes, resp.SnapshotMemoryBytes = uint64(n.Snapshots), uint64(n.Held), n.HeldBytes, s.snaps.SnapshotMemory()
	resp.OldestOverdueMs = max(ls.OldestOverdue, ls.GrantedOverdue).Milliseconds()
	if n.SafeMode {
		resp.SafeMode, resp.SafeModeWhy = true, "entered by an operator"
	}
	if len(n.Images) > 0 {
		resp.ImageTxid = n.Images[len(n.Images)-1].TxID
	}
	resp.DiskFree, resp.DiskTotal = s.space.Room(ctx)
	_, resp.JournalBytes = s.journal.Size()
	resp.ZookeeperBytes, resp.ZookeeperNodes = role.Kept, role.KeptNodes
	resp.HeapBytes = space.HeapBytes()
	s.clocks.All(func(than string, skew clock.Skew) {
		const ms = time.Millisecond
		resp.Clocks = append(resp.Clocks, &pb.ClockSkew{Than: than, AheadMs: skew.Ahead.Round(ms).Milliseconds(), BoundMs: (skew.Bound + ms).Milliseconds()})
	})
	resp.StoreConflict = s.owner.Conflict()
	if st := s.scrub.Stats(); st.On && role.Role != "standby" {
		resp.Scrub = &pb.ScrubStatus{BeganUnixMs: st.Began, ReadBytes: st.Read, WholeUnixMs: st.Whole, Damaged: uint64(st.Found), LateMs: st.Late.Milliseconds()} //nolint:gosec // a count
	}
	if st := s.archive.Stats(); st.On && role.Role != "standby" {
		resp.Archive = &pb.ArchiveStatus{Txid: st.TxID, Records: st.Records, LagMs: (st.Lag + time.Millisecond - 1).Milliseconds(), Holes: uint64(st.Holes), Problem: st.Problem} //nolint:gosec // a count
	}
	resp.Rooms = s.forecast.Rooms()
	s.tellGreedy(ctx, r.GetCaller(), resp)
	return resp, nil
}

// shortOf says why this namenode refuses what needs room, or would if it were active, or
// of one of several why it could not write an image; empty: it has room.
func (s *operators) shortOf(role reign.Status) string {
	if s.role.Ready() {
		if why := s.space.Short(); why != "" {
			return why
		}
	}
	return role.Short
}

// Checkpoint writes an image now.
func (s *operators) Checkpoint(ctx context.Context, r *pb.CheckpointRequest) (*pb.CheckpointResponse, error) {
	if err := s.admin(ctx, r.GetCaller()); err != nil {
		return nil, err
	}
	began := s.cfg.Clock.Mono()
	img, err := s.images.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.CheckpointResponse{Txid: img.TxID, Bytes: img.Size, DurationMs: (s.cfg.Clock.Mono() - began).Milliseconds()}, nil
}

// SafeMode enters, leaves or tells of safe mode. It is journalled: a restart
// does not end it.
func (s *operators) SafeMode(ctx context.Context, r *pb.SafeModeRequest) (*pb.SafeModeResponse, error) {
	if r.GetAction() != pb.SafeModeRequest_ACTION_GET {
		if err := s.admin(ctx, r.GetCaller()); err != nil {
			return nil, err
		}
	}
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	var on bool
	switch r.GetAction() {
	case pb.SafeModeRequest_ACTION_ENTER, pb.SafeModeRequest_ACTION_LEAVE:
		on = r.GetAction() == pb.SafeModeRequest_ACTION_ENTER
		if err := s.setSafeMode(ctx, on); err != nil {
			return nil, err
		}
	case pb.SafeModeRequest_ACTION_GET:
		c := &namespace.Call{}
		if err := s.engine.View(ctx, c, func(tx *engine.Tx) error { on = tx.Tree.InSafeMode(c); return nil }); err != nil {
			return nil, err
		}
	default:
		return nil, fserror.New(fserror.InvalidArgument, "safemode", "", "unknown action %d", r.GetAction())
	}
	resp := &pb.SafeModeResponse{On: on}
	if on {
		resp.Why = "entered by an operator"
	}
	return resp, nil
}

// setSafeMode returns when no block is being deleted any more.
func (s *operators) setSafeMode(ctx context.Context, on bool) error {
	unlock, err := s.blocks.Stop(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if tx.Tree.SafeMode() == on {
			return nil, nil
		}
		if on {
			s.leases.Suspend()
		} else {
			s.leases.Resume()
		}
		return &namespace.OpSafeMode{On: on}, nil
	}})
	return err
}

// Fsck checks the tree against itself, the lease table and the block store.
func (s *operators) Fsck(r *pb.FsckRequest, stream grpc.ServerStreamingServer[pb.FsckResponse]) error {
	ctx := stream.Context()
	if err := s.admin(ctx, r.GetCaller()); err != nil {
		return err
	}
	send := func(m *pb.FsckResponse) error { return s.send(ctx, func() error { return stream.Send(m) }) }
	f := &fsck{operators: s, ctx: ctx, send: send, sum: &pb.FsckSummary{}, read: r.GetBlocks()}
	if err := f.whole(); err != nil {
		return err
	}
	path := cmp.Or(r.GetPath(), "/")
	if err := s.tree.walk(ctx, r.GetCaller(), pb.Follow(path), func(w *walk, path []byte, a namespace.Attr) error {
		f.sum.Inodes++
		if a.Open == nil && a.Blocks == 0 {
			return nil
		}
		return w.aside(func() error { return f.inode(string(path), a) })
	}); err != nil {
		return err
	}
	if path == "/" {
		if err := f.kept(); err != nil {
			return err
		}
	}
	return stream.Send(&pb.FsckResponse{Summary: f.sum})
}

type fsck struct {
	*operators
	ctx  context.Context //nolint:containedctx // one run's
	send func(*pb.FsckResponse) error
	sum  *pb.FsckSummary
	read bool
}

func (f *fsck) problem(path, format string, args ...any) error {
	f.sum.Problems++
	return f.send(&pb.FsckResponse{Path: path, Problem: fmt.Sprintf(format, args...)})
}

// whole checks what concerns no single path.
func (f *fsck) whole() error {
	t, err := f.engine.Snapshot(f.ctx)
	if err != nil {
		return err
	}
	for _, p := range append(t.Check(), f.leases.Check()...) {
		if err := f.problem("/", "%s", p); err != nil {
			return err
		}
	}
	if f.read { // what was found before is read again
		return nil
	}
	for _, b := range f.scrub.Findings() {
		path, _ := t.Path(t.SnapshotTable().Holder(b.Inode, b.Block.Key)) // none: it is being freed
		if err := f.problem(cmp.Or(path, "/"), "block %s, scrubbed %s: %s", b.Block.Key, time.UnixMilli(b.UnixMS).UTC().Format(time.RFC3339), b.Problem); err != nil {
			return err
		}
	}
	return nil
}

// kept checks what can be restored, and the blocks that only snapshots have.
func (f *fsck) kept() error {
	t, err := f.engine.Snapshot(f.ctx)
	if err != nil {
		return err
	}
	t.Trash(nil).List("", nil, func(e *tables.Trashed) bool {
		err = t.Walk(e.Inode, func(path []byte, a namespace.Attr) error {
			f.sum.Inodes++
			return cmp.Or(f.ctx.Err(), f.inode(string(path)+" in the trash", a))
		})
		return err == nil
	})
	t.SnapshotTable().EachHeld(0, func(h snapshots.Held) bool {
		if path, _ := t.Path(h.Number()); err == nil {
			err = f.part(cmp.Or(path, "/"), "", h.Block) // no path: it is being freed
		}
		return err == nil
	})
	return err
}

func (f *fsck) inode(path string, a namespace.Attr) error {
	if a.Open != nil {
		if _, ok := f.leases.State(uint64(a.ID)); !ok && f.stillOpen(*a.Open) {
			if err := f.problem(path, "open for write by %s, but not in the lease table", a.Open.Holder.Client); err != nil {
				return err
			}
		}
	}
	if a.Type != namespace.TypeFile || a.Blocks == 0 {
		return nil
	}
	var v calls.FileView
	c := &namespace.Call{Super: true}
	if err := f.engine.View(f.ctx, c, func(tx *engine.Tx) (err error) {
		if kept, ok := tx.Tree.FileInTrash(c, a.ID); ok {
			v = kept
			return nil
		}
		v, err = tx.Tree.File(c, namespace.Inode(a.ID))
		return err
	}); err != nil {
		return nil //nolint:nilerr // deleted meanwhile
	}
	var off int64
	for _, b := range v.Blocks {
		if err := f.part(path, fmt.Sprintf(" at offset %d", off), b); err != nil {
			return err
		}
		off += int64(b.Used)
	}
	return nil
}

// part checks a block of what is at a path.
func (f *fsck) part(path, where string, b namespace.Block) error {
	f.sum.Blocks++
	err := f.block(b)
	switch {
	case err == nil || !f.blocks.Has(b.Key):
		return nil
	case f.ctx.Err() != nil:
		return f.ctx.Err() // that says nothing of the block
	}
	return f.blockProblem(path, fmt.Sprintf("block %d/%d%s", b.Key.Term, b.Key.Seq, where), err)
}

func (f *fsck) stillOpen(o namespace.OpenFile) bool {
	var now namespace.OpenFile
	var open bool
	f.engine.Look(func(t *namespace.Tree) { now, open = t.OpenFile(o.Inode) })
	return open && now.Epoch == o.Epoch
}

// blockProblem tells of a block that is gone or damaged, as the store said, or that
// the store said nothing of it.
func (f *fsck) blockProblem(path, block string, err error) error {
	switch fserror.KindOf(err) {
	case fserror.NotFound, fserror.Damaged:
		return f.problem(path, "%s: %v", block, err)
	default:
		f.sum.Unchecked++
		return f.send(&pb.FsckResponse{Path: path, Unchecked: true, Problem: fmt.Sprintf("%s could not be checked: %v", block, err)})
	}
}

func (f *fsck) block(b namespace.Block) error {
	if f.read { // which tells all that Stat does
		object, err := f.blocks.Fetch(f.ctx, b)
		f.sum.BytesVerified += int64(len(object))
		return err
	}
	info, err := f.store.Stat(f.ctx, b.Key)
	if err != nil {
		return err
	}
	if info.Length != int64(b.Stored) {
		return fserror.New(fserror.Damaged, "", "", "has %d bytes in the store, %d were written", info.Length, b.Stored)
	}
	return nil
}

// collect is admin gc: search, then delete what may be deleted.
func (s *operators) collect(ctx context.Context) (*pb.CollectResponse, error) {
	c := &namespace.Call{}
	if err := s.engine.View(ctx, c, func(tx *engine.Tx) error { return tx.RefuseInSafeMode(c) }); err != nil {
		return nil, err
	}
	if err := s.owner.Check(ctx); err != nil {
		return nil, err
	}
	if s.owner.Conflict() != "" {
		return nil, s.owner.HeldBack()
	}
	orphans, err := s.blocks.Sweep(ctx, true)
	if err != nil {
		return nil, err
	}
	known := s.engine.Facts().Garbage
	deleted, waiting, err := s.blocks.Collect(ctx, true)
	if err != nil {
		return nil, err
	}
	return &pb.CollectResponse{Garbage: uint64(max(known, 0)), Deleted: uint64(deleted), Waiting: uint64(max(waiting, 0)), Orphans: uint64(orphans)}, nil //nolint:gosec // counts
}

// Collect runs the block collector now.
func (s *operators) Collect(ctx context.Context, r *pb.CollectRequest) (*pb.CollectResponse, error) {
	if err := s.admin(ctx, r.GetCaller()); err != nil {
		return nil, err
	}
	return s.collect(ctx)
}

// Backup streams a folder from which a namenode can be started.
func (s *operators) Backup(r *pb.BackupRequest, stream grpc.ServerStreamingServer[pb.BackupResponse]) error {
	if err := s.admin(stream.Context(), r.GetCaller()); err != nil {
		return err
	}
	return s.backup(stream.Context(), r.GetTreeOnly(), func(m *backups.Message) error {
		patience := s.patience
		if m.GetUrl() != "" { // the client is at the ones before
			patience = s.urlLife
		}
		return serve.Within(stream.Context(), patience, func() error { return stream.Send(m) })
	})
}

// Failover hands the reign over to the next namenode in the election that is fit. This
// one becomes a standby. It waits a moment for one that has followed, and is refused
// with RETRY if there is none. Of a term that is over already, it does nothing.
func (s *operators) Failover(ctx context.Context, r *pb.FailoverRequest) (*pb.FailoverResponse, error) {
	if err := s.admin(ctx, r.GetCaller()); err != nil {
		return nil, err
	}
	next, err := s.role.Failover(ctx, r.GetTerm())
	if err != nil {
		return nil, err
	}
	return &pb.FailoverResponse{Next: next}, nil
}

// Upgrade tells at which feature level the namespace is, or raises it.
func (s *operators) Upgrade(ctx context.Context, r *pb.UpgradeRequest) (*pb.UpgradeResponse, error) {
	if err := s.admin(ctx, r.GetCaller()); err != nil {
		return nil, err
	}
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	if to := r.GetRaiseTo(); to != 0 {
		if err := s.role.Raise(ctx, to); err != nil {
			return nil, err
		}
	}
	at, err := s.role.Level(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pb.UpgradeResponse{Level: at.Level, Release: at.Release, NewestLevel: levels.Newest(), Brings: levels.Between(at.Level, levels.Newest()), Clients: s.sessions.Releases()}
	for _, m := range at.Members {
		resp.Namenodes = append(resp.Namenodes, &pb.UpgradeNamenode{Address: m.Address, Release: m.Version, NewestLevel: max(m.Level, levels.First)})
	}
	return resp, nil
}

// ResolveStore ends a conflict about the block store in favour of this namenode's
// history. Its reply may be lost: sent again it finds no conflict.
func (s *operators) ResolveStore(ctx context.Context, r *pb.ResolveStoreRequest) (*pb.ResolveStoreResponse, error) {
	if err := s.admin(ctx, r.GetCaller()); err != nil {
		return nil, err
	}
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	resolved, err := s.owner.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.ResolveStoreResponse{Resolved: resolved}, nil
}
