// Package trash looks after the trash of the namespace: it shows what is in it to those who
// deleted it, gives it back, and removes it when its time is over (docs/adr/0042).
package trash

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	maxPage = 1000   // entries of one answer
	maxLook = 10_000 // entries that one answer looks at
)

// Request is what all requests about the trash that change something have.
type Request interface {
	proto.Message
	GetCall() *pb.CallId
	GetCaller() *pb.Caller
}

// Config is what a Room works with. All is required.
type Config struct {
	Log    *slog.Logger
	Engine *engine.Engine
	// Caller finds out who asks.
	Caller func(context.Context, *pb.Caller) (*namespace.Call, error)
	// Attr is the wire form of attributes.
	Attr func(namespace.Attr) *pb.Attr
	// Short reports whether the block store has so little room that the trash has to make some,
	// and how much live objects took of the memory when that was last counted, if that is too
	// much, else 0. It is asked once a pass.
	Short func(context.Context) (store bool, heap int64)
	// Emptied is told that there may be memory of deleted directories to be given back.
	Emptied func()
}

// Room answers calls about the trash. Its methods are safe for concurrent use.
type Room struct {
	Config
	// Asked finds out who asks, and for which call.
	Asked func(context.Context, Request) (*namespace.Call, namespace.CallID, error)

	sizes sizes
	heap  int64 // what Short said of the memory when something went for it
}

// now is what Tree.Reigned would be with a record now.
func (s *Room) now(t *namespace.Tree) int64 {
	_, lastMS := t.Last()
	return t.Reigned() + max(0, s.Engine.Now()-lastMS)
}

// ListTrash lists entries that the caller may see.
func (s *Room) ListTrash(ctx context.Context, r *pb.ListTrashRequest) (*pb.ListTrashResponse, error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	user := c.User
	switch {
	case r.GetAll() && !c.Super:
		return nil, fserror.New(fserror.Permission, "", "", "user %s is no superuser, and sees what he has deleted himself, or owned", c.User).Because(fserror.ReasonNotSuperuser)
	case r.GetAll():
		user = ""
	case c.Nobody:
		return &pb.ListTrashResponse{}, nil
	}
	below := r.GetBelow()
	if below != "" {
		if err := fspath.Check(below); err != nil {
			return nil, err
		}
	}
	after, err := readCursor(r.GetCursor())
	if err != nil {
		return nil, err
	}
	limit, looked, size := int(r.GetLimit()), 0, 0
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	resp := new(pb.ListTrashResponse)
	err = s.Engine.View(ctx, c, func(tx *engine.Tx) error {
		clock, now, last := s.Engine.Now(), s.now(tx.Tree), after
		tx.Tree.Trash(c).List(user, after, func(e *tables.Trashed) bool {
			if len(resp.Entries) == limit || looked == maxLook || size >= calls.PageBytes {
				resp.NextCursor = cursor(last)
				return false
			}
			looked++
			if last = e; below != "" && below != "/" && e.Path != below && !strings.HasPrefix(e.Path, below+"/") {
				return true
			}
			a, _ := tx.Tree.Trashed(c, e.Inode)
			if n := s.sizes.size(e.Inode); a.Type == namespace.TypeDir && n != nil {
				a.Length = n.Bytes
			} else if a.Type == namespace.TypeDir {
				a.Length = -1
			}
			kept := max(0, min(clock-e.Time, now-e.At)) // a clock that leaps ages nothing
			entry := &pb.TrashEntry{
				Inode: uint64(e.Inode), User: e.User, Path: e.Path, TimeUnixMs: e.Time, LeftMs: e.Left(now), KeptMs: &kept, Attr: s.Attr(a),
			}
			resp.Entries = append(resp.Entries, entry)
			size += proto.Size(entry)
			return true
		})
		return nil
	})
	return resp, err
}

func cursor(e *tables.Trashed) string { return fmt.Sprintf("%d.%d", e.At, uint64(e.Inode)) }

// readCursor reads what cursor wrote.
func readCursor(text string) (*tables.Trashed, error) {
	if text == "" {
		return nil, nil
	}
	e := new(tables.Trashed)
	if n, err := fmt.Sscanf(text, "%d.%d", &e.At, (*uint64)(&e.Inode)); n == 2 && err == nil && cursor(e) == text {
		return e, nil
	}
	return nil, fserror.New(fserror.InvalidArgument, "", "", "%q is no cursor of this call", text)
}

// RestoreTrash gives an entry a name: see namespace.PlanRestore.
func (s *Room) RestoreTrash(ctx context.Context, r *pb.RestoreTrashRequest) (*pb.MutateResponse, error) {
	c, id, err := s.Asked(ctx, r)
	if err != nil {
		return nil, err
	}
	to, inode := r.GetTo(), namespace.InodeID(r.GetInode())
	at := namespace.Ref{Base: namespace.InodeID(to.GetBase()), Path: to.GetPath()}
	resp, err := s.change(ctx, engine.Request{Call: c, ID: id, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanRestore(tx.Tree, c, inode, at))
	}})
	if err == nil {
		s.sizes.forget(inode)
	}
	return resp, err
}

