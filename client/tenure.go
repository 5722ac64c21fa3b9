package client

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// tenure is that a Writer has the file: who it is to the namenode, how good its lease
// is, and what ends when that is lost.
type tenure struct {
	fs   *engine
	path string
	id   *pb.WriterId // shared by all requests, never changed
	key  session.Key
	file session.File // the Writer, as the session knows it

	ctx      context.Context // ends with the cause when the lease is lost
	cancel   context.CancelCauseFunc
	work     context.Context // of blocks and flushes under way; ends earlier, with Abort
	stopWork context.CancelCauseFunc
	lost     atomic.Pointer[fserror.Error]
	closing  atomic.Bool // Close, Abort or Detach has begun
	lease    clock.Stamp

	mu   sync.Mutex // guards the content
	cond *sync.Cond // the content changed, or the tenure ends
}

// usable tells whether bytes can be written and flushed. The caller holds mu.
func (t *tenure) usable() error {
	if e := t.lost.Load(); e != nil {
		return e
	}
	if t.closing.Load() {
		return fserror.New(fserror.Closed, "", "", "the writer is closed")
	}
	return nil
}

// wait waits until something under mu changes, or the context ends. The caller
// holds mu.
func (t *tenure) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock() // not before Wait has let go of it
		defer t.mu.Unlock()
		t.cond.Broadcast()
	})
	t.cond.Wait()
	stop()
	if ctx.Err() != nil {
		return fserror.Ended(ctx, "write", t.path)
	}
	return nil
}

// check finds a lease that is over before the watchdog does.
func (t *tenure) check() error {
	if t.lost.Load() == nil {
		t.fs.session.Check(t.file)
	}
	if e := t.lost.Load(); e != nil {
		return e
	}
	return nil
}

// lose ends the Writer: its lease is lost. The first cause counts.
func (t *tenure) lose(e *fserror.Error) {
	c := *e
	if c.Path == "" {
		c.Path = t.path
	}
	if !t.lost.CompareAndSwap(nil, &c) {
		return
	}
	t.fs.session.Lost(t.file)
	t.cancel(&c)
	t.mu.Lock()
	t.cond.Broadcast()
	t.mu.Unlock()
	t.fs.cfg.Logger.Warn("leasefs: lease lost", "path", t.path, "inode", t.key.Inode, "epoch", t.key.Epoch, "err", &c)
}

// seen takes note of the error of a call of this writer, and returns it.
func (t *tenure) seen(err error) error {
	if err == nil {
		return nil
	}
	if k := fserror.KindOf(err); k == fserror.LeaseLost || k == fserror.LeaseLostGone {
		var e *fserror.Error
		if errors.As(err, &e) {
			t.lose(e)
			return t.lost.Load()
		}
	}
	return err
}

// seenLocked is seen for callers that hold mu.
func (t *tenure) seenLocked(err error) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	return t.seen(err)
}

// under is ctx, ended with the cause when the lease is lost.
func (t *tenure) under(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// closeLate closes the file at what is flushed, if it is still open as this Writer opened it. Its token is
// the right to do so: by now the file may have another name, or one that the user may not write.
func (t *tenure) closeLate(ctx context.Context) error {
	req := &pb.CloseRequest{Call: t.fs.ids.Next(), Writer: t.id, Length: -1, MtimeUnixMs: math.MinInt64}
	defer t.fs.ids.Retire(req.Call)
	return t.fs.nn.Do(ctx, &namecall.Call{Op: "close", Path: t.path, Mutates: true}, pb.Namenode_Close_FullMethodName, req, new(pb.CloseResponse))
}
