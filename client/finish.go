package client

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// closeGrace is how long closing a file at its flushed length is tried on after
// the context has ended: it must not stay open for that.
const closeGrace = 3 * time.Second

// lingering is ctx, ended closeGrace later.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(closeGrace, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(late, func() { t.Stop() })
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}

// Close is CloseContext without a time limit but the FS's Timeout for each call.
func (w *Writer) Close() error { return w.CloseContext(context.WithoutCancel(w.ctx)) }

// CloseContext makes all that was written durable, closes the file and gives
// its lease back. Few remaining bytes go with the closing call itself. The
// Writer is done with afterwards, whatever is returned:
//
//   - LeaseLost: the file has another holder or was closed by recovery; what
//     was not flushed before is not in it.
//   - Any other error: what could not be made durable is not in the file
//     (Durable tells how far it goes); it was closed at its flushed length, or,
//     if no namenode answered, is closed so in the background as soon as one
//     does, or recovered at the lease's hard limit. (The cause of Context is
//     of kind Closed, or else why it was not confirmed.) When the context ends
//     that is still tried for three seconds.
//
// A second call returns an error of kind Closed and does nothing.
func (w *Writer) CloseContext(ctx context.Context) error { return w.close(ctx, false) }

// close is CloseContext, or with keeps CloseOrKeep.
func (w *Writer) close(ctx context.Context, keeps bool) error {
	if err := w.beginEnd("close"); err != nil {
		return err
	}
	late, over := lingering(ctx)
	defer over()
	late, cancelLate := w.under(late)
	defer cancelLate()
	ctx, cancel := w.under(ctx)
	defer cancel()
	err := w.settle(ctx)
	unconfirmed := false
	if err == nil {
		err = w.closeWithRest(ctx)
		unconfirmed = fserror.Transient(err)
	}
	switch {
	case err == nil || w.lost.Load() != nil || errors.Is(err, fserror.LeaseLost):
	case keeps && fserror.Transient(err):
		w.closing.Store(false)
		if w.fs.mayOpen("", "") == nil || w.beginEnd("close") != nil {
			return fserror.With(err, "close", w.path)
		}
		w.abandon(err) // the FS is closing, and waits for this
	case unconfirmed:
		w.abandon(err)
	default:
		// The bytes are lost to this file; the file must not stay open.
		w.quiet(err)
		if cerr := w.closeAt(late); cerr != nil {
			w.abandon(cerr)
		}
	}
	err = w.seen(err)
	w.release()
	return fserror.With(err, "close", w.path)
}

// Abort closes the file at its flushed length and drops what was not flushed.
// Blocks that were on their way may have become part of it. LeaseLost if
// another has the file; Closed if it was closed before.
func (w *Writer) Abort() error { return w.AbortContext(context.WithoutCancel(w.ctx)) }

// AbortContext is Abort, which is tried for three seconds more when the context
// ends (or has ended).
func (w *Writer) AbortContext(ctx context.Context) error {
	if err := w.beginEnd("close"); err != nil {
		return err
	}
	ctx, over := lingering(ctx)
	defer over()
	ctx, cancel := w.under(ctx)
	defer cancel()
	w.quiet(fserror.New(fserror.Closed, "", w.path, "the writer was aborted"))
	err := w.seen(w.closeAt(ctx))
	if err != nil {
		w.abandon(err)
	}
	w.release()
	return fserror.With(err, "close", w.path)
}

// Detach forgets the file without closing it and drops what was not flushed.
// Nobody renews its lease any more: another may take it after the soft limit,
// a later process of the same user and client name at once (CloseFile,
// Append), and the namenode closes it at the hard limit.
func (w *Writer) Detach() error {
	if err := w.beginEnd("detach"); err != nil {
		return err
	}
	w.quiet(fserror.New(fserror.Closed, "", w.path, "the writer was detached"))
	var err error
	if e := w.lost.Load(); e != nil {
		err = e
	}
	w.release()
	return fserror.With(err, "detach", w.path)
}

// beginEnd lets one of Close, Abort and Detach through, once.
func (w *Writer) beginEnd(op string) error {
	if !w.closing.CompareAndSwap(false, true) {
		return fserror.New(fserror.Closed, op, w.path, "the writer is closed already")
	}
	w.mu.Lock()
	w.cond.Broadcast()
	w.mu.Unlock()
	return nil
}

