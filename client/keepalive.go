package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// keepAliveBatch is how many leases one message keeps alive.
const keepAliveBatch = 10_000

// KeptLease is a granted lease that this FS keeps alive. It is safe for
// concurrent use.
type KeptLease struct {
	id  LeaseID
	ttl time.Duration
	// lives is for how long the last answer said that it lives on: ttl, or less
	// just after a long silence.
	lives atomic.Int64
	ctx   context.Context
	end   context.CancelCauseFunc
	good  clock.Stamp // when it was certainly alive last
	k     *keeper
	live  bool // the namenode has said so; guarded by keeper.mu
}

// ID is the lease's.
func (l *KeptLease) ID() LeaseID { return l.id }

// Context ends when the lease is not kept alive any more: with an error of kind
// LeaseLost as its cause if it ended, or may have (by this machine's clock,
// when no answer came for its time to live); with Closed after Stop.
func (l *KeptLease) Context() context.Context { return l.ctx }

// Remaining is for how long the lease certainly lives on, by the clock of this machine
// that ran further; below 0 once it can have ended, and 0 once Context has. After the
// machine stood still it knows before Context does, whose timer was late, too.
func (l *KeptLease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	age := l.good.Age(l.k.f.session.Now()) // before limit: a renewal in between must not count for more
	return l.limit() - age
}

// Stop no longer keeps the lease alive. It does not revoke it.
func (l *KeptLease) Stop() {
	l.k.drop(l, fserror.New(fserror.Closed, "lease keep-alive", "", "keeping it alive was stopped"))
}

// limit is for how long the lease is certainly alive since it was kept alive: a
// little less than the namenode said, as for files that are open.
func (l *KeptLease) limit() time.Duration {
	lives := time.Duration(l.lives.Load())
	return lives - min(lives/20, time.Second)
}

// alive takes in that the namenode has kept the lease alive, asked at sent.
func (l *KeptLease) alive(sent clock.Reading, lives time.Duration) {
	if lives < l.ttl { // before the stamp: it must not count for more
		l.lives.Store(int64(lives))
	}
	l.good.Renew(sent)
	l.lives.Store(int64(min(lives, l.ttl)))
}

// keeper keeps granted leases alive: all of them over one stream, on which the
// namenode also tells at once when one ends.
type keeper struct {
	f    *FS
	wake chan struct{}

	turn chan struct{} // holds an element while somebody uses line
	line *keeperLine   // nil: none is up

	mu      sync.Mutex
	kept    map[*KeptLease]struct{}
	ids     map[LeaseID][]*KeptLease // those that are kept, or are about to be
	running bool
}

func newKeeper(f *FS) *keeper {
	return &keeper{
		f: f, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		kept: make(map[*KeptLease]struct{}), ids: make(map[LeaseID][]*KeptLease),
	}
}

// KeepAlive keeps a granted lease alive until KeptLease.Stop, the end of the
// context, or Close of the FS. It returns when the lease was kept alive once.
// All leases of an FS share one stream, on which each is named three times in
// its time to live; when one is revoked or expires, its context ends at once.
// NotFound if there is no such lease, Permission if it is another user's.
func (l *Leases) KeepAlive(ctx context.Context, id LeaseID) (*KeptLease, error) {
	t, err := l.TimeToLive(ctx, id, false)
	if err != nil {
		return nil, fserror.With(err, keepAliveOp, "")
	}
	kept := &KeptLease{id: id, ttl: t.TTL, k: l.fs.keeper}
	kept.lives.Store(int64(t.TTL))
	kept.ctx, kept.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := l.fs.keeper.begin(ctx, kept); err != nil {
		l.fs.keeper.drop(kept, err)
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { kept.k.drop(kept, fserror.Ended(ctx, keepAliveOp, "")) })
	context.AfterFunc(kept.ctx, func() { stop() })
	return kept, nil
}

const keepAliveOp = "lease keep-alive"

// begin keeps a lease alive for the first time, and has it kept from then on.
func (k *keeper) begin(ctx context.Context, l *KeptLease) error {
	k.mu.Lock()
	k.ids[l.id] = append(k.ids[l.id], l)
	k.mu.Unlock()
	deadline, w := time.Now().Add(k.f.cfg.Timeout), k.f.nn.Waits(keepAliveOp, "")
	for n := 0; ; n++ {
		sent := k.f.session.Now()
		alive, err := k.exchange(ctx, []*KeptLease{l})
		if err == nil {
			if err := wantAlive(l.id, alive[l.id]); err != nil {
				return err
			}
			l.alive(sent, ms(alive[l.id].GetTtlMs()))
			break
		}
		pause := namecall.Backoff(n)
		var e *fserror.Error
		if !errors.As(err, &e) || e.Kind != fserror.Unavailable && e.Kind != fserror.NotActive && e.Kind != fserror.Retry ||
			time.Now().Add(pause).After(deadline) || !w.Again(ctx, pause, e, e.Kind != fserror.Unavailable) {
			return fserror.With(err, keepAliveOp, "")
		}
	}
	k.mu.Lock()
	if l.ctx.Err() == nil { // else it has ended already
		k.kept[l] = struct{}{}
	}
	start := !k.running
	k.running = true
	k.mu.Unlock()
	if start && !k.f.goRun(k.loop) {
		return fserror.New(fserror.Closed, keepAliveOp, "", "the client is closed")
	}
	k.poke()
	return nil
}

