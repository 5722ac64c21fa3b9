package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/keepalive"
)

// Lock is a path that this client holds as a lock: a file that it has open for
// write, and writes nothing to. While it is good, no other client has it; but
// a process can be stopped at any time and continue after its lock has become
// another's. What must not be touched by such a one checks Token: it refuses a
// smaller one than it has seen (M. Kleppmann, How to do distributed locking).
//
// It is safe for concurrent use.
type Lock struct {
	w        *Writer
	f        *FS
	jeopardy chan struct{}
	grace    time.Duration
	once     sync.Once
	done     chan struct{}
}

// LockOptions say how a lock is taken.
type LockOptions struct {
	// Wait is how long to wait for others; waiters are served in the order in
	// which they came. 0: not at all.
	Wait time.Duration
	// Grace is how long before the lock can be another's Jeopardy is told; 0: a
	// quarter of the lock's TTL, at most ten seconds. More than a third of the TTL is an
	// InvalidArgument: so little can be left in perfect health, just before a renewal.
	Grace time.Duration
}

// Lock takes a path as a lock. The file is made if it is missing, with missing
// directories, and stays afterwards; one that is there keeps its bytes. The
// lock is kept until Unlock, for as long as renewals come through; how long it
// survives without is Config.TTL of the FS (see TTL), or the namenode's soft limit. Held,
// with the holder, if another has it longer than Wait.
func (f *FS) Lock(ctx context.Context, path string, o LockOptions) (*Lock, error) {
	ttl := f.session.SoftLimit()
	grace, err := keepalive.Grace(o.Grace, ttl, ttl/3)
	if err != nil {
		return nil, fserror.With(err, "lock", path)
	}
	w, err := f.Append(ctx, path, WithCreate(), WithParents(), WithWait(o.Wait))
	if err != nil {
		var e *fserror.Error
		if errors.As(err, &e) && e.Op == "append" {
			err = fserror.Under(err, "lock", e.Path)
		}
		return nil, err
	}
	l := &Lock{w: w, f: f, jeopardy: make(chan struct{}), done: make(chan struct{}), grace: grace}
	if err := l.renewed(ctx); err != nil {
		_ = w.Abort() // err says more
		return nil, err
	}
	if !f.goRun(l.watch) {
		_ = w.Abort() // the client is closed, which is what counts
		return nil, fserror.New(fserror.Closed, "lock", path, "the client is closed")
	}
	return l, nil
}

// renewed waits until the lock is known to be good for a while: the call that
// took it may have waited for longer than the lock lasts without renewal.
func (l *Lock) renewed(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(max(l.f.session.SoftLimit(), time.Second))
	defer over.Stop()
	for l.Remaining() <= l.grace {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fserror.Ended(ctx, "lock", l.w.Path())
		case <-l.w.Context().Done():
			return fserror.With(context.Cause(l.w.Context()), "lock", l.w.Path())
		case <-over.C:
			return fserror.New(fserror.Unavailable, "lock", l.w.Path(), "it was taken, but then no renewal came through")
		}
	}
	return nil
}

// TTL is how long the lock survives without renewals: Config.TTL, which several
// namenodes raise to what outlives a failover, or the namenode's soft limit. Just after a
// failover it may be less for some seconds.
func (l *Lock) TTL() time.Duration { return l.f.session.SoftLimit() }

// Outlives reports whether the lock cannot be lost to a failover of the namenodes. False:
// its TTL is shorter than a failover can take.
func (l *Lock) Outlives() bool {
	return l.TTL() >= ms(l.f.session.Welcome().GetFailoverMs())
}

// Token grows with each holder of the path: the fencing token.
func (l *Lock) Token() uint64 { return l.w.Token() }

// Context ends when the lock is known to be lost, with the cause, or by Unlock. For exclusion that
// may be too late: while no renewals come through it ends at the hard limit, and others may take
// the lock from its TTL on. Jeopardy and Remaining tell of that.
func (l *Lock) Context() context.Context { return l.w.Context() }

// Jeopardy is closed when renewals do not come through and the lock can be
// another's in LockOptions.Grace: end now what it protects.
func (l *Lock) Jeopardy() <-chan struct{} { return l.jeopardy }

// Remaining is for how long the lock is certainly not another's, by the clock
// of this machine that ran further; below 0 once it can be, and 0 for good once
// the lock is known to be lost or is being given up.
func (l *Lock) Remaining() time.Duration {
	if l.w.lost.Load() != nil || l.w.closing.Load() {
		return 0
	}
	return l.f.session.Remaining(openFile{l.w})
}

// watch reports jeopardy.
func (l *Lock) watch() {
	if keepalive.Jeopardized(l.Remaining, l.grace, l.w.Context().Done(), l.f.ctx.Done(), l.done) {
		close(l.jeopardy)
	}
}

// Unlock gives the lock up. LeaseLost if it was lost before.
func (l *Lock) Unlock(ctx context.Context) error {
	l.once.Do(func() { close(l.done) })
	return l.w.CloseContext(ctx)
}