// settle gets everything on its way that cannot go with Close.
func (w *Writer) settle(ctx context.Context) error {
	// A Write under way ends first: it sees that the Writer is closing.
	w.writeMu.Lock()
	defer w.writeMu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if e := w.lost.Load(); e != nil {
			return e
		}
		r := w.round
		if r == nil && w.blockErr == nil && w.fitsClose() {
			return nil
		}
		if r == nil {
			r = w.startRound(ctx, true)
		}
		w.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			w.mu.Lock()
			return fserror.Ended(ctx, "close", w.path)
		}
		w.mu.Lock()
		if r.err != nil {
			return r.err
		}
	}
}

// closeWithRest closes the file, the remaining bytes with it. If the namenode
// has no room for them in a tail, they become a block first.
func (w *Writer) closeWithRest(ctx context.Context) error {
	w.mu.Lock()
	var rest []byte
	if w.length > w.durable {
		rest = w.cur.B[w.durable-w.start:]
	}
	w.mu.Unlock()
	lost, err := w.sendClose(ctx, rest)
	if len(rest) > 0 && !lost && tailRefused(err) {
		w.mu.Lock()
		w.dispatch()
		w.mu.Unlock()
		if err = w.drain(ctx); err == nil {
			_, err = w.sendClose(ctx, nil)
		}
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.durable = w.length
	w.mu.Unlock()
	return nil
}

func (w *Writer) sendClose(ctx context.Context, rest []byte) (lost bool, err error) {
	if err := w.check(); err != nil {
		return false, err
	}
	req := &pb.CloseRequest{
		Call: w.fs.ids.Next(), Writer: w.id, Offset: w.Durable(), Data: rest, Crc32C: blockstore.CRC(rest), MtimeUnixMs: w.mtime,
	}
	defer w.fs.ids.Retire(req.Call)
	req.Length = req.Offset + int64(len(rest))
	c := namecall.Call{Op: "close", Path: w.path, Mutates: true, TailToo: len(rest) > 0}
	g := w.fs.giveUpFile(w.key.Inode)
	req.GivenUp = g.wire()
	err = w.fs.nn.Do(ctx, &c, pb.Namenode_Close_FullMethodName, req, new(pb.CloseResponse))
	g.settle(&c, err)
	return c.Lost, err
}

// closeAt closes the file at what is flushed, which the namenode may know
// better: a reply may have been lost.
func (w *Writer) closeAt(ctx context.Context) error {
	for range 2 {
		_, err := w.sendClose(ctx, nil)
		var e *fserror.Error
		if !errors.As(err, &e) || e.Kind != fserror.NotAtEnd {
			return err
		}
		w.mu.Lock()
		w.durable = e.Length
		w.mu.Unlock()
	}
	return fserror.New(fserror.Internal, "close", w.path, "the namenode changes its mind about the file's length")
}

// release gives up what the Writer has.
func (w *Writer) release() {
	w.quiet(fserror.New(fserror.Closed, "", w.path, "the writer is closed"))
	defer close(w.done)
	w.fs.session.Remove(w.file)
	why := w.unclosed
	if why == nil {
		why = fserror.New(fserror.Closed, "", w.path, "the writer is closed")
	}
	w.cancel(why)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cur != nil {
		w.cur.Free()
	}
	for _, b := range w.pending {
		b.leave.Give()
	}
	w.cur, w.pending = nil, nil
}

// abandon sees to it that a file whose close was not confirmed does not stay
// open: in the background, it is closed at its flushed length as soon as a namenode
// answers. If nothing of that works, the lease lapses, since nobody renews it.
func (w *Writer) abandon(err error) {
	if w.lost.Load() != nil || errors.Is(err, fserror.LeaseLost) || errors.Is(err, fserror.NotFound) {
		return
	}
	w.unclosed = err
	w.fs.cfg.Logger.Warn("leasefs: closing a file was not confirmed; it is tried in the background", "path", w.path, "err", err)
	w.fs.goRun(func() { w.fs.giveback.Try(w.path, w.closeLate) })
}