// EmptyTrash deletes entries for good, but for those that the caller may only restore.
func (s *Room) EmptyTrash(ctx context.Context, r *pb.EmptyTrashRequest) (*pb.MutateResponse, error) {
	if n := len(r.GetInodes()); n == 0 || n > namespace.MaxTrashEmpty {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "1 to %d entries can be removed at once, not %d", namespace.MaxTrashEmpty, n)
	}
	c, id, err := s.Asked(ctx, r)
	if err != nil {
		return nil, err
	}
	op := &namespace.OpTrash{Do: namespace.TrashEmpty}
	resp, err := s.change(ctx, engine.Request{Call: c, ID: id, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		seen := map[namespace.InodeID]bool{}
		var refused error
		op.Inodes = nil
		for _, n := range r.GetInodes() {
			id := namespace.InodeID(n)
			switch err := mayEmpty(tx.Tree, c, id); {
			case fserror.KindOf(err) == fserror.Permission: // he sees it in his trash, and may restore it: it must not keep what else is there
				refused = cmp.Or(refused, err)
			case err == nil && !seen[id]:
				seen[id] = true
				op.Inodes = append(op.Inodes, id)
			}
		}
		if len(op.Inodes) == 0 {
			return nil, cmp.Or(refused, mayEmpty(tx.Tree, c, namespace.InodeID(r.GetInodes()[0])))
		}
		return op, nil
	}})
	if err == nil {
		s.sizes.forget(op.Inodes...)
		s.Emptied()
	}
	return resp, err
}

func (s *Room) change(ctx context.Context, r engine.Request) (*pb.MutateResponse, error) {
	out, err := s.Engine.DoAnswer(ctx, r)
	if err != nil {
		return nil, err
	}
	return &pb.MutateResponse{Txid: out.TxID, Attr: &pb.Attr{Inode: uint64(out.Inode), Length: out.Length}}, nil
}

// Pass removes the entries whose time is over, a page a record; while entries take too much
// memory, the oldest of who has most of it; while the block store has little room, the oldest of
// who has deleted most bytes; and while memory is used up, of who has deleted most inodes. Of the
// last two some go in a pass, and more when it is seen what they freed: once their blocks are
// deleted, or the memory is counted again. Not in safe mode. Before, it counts what has come.
func (s *Room) Pass(ctx context.Context) error {
	s.count(ctx)
	store, heap := s.Short(ctx)
	early, memory := 0, heap > 0 && heap != s.heap
	for ctx.Err() == nil {
		var ids []namespace.InodeID
		r, err := s.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			if tx.Tree.Trash(nil).Len() == 0 || tx.Tree.SafeMode() {
				return nil, nil
			}
			ids = s.over(tx.Tree)
			if c := tx.Tree.Counts(); len(ids) == 0 && c.Detached == 0 && (memory || store && c.Garbage == 0) {
				if memory {
					s.heap = heap
				}
				ids = s.early(tx.Tree, memory)
				store, memory, early = false, false, len(ids)
			}
			if len(ids) == 0 {
				return nil, nil
			}
			return &namespace.OpTrash{Do: namespace.TrashEmpty, Inodes: ids}, nil
		}})
		s.sizes.forget(ids...)
		if err != nil {
			return err
		}
		if r.Noop {
			break
		}
		if early > 0 {
			s.Log.Warn("room is short: deleted files that were kept in the trash are removed before their time", "entries", early)
			early = 0
		}
		s.Emptied()
	}
	return ctx.Err()
}

// earlyPage is how many entries go at once when the block store has little room. Of memory they
// take less, and it is counted seldom.
const earlyPage = 100

// early is what goes when memory is used up, or else the block store has little room: nobody's
// things go because of what another has deleted, and so none before all was counted once.
func (s *Room) early(t *namespace.Tree, memory bool) (ids []namespace.InodeID) {
	page := earlyPage
	if memory {
		page = maxPage
	}
	take := func(e *tables.Trashed) bool {
		ids = append(ids, e.Inode)
		return len(ids) < page
	}
	if user := s.sizes.most(memory); user != "" {
		t.Trash(nil).Oldest(user, take)
	}
	return ids
}

// over is what has to go now: at most a page.
func (s *Room) over(t *namespace.Tree) (ids []namespace.InodeID) {
	trash, now := t.Trash(nil), s.now(t)
	trash.Due(func(e *tables.Trashed) bool {
		if e.Due > now || len(ids) == maxPage {
			return false
		}
		ids = append(ids, e.Inode)
		return true
	})
	if len(ids) == 0 {
		ids = trash.Crowded(maxPage)
	}
	return ids
}

// mayEmpty is namespace.MayTrash for who removes an entry for good. What others have in a
// directory its owner may not remove: who deleted it could. Errors: NotFound, Permission.
func mayEmpty(t *namespace.Tree, c *namespace.Call, id namespace.InodeID) error {
	if err := namespace.MayTrash(t, c, id); err != nil || c.IsSuper() || t.Trash(c).Get(id).User == c.User {
		return err
	}
	if a, _ := t.Trashed(c, id); a.Type == namespace.TypeDir {
		return fserror.New(fserror.Permission, "", "", "user %s owned the directory that is entry %d of the trash, and did not delete it: only who did, and superusers, may remove it for good; it can be restored", c.User, uint64(id)).Because(calls.NotOwner)
	}
	return nil
}
