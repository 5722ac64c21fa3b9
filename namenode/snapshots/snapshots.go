// Package snapshots answers calls about the snapshots of directories (docs/adr/0037): it makes, renames
// and deletes them, lists them, and tells what differs. What is in them is read by the calls for files.
package snapshots

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxPage is how many snapshots, directories or changes one answer has.
const maxPage = 1000

// memoryShare is the part of the namenode's memory, one in so many, that snapshots may take: what
// changes since one was made is kept as it was, also outside of its directory.
const memoryShare = 4

// Request is what all requests about snapshots that change something have.
type Request interface {
	proto.Message
	GetCall() *pb.CallId
	GetCaller() *pb.Caller
}

// Config is what a Service works with. All is required.
type Config struct {
	Engine *engine.Engine
	// Caller finds out who asks, Asked also for which call.
	Caller func(context.Context, *pb.Caller) (*namespace.Call, error)
	Asked  func(context.Context, Request) (*namespace.Call, namespace.CallID, error)
	// Attr is the wire form of attributes.
	Attr func(namespace.Attr) *pb.Attr
	// Deleted is told that there may be blocks of a deleted snapshot to be freed.
	Deleted func()
	// Turn waits until it is the caller's turn to look at much of the tree. Without an error, the
	// function that it returns lets the next one begin.
	Turn func(context.Context, *namespace.Call) (end func(), err error)
	// Memory is how many bytes the namenode should take.
	Memory int64
}

// Service answers calls. Its methods are safe for concurrent use.
type Service struct {
	Config
	memory atomic.Int64
}

// MeasureSnapshots counts the memory that snapshots take. Without a snapshot nothing is cloned,
// of which the next changes would have to copy what they change.
func (s *Service) MeasureSnapshots(context.Context) error {
	none := false
	s.Engine.Look(func(t *namespace.Tree) { none = t.SnapshotTable().Len() == 0 })
	if none {
		s.memory.Store(0)
		return nil
	}
	s.memory.Store(s.Engine.Clone().SnapshotMemory())
	return nil
}

// SnapshotMemory is about how many bytes of memory snapshots took when that was counted last.
func (s *Service) SnapshotMemory() int64 { return s.memory.Load() }

// mostNamed is how many directories an error names.
const mostNamed = 3

// refuse returns an error of kind NoSpace if snapshots take so much memory that none is made. It names
// the directories with the most snapshots that the caller may see.
func (s *Service) refuse(t *namespace.Tree, c *namespace.Call) error {
	took, most := s.SnapshotMemory(), s.Memory/memoryShare
	if took <= most {
		return nil
	}
	type count struct {
		dir namespace.InodeID
		n   int
	}
	var counts []count
	table := namespace.SnapshotsOf(t, c)
	table.Dirs(func(dir namespace.InodeID) bool {
		counts = append(counts, count{dir, table.Count(dir)})
		return true
	})
	slices.SortFunc(counts, func(a, b count) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.dir, b.dir)) })
	var named []string
	for _, one := range counts {
		if len(named) == mostNamed {
			break
		}
		if path, ok := t.Path(one.dir); ok {
			if _, err := t.Stat(c, namespace.Inode(one.dir)); err == nil {
				named = append(named, fmt.Sprintf("%s (%d, user %s)", path, one.n, t.OwnerOf(one.dir)))
			}
		}
	}
	of := ""
	if len(named) > 0 {
		of = "; most are of " + strings.Join(named, ", ")
	}
	return fserror.New(fserror.NoSpace, "", "", "snapshots take %d MiB of the namenode's memory, of %d MiB that they may take%s; the directories' owners, or a superuser, have to delete snapshots, the oldest first; try again a minute later", took>>20, most>>20, of)
}

// refuseGreedy returns an error of kind NoSpace if the namespace has few numbers of snapshots left, and
// the directories of a directory's owner have many.
func refuseGreedy(t *namespace.Tree, c *namespace.Call, dir namespace.InodeID) error {
	table := namespace.SnapshotsOf(t, c)
	if int64(table.Len()) < share.Room(snapshots.Max, snapshots.Max, 1, c.IsSuper()) {
		return nil // there is enough for everybody
	}
	owner, held := t.OwnerOf(dir), 0
	table.Dirs(func(other namespace.InodeID) bool {
		if t.OwnerOf(other) == owner {
			held += table.Count(other)
		}
		return true
	})
	if int64(table.Len()) < share.Room(snapshots.Max, int64(held), 1, c.IsSuper()) {
		return nil
	}
	return fserror.New(fserror.NoSpace, "", "", "the namespace has %d snapshots of %d that it can have, of which directories of user %s have %d; the others are for those who have few; delete some", table.Len(), snapshots.Max, owner, held)
}

