package namenode

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/fspath"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/watch"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// watchProgress is how often a watch on which nothing happens is told how far
// it is, so that it can be resumed from there.
const watchProgress = 10 * time.Second

// maxWatchers is how many watches a namenode serves at once.
const maxWatchers = 10_000

// watchEvents is the form in which the events of a record are kept.
func watchEvents(e namespace.Entry, events []namespace.Event) []watch.Event {
	if len(events) == 0 {
		return nil
	}
	out := make([]watch.Event, len(events))
	for i, ev := range events {
		out[i] = watch.Event{
			TxID: e.TxID, Time: e.Time, Type: watch.Type(ev.Type), Inode: uint64(ev.Inode),
			Dir: uint64(ev.Dir), NewDir: uint64(ev.NewDir), Path: ev.Path, NewPath: ev.NewPath,
			Length: ev.Length, IsDir: ev.IsDir, Holder: ev.Holder,
		}
	}
	return out
}

// keepEvents notes what a record did, for watches. The caller holds mu, or is
// alone.
func (s *Server) keepEvents(e namespace.Entry, events []namespace.Event) {
	s.events.Add(watchEvents(e, events), e.TxID)
	s.applied.Store(e.TxID)
	s.wake(&s.publishWake)
}

// publishLoop shows watchers what is durable, and nothing else.
func (s *Server) publishLoop(ctx context.Context) error {
	published := uint64(0)
	for {
		select {
		case <-ctx.Done():
			s.events.Close()
			return nil
		case <-s.publishWake:
		}
		for last := s.applied.Load(); published < last; last = s.applied.Load() {
			if s.journal.Durable() <= published {
				if s.journal.WaitDurable(ctx, published+1) != nil {
					break // the namenode ends, and says why
				}
			}
			published = min(s.journal.Durable(), last)
			if s.gather(ctx, s.events.Publish(published)) != nil {
				break
			}
		}
	}
}

// A watcher that is woken puts the next changes off by wakeCost, several times
// what it takes to tell it something, all of them together by no more than
// longestGather.
const (
	wakeCost      = 100 * time.Microsecond
	longestGather = 500 * time.Millisecond
)

// gather lets changes gather while watchers are told of those before: so many
// were woken. All of them get what has gathered at once, and however many there
// are they leave the namenode time for others.
func (s *Server) gather(ctx context.Context, woken int) error {
	pause := min(time.Duration(woken)*wakeCost, longestGather)
	if pause < time.Millisecond {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fewEvents is how many events a watcher may be sent that takes no place among
// those that catch up.
const fewEvents = 32

// tell sends a watcher what is new to it. Who takes nothing of it for a while is
// cut off: it would keep what is sent in memory. Of long answers only some are
// under way at once.
func (s *Server) tell(ctx context.Context, stream grpc.ServerStreamingServer[pb.WatchResponse], resp *pb.WatchResponse) error {
	if len(resp.GetEvents()) > fewEvents {
		select {
		case s.catchUp <- struct{}{}:
			defer func() { <-s.catchUp }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.send(func() error { return stream.Send(resp) })
}

// Watch tells what happens to a path or below it.
func (s *service) Watch(r *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ctx := stream.Context()
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return fserror.With(err, "watch", r.GetPath())
	}
	filter := watch.Filter{Inode: r.GetInode(), Recursive: r.GetRecursive()}
	if filter.Inode == 0 {
		if filter.Path, err = s.watchPath(ctx, c, r.GetPath()); err != nil {
			return fserror.With(err, "watch", r.GetPath())
		}
	} else if err := s.read(ctx, c, func() error {
		_, err := s.tree.StatInode(c, namespace.InodeID(filter.Inode))
		return err
	}); err != nil {
		return fserror.With(err, "watch", "")
	}
	who := taker(ctx, c)
	if !s.watchers.Take(1, who) {
		return &fserror.Error{Kind: fserror.Retry, Op: "watch", Path: r.GetPath(), Message: "too many watches at once", RetryAfter: time.Second}
	}
	defer s.watchers.Give(1, who)
	w, start, err := s.events.Watch(r.GetFromTxid(), filter)
	if err != nil {
		return watchError(err, r.GetPath())
	}
	defer w.Close()
	// At once, so that the caller knows from where on nothing is missed.
	if err := stream.Send(&pb.WatchResponse{Txid: start - 1}); err != nil {
		return err
	}
	for {
		events, upTo, err := s.nextEvents(ctx, w)
		if err == nil {
			err = s.checkActive() // who cannot know of later changes must not look as if there were none
		}
		if err != nil {
			return watchError(err, r.GetPath())
		}
		resp := &pb.WatchResponse{Txid: upTo}
		for i := range events {
			if e, ok := s.shown(c, events[i]); ok {
				resp.Events = append(resp.Events, wireEvent(&e))
			}
		}
		if err := s.tell(ctx, stream, resp); err != nil {
			return fserror.With(err, "watch", r.GetPath())
		}
	}
}

// nextEvents waits for events; none after watchProgress.
func (s *Server) nextEvents(ctx context.Context, w *watch.Watcher) ([]watch.Event, uint64, error) {
	short, cancel := context.WithTimeout(ctx, watchProgress)
	defer cancel()
	events, upTo, err := w.Next(short)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, w.UpTo(), nil
	}
	return events, upTo, err
}

// watchPath is the path to watch, links on the way followed. What is watched
// need not exist, but its directory has to, and to be one that the caller may
// search.
func (s *Server) watchPath(ctx context.Context, c *namespace.Call, path string) (string, error) {
	if err := fspath.Check(path); err != nil {
		return "", err
	}
	var where string
	err := s.read(ctx, c, func() error {
		a, err := s.tree.Stat(c, path, true)
		if err == nil {
			where, _ = s.tree.Path(a.ID)
			return nil
		}
		if !errors.Is(err, fserror.NotFound) {
			return err
		}
		dir, name := fspath.Split(path)
		if a, err = s.tree.Stat(c, dir, true); err != nil {
			return err
		}
		where, _ = s.tree.Path(a.ID)
		where = fspath.Join(where, name)
		return nil
	})
	return where, err
}

// shown is what a caller may see of an event: its directory, as it is now, must
// be one that the caller could look into. Who watches from the outside must not
// learn names in closed directories. What is moved out of one, or out of one
// that is deleted by now, is new to him; what is moved into one is gone.
func (s *Server) shown(c *namespace.Call, e watch.Event) (watch.Event, bool) {
	if c.Super || e.Dir == 0 {
		return e, true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	sees := s.tree.MaySearch(c, namespace.InodeID(e.Dir))
	if e.Type != watch.Rename {
		return e, sees
	}
	switch arrives := s.tree.MaySearch(c, namespace.InodeID(e.NewDir)); {
	case sees && arrives:
	case sees:
		e.Type, e.NewPath = watch.Delete, ""
	case arrives:
		e.Type, e.Path, e.NewPath = watch.Create, e.NewPath, ""
	default:
		return e, false
	}
	return e, true
}

// watchError says what to do when a watch has to begin anew.
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

func wireEvent(e *watch.Event) *pb.Event {
	return &pb.Event{
		Txid: e.TxID, Type: pb.EventType(e.Type), Path: e.Path, NewPath: e.NewPath, Inode: e.Inode,
		TimeUnixMs: e.Time, Length: e.Length, Directory: e.IsDir, Holder: e.Holder,
	}
}
