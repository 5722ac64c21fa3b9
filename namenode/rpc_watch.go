package namenode

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/watch"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// watchProgress is how often a watch on which nothing happens is told how far
// it is, so that it can be resumed from there.
const watchProgress = 10 * time.Second

// watchEvents appends the events of a record in the form in which they are kept.
func watchEvents(to []watch.Event, e *namespace.Entry, r *namespace.Result) []watch.Event {
	_, closes := e.Op.(*namespace.OpClose) // which needs no reason
	for i := range r.Events {
		ev := &r.Events[i]
		to = append(to, watch.Event{
			TxID: e.TxID, Time: e.Time, Type: watch.Type(ev.Type), Inode: uint64(ev.Inode),
			Dir: uint64(ev.Dir), NewDir: uint64(ev.NewDir), Path: ev.Path, NewPath: ev.NewPath,
			Length: ev.Length, IsDir: ev.IsDir, Holder: ev.Holder, Trashed: ev.Trashed,
		})
		if ev := &to[len(to)-1]; ev.Type == watch.Delete || ev.Type == watch.Close && !closes {
			why, by := history.Why(e, r, "")
			if ev.Why = why; by != nil {
				ev.By = &watch.Who{User: by.User, Client: by.Client, Host: by.Host}
			}
		}
	}
	return to
}

// Watch tells what happens to a path or below it.
func (s *watches) Watch(r *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ctx := stream.Context()
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return fserror.With(err, "watch", r.GetPath())
	}
	filter := watch.Filter{Inode: r.GetInode(), Recursive: r.GetRecursive()}
	if filter.Path, err = s.watched(ctx, c, r); err != nil {
		return fserror.With(err, "watch", r.GetPath())
	}
	who := taker(ctx, c)
	if !s.watchers.Take(1, who) {
		return fserror.With(serve.TooMany(s.watchers, 1, who), "watch", r.GetPath())
	}
	defer s.watchers.Give(1, who)
	w, start, err := s.events.Watch(r.GetFromTxid(), filter)
	if err != nil {
		return watchError(err, r.GetPath())
	}
	defer w.Close()
	// At once, so that the caller knows from where on nothing is missed.
	if err := stream.Send(&pb.WatchResponse{Txid: start - 1, Target: filter.Path}); err != nil {
		return err
	}
	// Who takes nothing of it for a while is cut off: it would keep what is
	// sent in memory.
	send := serve.Patient(ctx, s.patience, "watch", r.GetPath())
	quiet := time.NewTimer(watchProgress) // at its end the watch is told how far it is
	defer quiet.Stop()
	for {
		quiet.Reset(watchProgress)
		events, upTo, err := w.NextUntil(ctx, quiet.C)
		if err == nil {
			events, err = s.visible(ctx, c, &filter, events)
		}
		if err != nil {
			if errors.As(err, new(*watch.TooOldError)) {
				s.watchers.Slow(who)
			}
			return watchError(err, r.GetPath())
		}
		resp := watchResponse(events, upTo)
		if err := send(func() error { return stream.Send(resp) }); err != nil {
			return fserror.With(err, "watch", r.GetPath())
		}
	}
}

// watched is the path to watch, links on the way followed; empty for an inode. What is watched
// need not exist, but its directory has to, and to be one that the caller may search. A watch of a
// path that is resumed has it already, and both may be gone: that is what is told next.
func (s *watches) watched(ctx context.Context, c *namespace.Call, r *pb.WatchRequest) (where string, err error) {
	path, at := r.GetPath(), namespace.Follow(r.GetPath())
	if inode := namespace.InodeID(r.GetInode()); inode != 0 {
		path, at = "", namespace.Inode(inode)
	} else if err := fspath.Check(path); err != nil {
		return "", err
	}
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if path != "" && r.GetResume() {
			_, err := tx.Tree.Stat(c, namespace.At(path))
			if where = path; errors.Is(err, fserror.NotFound) || errors.Is(err, fserror.NotDirectory) {
				return nil
			}
			return err
		}
		a, err := tx.Tree.Stat(c, at)
		switch {
		case err == nil && path != "":
			where, _ = tx.Tree.Path(a.ID)
			return nil
		case path == "" || !errors.Is(err, fserror.NotFound):
			return err
		}
		dir, name := fspath.Split(path)
		if a, err = tx.Tree.Stat(c, namespace.Follow(dir)); err != nil {
			return err
		}
		where, _ = tx.Tree.Path(a.ID)
		where = fspath.Join(where, name)
		return nil
	})
	return where, err
}

