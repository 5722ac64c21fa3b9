package client

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// EventType is what an Event tells of.
type EventType int

// The types of events.
const (
	// EventCreate: it was made, or restored from the trash with all that is in it. A file that is made whole, as by WriteFile, is complete
	// then; of one that is written piece by piece, EventClose says when.
	EventCreate EventType = iota + 1
	EventClose            // its writing ended, by its writer or by recovery
	EventDelete           // it, and all below it, was deleted or replaced
	EventRename           // it, and all below it, moved to NewPath
	EventLength           // the file's length changed
	EventAttr             // owner, group, mode or mtime were set
	EventLease            // Holder has it open for write now, or it was attached or detached
)

var eventNames = [...]string{
	EventCreate: "create", EventClose: "close", EventDelete: "delete", EventRename: "rename",
	EventLength: "length", EventAttr: "attr", EventLease: "lease",
}

// String is the type in one lower-case word.
func (t EventType) String() string {
	if t < EventCreate || t > EventLease {
		return "unknown"
	}
	return eventNames[t]
}

// Event is one durable change of a name.
type Event struct {
	TxID uint64 // of the change; several events may have the same
	Type EventType
	// Path is empty, for watchers of an inode, if very many files were closed by one change. A path
	// that is too long to be named ends with "/…".
	Path    string
	NewPath string // of EventRename
	Inode   uint64
	Time    time.Time // by the namenode's clock, to the millisecond
	Length  int64     // of a file, in bytes
	IsDir   bool
	Holder  string // of EventLease: the client name of who has it open
	// Why something was deleted, or closed by another than its writer, and who did that, if
	// it is known: user, client and host.
	Why     string
	By      *Holder
	Trashed bool // of EventDelete: the trash has it now
}

// WatchOptions choose what a Watch tells.
type WatchOptions struct {
	// Recursive: also of everything below the path; else of it and of the
	// entries directly in it.
	Recursive bool
	// From is the transaction id of the first change to tell of; 0: from now on.
	From uint64
	// Inode instead of a path: that file, wherever it is moved.
	Inode uint64
}

// Watcher tells what happens to a path: durable changes only, in order, none
// left out and none twice, over reconnections and failovers too. It is not safe
// for concurrent use.
type Watcher struct {
	f       *engine
	path    string
	target  string // what is watched, links followed; empty before the namenode has said so
	o       WatchOptions
	ctx     context.Context //nolint:containedctx // that of Watch, which governs the Watcher
	cancel  context.CancelFunc
	stream  grpc.ServerStreamingClient[pb.WatchResponse]
	end     context.CancelFunc // of the stream
	ep      *namecall.Node
	upTo    uint64
	started bool
	fails   int
	waits   namecall.Waits // since Watch, or the first of them
}

// Watch begins to watch a path; it need not exist, but its directory must. It
// returns when the watch has begun: whatever changes after that is told. The
// context governs the Watcher, until Close. TooOld if From is not kept any more:
// list the files again, and watch from the change after FileInfo.TxID of the first.
func (f *FS) Watch(ctx context.Context, path string, o WatchOptions) (*Watcher, error) {
	if o.Inode == 0 {
		var err error
		if path, err = clean("watch", path); err != nil {
			return nil, err
		}
	}
	w := &Watcher{f: f.engine, path: path, o: o}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.waits = f.nn.Waits("watch", path)
	if _, err := w.Next(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// TxID is up to which transaction everything was told: watch from the next one
// to continue with another Watcher.
func (w *Watcher) TxID() uint64 { return w.upTo }

// Next waits for changes and returns those of one or more transactions, none of
// them in part. It returns without any from time to time: TxID has moved then.
// It reconnects for as long as it takes. TooOld: the watcher, or the network,
// was too slow, and changes are not kept any more; the Watcher is over.
func (w *Watcher) Next() ([]Event, error) {
	for {
		events, err := w.receive()
		if err == nil {
			return events, nil
		}
		if err = w.again(err); err != nil {
			return nil, err
		}
	}
}

// Close ends the Watcher.
func (w *Watcher) Close() { w.cancel() }

// receive takes the next answer, of a new stream if there is none.
func (w *Watcher) receive() ([]Event, error) {
	if w.stream == nil {
		if err := w.f.nn.Err(); err != nil {
			return nil, err
		}
		ctx, end := context.WithCancel(w.ctx)
		stop := context.AfterFunc(w.f.ctx, end)
		context.AfterFunc(ctx, func() { stop() })
		w.end = end
		w.ep = w.f.nn.Active()
		req := &pb.WatchRequest{Caller: w.f.caller, Path: cmp.Or(w.target, w.path), Recursive: w.o.Recursive, FromTxid: w.o.From, Inode: w.o.Inode}
		if w.started {
			req.FromTxid = w.upTo + 1
			req.Resume = w.target != ""
		}
		var err error
		if w.stream, err = pb.NewNamenodeClient(w.ep.Conn()).Watch(ctx, req); err != nil {
			w.end()
			return nil, err
		}
	}
	m, err := w.stream.Recv()
	if err != nil {
		w.end()
		w.stream = nil
		return nil, err
	}
	w.fails, w.started, w.target = 0, true, cmp.Or(m.GetTarget(), w.target)
	w.upTo = max(w.upTo, m.GetTxid())
	events := make([]Event, len(m.GetEvents()))
	for i, e := range m.GetEvents() {
		events[i] = Event{
			TxID: e.GetTxid(), Type: EventType(e.GetType()), Path: e.GetPath(), NewPath: e.GetNewPath(), Inode: e.GetInode(),
			Time: time.UnixMilli(e.GetTimeUnixMs()), Length: e.GetLength(), IsDir: e.GetDirectory(), Holder: e.GetHolder(), Why: e.GetReason(), Trashed: e.GetTrashed(),
		}
		if e.GetBy() != nil {
			by := wire.Holder(e.GetBy())
			events[i].By = &by
		}
	}
	return events, nil
}

// again pauses before another try, or returns the error that ends the watch.
func (w *Watcher) again(err error) error {
	if w.ctx.Err() != nil {
		return fserror.Ended(w.ctx, "watch", w.path)
	}
	if w.f.ctx.Err() != nil {
		return fserror.With(w.f.nn.Err(), "watch", w.path)
	}
	e, answered := namecall.Answer(err)
	if answered {
		switch e.Kind {
		case fserror.NotActive, fserror.Retry, fserror.Unavailable, fserror.Canceled, fserror.Deadline: // the last: nothing was read for a while
		default:
			return fserror.Under(e, "watch", cmp.Or(e.Path, w.path)) // and not of how the namenode looked for the path
		}
	}
	if !answered || e.Kind != fserror.Deadline { // that namenode serves all else
		w.f.nn.MoveOn(w.ep, e.Active)
	}
	if w.fails == 0 && w.started {
		w.waits = w.f.nn.Endless("watch", w.path)
	}
	delay := max(w.waits.Seek(w.fails), min(e.RetryAfter, namecall.MaxBackoff))
	w.fails++
	return w.waits.Next(w.ctx, &namecall.Call{Op: "watch", Path: w.path}, delay, e, answered)
}