// refuseBelowQuota returns an error of kind NoSpace if, below a quota in which a directory counts,
// snapshots alone have more bytes than it allows: so they never have much more than twice as many,
// whoever makes, changes and deletes in turn.
func refuseBelowQuota(t *namespace.Tree, c *namespace.Call, dir namespace.InodeID) error {
	var dirs []namespace.InodeID
	above := slices.DeleteFunc(namespace.QuotasAbove(t, c, dir), func(q quota.Entry) bool { return q.Limits.Bytes == quota.None })
	for _, q := range above {
		dirs = append(dirs, q.Dir)
	}
	held := namespace.HeldBelow(t, c, dirs)
	for _, q := range above {
		if n := held[q.Dir]; n > q.Limits.Bytes {
			path, _ := t.Path(q.Dir)
			return fserror.New(fserror.NoSpace, "", "", "%s has a quota of %d bytes, and its snapshots alone have %d; delete some", path, q.Limits.Bytes, n).Because(fserror.ReasonQuotaBytes)
		}
	}
	return nil
}

// plan makes the record of a change.
type plan func(*namespace.Tree, *namespace.Call) (*namespace.OpSnapshot, error)

func (s *Service) change(ctx context.Context, r Request, grows bool, p plan) (engine.Outcome, error) {
	c, id, err := s.Asked(ctx, r)
	if err != nil {
		return engine.Outcome{}, err
	}
	return s.Engine.DoAnswer(ctx, engine.Request{Call: c, ID: id, Grows: grows, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(p(tx.Tree, c))
	}})
}

// answer is that of a call that changed something.
func answer(out engine.Outcome, err error) (*pb.MutateResponse, error) {
	if err != nil {
		return nil, err
	}
	return &pb.MutateResponse{Txid: out.TxID, Attr: &pb.Attr{Inode: uint64(out.Inode)}}, nil
}

// AllowSnapshots says whether a directory may have snapshots: see namespace.PlanAllowSnapshots.
func (s *Service) AllowSnapshots(ctx context.Context, r *pb.AllowSnapshotsRequest) (*pb.MutateResponse, error) {
	return answer(s.change(ctx, r, false, func(t *namespace.Tree, c *namespace.Call) (*namespace.OpSnapshot, error) {
		return namespace.PlanAllowSnapshots(t, c, calls.RefOf(r.GetAt()), r.GetAllow())
	}))
}

// defaultName is the name of a snapshot that is given none, as in HDFS.
const defaultName = "s20060102-150405.000"

// MakeSnapshot makes a snapshot: see namespace.PlanSnapshot.
func (s *Service) MakeSnapshot(ctx context.Context, r *pb.MakeSnapshotRequest) (*pb.MutateResponse, error) {
	name := r.GetName()
	out, err := s.change(ctx, r, true, func(t *namespace.Tree, c *namespace.Call) (op *namespace.OpSnapshot, err error) {
		for now := s.Engine.Now(); ; now++ { // the next millisecond, if one was made in this
			if r.GetName() == "" {
				name = time.UnixMilli(now).UTC().Format(defaultName)
			}
			if op, err = namespace.PlanSnapshot(t, c, calls.RefOf(r.GetAt()), name); err == nil {
				return op, cmp.Or(s.refuse(t, c), refuseGreedy(t, c, op.Dir), refuseBelowQuota(t, c, op.Dir))
			}
			if r.GetName() != "" || fserror.KindOf(err) != fserror.Exists {
				return nil, err
			}
		}
	})
	if err == nil && out.Repeat { // nothing was planned now
		name, err = s.nameOf(ctx, r, out.Inode)
	}
	resp, err := answer(out, err)
	if err == nil {
		resp.Snapshot = name
	}
	return resp, err
}