// visible is what a caller may see of events, which it changes: of each, its
// directory, as it is now, must be one that the caller could list. Who watches
// from the outside must not learn names in closed directories. What decides that is durable
// when it returns: else an event could be left out for a change that a crash takes back. The namenode is
// active then: who cannot know of later changes must not look as if there were none.
func (s *watches) visible(ctx context.Context, c *namespace.Call, f *watch.Filter, events []*watch.Kept) (seen []*watch.Kept, err error) {
	if c.Super || len(events) == 0 {
		return events, s.role.Active()
	}
	seen = events[:0]
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		for _, e := range events {
			if e = shown(tx.Tree, c, f, e); e != nil {
				seen = append(seen, e)
			}
		}
		return nil
	})
	return seen, err
}

// shown is what a caller may see of an event, or nil. What is moved out of a closed
// directory, or out of one that is deleted by now, is new to the caller; what is
// moved into one is gone. Of what the watch itself names, it is enough that stat would tell of
// it. The namespace is locked.
func shown(t *namespace.Tree, c *namespace.Call, f *watch.Filter, e *watch.Kept) *watch.Kept {
	if e.Dir == 0 {
		return e
	}
	may := func(dir uint64, path string) bool {
		id := namespace.InodeID(dir)
		return namespace.MayList(t, c, id) || f.Names(e.Inode, path) && t.MaySearch(c, id)
	}
	sees := may(e.Dir, e.Path)
	arrives := sees
	if e.Type == watch.Rename {
		arrives = may(e.NewDir, e.NewPath)
	}
	switch {
	case sees && arrives:
		return e
	case sees:
		part := &watch.Kept{Event: e.Event}
		part.Type, part.NewPath = watch.Delete, ""
		return part
	case arrives:
		part := &watch.Kept{Event: e.Event}
		part.Type, part.Path, part.NewPath = watch.Create, e.NewPath, ""
		return part
	}
	return nil
}

// watchError says what to do when a watch has to start over.
func watchError(err error, path string) error {
	if errors.Is(err, watch.ErrClosed) {
		return &fserror.Error{Kind: fserror.NotActive, Op: "watch", Path: path, Message: "the namenode is stopping", RetryAfter: 100 * time.Millisecond}
	}
	var old *watch.TooOldError
	if errors.As(err, &old) {
		return fserror.New(fserror.TooOld, "watch", path,
			"changes from %d on are not kept any more, only those from %d on; list again, and watch from the txid of the listing + 1", old.From, old.Oldest)
	}
	return fserror.With(err, "watch", path)
}

// watchResponse has events that were encoded before, once for all who see them.
// They are put where fields go that a message does not know: what is received is
// the same.
func watchResponse(events []*watch.Kept, upTo uint64) *pb.WatchResponse {
	resp := &pb.WatchResponse{Txid: upTo}
	if len(events) == 0 {
		return resp
	}
	size := 0
	for _, e := range events {
		size += len(e.Encoded(encodeEvent))
	}
	all := make([]byte, 0, size)
	for _, e := range events {
		all = append(all, e.Encoded(encodeEvent)...)
	}
	resp.ProtoReflect().SetUnknown(all)
	return resp
}

// encodeEvent is the event as one of WatchResponse.events.
func encodeEvent(e *watch.Event) []byte {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") } // all are; with others Marshal would fail
	var by *pb.HolderInfo
	if e.By != nil {
		by = &pb.HolderInfo{User: valid(e.By.User), Client: valid(e.By.Client), Host: valid(e.By.Host)}
	}
	b, _ := proto.Marshal(&pb.WatchResponse{Events: []*pb.Event{{
		Txid: e.TxID, Type: pb.EventType(e.Type), Path: valid(e.Path), NewPath: valid(e.NewPath), Inode: e.Inode,
		TimeUnixMs: e.Time, Length: e.Length, Directory: e.IsDir, Holder: valid(e.Holder), Reason: valid(e.Why), By: by, Trashed: e.Trashed,
	}}})
	return b
}
