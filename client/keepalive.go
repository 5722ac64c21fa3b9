package client

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/keepalive"
)

// KeptLease is a granted lease that this FS keeps alive. It is safe for
// concurrent use.
type KeptLease struct {
	id LeaseID
	l  *keepalive.Lease
	fs *FS
}

// ID is the lease's.
func (l *KeptLease) ID() LeaseID { return l.id }

// Context ends when the lease is not kept alive any more: with an error of kind
// LeaseLost as its cause if it ended, or may have (by this machine's clock,
// when no answer came for its time to live); with Closed after Stop.
func (l *KeptLease) Context() context.Context { return l.l.Context() }

// Remaining is for how long the lease certainly lives on, by the clock of this machine
// that ran further; below 0 once it can have ended, and 0 once Context has. After the
// machine stood still it knows before Context does, whose timer was late, too.
func (l *KeptLease) Remaining() time.Duration { return l.l.Remaining() }

// Jeopardy returns a channel that is closed when keep-alives do not come through and the
// lease may end within grace, or when its Context ends, also by Close of the FS: whatever relies
// on the lease should stop then. A grace of 0 is a quarter of the time to live, at most ten
// seconds. One of more than half the time to live cannot be kept, since so little can be left
// in perfect health: the channel is closed at once, and the log says why. Each call costs a
// goroutine until then.
func (l *KeptLease) Jeopardy(grace time.Duration) <-chan struct{} {
	told := make(chan struct{})
	grace, err := keepalive.Grace(grace, l.l.TTL(), l.l.TTL()/2)
	if err != nil {
		l.fs.cfg.Logger.Error("leasefs: a lease cannot be watched for jeopardy, which is told at once", "lease", l.id, "cause", err)
	}
	if err != nil || !l.fs.goRun(func() {
		keepalive.Jeopardized(l.Remaining, grace, l.Context().Done(), l.fs.ctx.Done(), nil)
		close(told)
	}) {
		close(told) // or the client is closed, and keeps nothing alive
	}
	return told
}

// Stop no longer keeps the lease alive. It does not revoke it.
func (l *KeptLease) Stop() { l.l.Stop() }

// KeepAlive keeps a granted lease alive until KeptLease.Stop, the end of the
// context, or Close of the FS. It returns when the lease was kept alive once.
// All leases of an FS share one stream, on which each is named three times in
// its time to live; when one is revoked or expires, its context ends at once.
// NotFound if there is no such lease, Permission if it is another user's.
func (l *Leases) KeepAlive(ctx context.Context, id LeaseID) (*KeptLease, error) {
	t, err := l.TimeToLive(ctx, id, false)
	if err != nil {
		return nil, fserror.With(err, keepalive.Op, "")
	}
	kept, err := l.fs.keeper.Keep(ctx, keepalive.ID(id), t.TTL)
	if err != nil {
		return nil, err
	}
	return &KeptLease{id: id, l: kept, fs: l.fs}, nil
}

// Hold is KeepAlive with a context that governs only the call: once it has returned, the
// lease is kept alive until KeptLease.Stop, or Close of the FS.
func (l *Leases) Hold(ctx context.Context, id LeaseID) (*KeptLease, error) {
	beyond, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	kept, err := l.KeepAlive(beyond, id)
	if !detach() && err == nil {
		kept.Stop()
		err = fserror.Ended(ctx, keepalive.Op, "")
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return kept, nil
}