// nameOf is the name of a snapshot that a call made before; if it was deleted since, that which the
// call asked for.
func (s *Service) nameOf(ctx context.Context, r *pb.MakeSnapshotRequest, inode namespace.InodeID) (name string, err error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return "", err
	}
	id, _ := snapshots.Split(inode)
	err = s.Engine.ViewAnswer(ctx, c, func(tx *engine.Tx) error {
		if name = r.GetName(); namespace.SnapshotsOf(tx.Tree, c).Get(id) != nil {
			name = namespace.SnapshotsOf(tx.Tree, c).Get(id).Name
		}
		return nil
	})
	return name, err
}

// RenameSnapshot gives a snapshot another name: see namespace.PlanRenameSnapshot.
func (s *Service) RenameSnapshot(ctx context.Context, r *pb.RenameSnapshotRequest) (*pb.MutateResponse, error) {
	return answer(s.change(ctx, r, false, func(t *namespace.Tree, c *namespace.Call) (*namespace.OpSnapshot, error) {
		return namespace.PlanRenameSnapshot(t, c, calls.RefOf(r.GetAt()), r.GetName(), r.GetNewName())
	}))
}

// DeleteSnapshot deletes a snapshot: see namespace.PlanDeleteSnapshot.
func (s *Service) DeleteSnapshot(ctx context.Context, r *pb.DeleteSnapshotRequest) (*pb.MutateResponse, error) {
	resp, err := answer(s.change(ctx, r, false, func(t *namespace.Tree, c *namespace.Call) (*namespace.OpSnapshot, error) {
		return namespace.PlanDeleteSnapshot(t, c, calls.RefOf(r.GetAt()), r.GetName())
	}))
	if err == nil {
		s.Deleted()
	}
	return resp, err
}

// page is how many of something an answer has at most.
func page(limit int32) int {
	if limit <= 0 || limit > maxPage {
		return maxPage
	}
	return int(limit)
}

// ListSnapshots tells of a page of a directory's snapshots: see namespace.Tree.Snapshots.
func (s *Service) ListSnapshots(ctx context.Context, r *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	resp := new(pb.ListSnapshotsResponse)
	err = s.Engine.ViewAnswer(ctx, c, func(tx *engine.Tx) error {
		_, list, next, err := tx.Tree.Snapshots(c, calls.RefOf(r.GetAt()), r.GetAfter(), page(r.GetLimit()))
		if err != nil {
			return err
		}
		*resp = pb.ListSnapshotsResponse{Next: next}
		for _, one := range list {
			a, err := tx.Tree.Stat(nil, namespace.Inode(one.Number())) // who may read the directory need not be able to search it
			if err != nil {
				return err
			}
			resp.Snapshots = append(resp.Snapshots, &pb.Snapshot{Id: uint64(one.ID), Name: one.Name, TimeUnixMs: one.Time, Attr: s.Attr(a), HeldBytes: namespace.SnapshotsOf(tx.Tree, c).HeldBy(one.ID)})
		}
		return nil
	})
	return resp, err
}

// ListSnapshotDirs lists a page of the directories that may have snapshots: those of the caller,
// or all for a superuser.
func (s *Service) ListSnapshotDirs(ctx context.Context, r *pb.ListSnapshotDirsRequest) (*pb.ListSnapshotDirsResponse, error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	resp := new(pb.ListSnapshotDirsResponse)
	err = s.Engine.ViewAnswer(ctx, c, func(tx *engine.Tx) error {
		left, size, table := page(r.GetLimit()), 0, namespace.SnapshotsOf(tx.Tree, c)
		*resp = pb.ListSnapshotDirsResponse{}
		table.EachAllowed(namespace.InodeID(r.GetFrom()), func(dir namespace.InodeID) bool {
			if left == 0 || size >= calls.PageBytes {
				resp.Next = uint64(dir)
				return false
			}
			left--
			a, err := tx.Tree.Stat(c, namespace.Inode(dir))
			if err == nil && (c.IsSuper() || a.User == c.User && !c.Nobody) {
				path, _ := tx.Tree.Path(dir)
				size += len(path)
				resp.Dirs = append(resp.Dirs, &pb.SnapshotDir{Path: path, Snapshots: uint64(table.Count(dir)), HeldBytes: table.HeldOf(dir), Attr: s.Attr(a)}) //nolint:gosec // a count
			}
			return true
		})
		return nil
	})
	return resp, err
}