// wantAlive is nil if the namenode has kept the lease alive.
func wantAlive(id LeaseID, a *pb.LeaseAlive) error {
	switch {
	case a.GetTtlMs() > 0:
		return nil
	case a.GetOwner() != "":
		return fserror.New(fserror.Permission, keepAliveOp, "", "lease %s belongs to user %s; only that user and the superuser may use it", id, a.GetOwner())
	}
	return fserror.New(fserror.NotFound, keepAliveOp, "", "there is no lease %s: it has ended, or never was; leasefs lease ls lists those that live", id)
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// drop ends a lease's context; the first cause counts.
func (k *keeper) drop(l *KeptLease, cause error) {
	k.mu.Lock()
	delete(k.kept, l)
	k.ids[l.id] = slices.DeleteFunc(k.ids[l.id], func(o *KeptLease) bool { return o == l })
	if len(k.ids[l.id]) == 0 {
		delete(k.ids, l.id)
	}
	last := len(k.ids) == 0
	k.mu.Unlock()
	l.end(cause)
	if last {
		k.poke() // the stream can go
	}
}

// due returns the leases and how long until they should be kept alive again.
func (k *keeper) due() (all []*KeptLease, period time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	period = time.Hour
	for l := range k.kept {
		all = append(all, l)
		if period = min(period, l.ttl/3); time.Duration(l.lives.Load()) < l.ttl {
			period = min(period, l.ttl/30) // so that it is told the whole again
		}
	}
	return all, max(period, 10*time.Millisecond)
}

// loop names all leases again and again. What fails is tried again until the
// leases' time is over by this machine's clocks.
func (k *keeper) loop() {
	t := time.NewTimer(0)
	defer t.Stop()
	fails := 0
	for {
		select {
		case <-k.f.ctx.Done():
			k.stop()
			return
		case <-t.C:
		case <-k.wake:
		}
		all, period := k.due()
		if len(all) == 0 {
			k.rest()
		} else if err := k.round(all, period); err != nil {
			k.f.cfg.Logger.Debug("leasefs: keep-alive failed, will be repeated", "err", err)
			period = min(period, namecall.Backoff(fails), k.left(all))
			fails++
		} else {
			fails = 0
		}
		t.Reset(period)
	}
}

// left is how long one of the leases is certainly alive at least: then its context
// has to end, whatever is tried until then.
func (k *keeper) left(all []*KeptLease) time.Duration {
	now := k.f.session.Now()
	left := time.Hour
	for _, l := range all {
		left = min(left, l.limit()-l.good.Age(now))
	}
	return max(left, time.Millisecond)
}

func (k *keeper) stop() {
	all, _ := k.due()
	for _, l := range all {
		k.drop(l, fserror.New(fserror.Closed, keepAliveOp, "", "the client was closed"))
	}
}

// round keeps all leases alive once, and lets those go that have ended.
func (k *keeper) round(all []*KeptLease, period time.Duration) error {
	sent := k.f.session.Now()
	limit := max(period, time.Second)
	for _, l := range all { // no waiting beyond the end of one
		limit = min(limit, l.limit()-l.good.Age(sent))
	}
	ctx, cancel := context.WithTimeout(k.f.ctx, max(limit, 10*time.Millisecond))
	defer cancel()
	alive, err := k.exchange(ctx, all)
	now := k.f.session.Now()
	for _, l := range all {
		a, answered := alive[l.id]
		switch {
		case a.GetTtlMs() > 0:
			l.alive(sent, ms(a.GetTtlMs()))
		case answered:
			k.drop(l, hasEnded(l.id, ""))
		case l.good.Age(now) >= l.limit():
			k.drop(l, fserror.New(fserror.LeaseLost, keepAliveOp, "", "lease %s was not kept alive for %s: %v; grant another one", l.id, l.ttl, err))
		}
	}
	return err
}

func hasEnded(id LeaseID, reason string) error {
	if reason != "" {
		reason = " (" + reason + ")"
	}
	e := fserror.New(fserror.LeaseLost, keepAliveOp, "", "lease %s has ended%s; grant another one", id, reason)
	return e
}
