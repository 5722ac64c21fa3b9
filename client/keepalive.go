package client

import (
	"context"
	"sync"
	"time"

	"github.com/leasefs/leasefs/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// keepAliveBatch is how many leases one message keeps alive.
const keepAliveBatch = 10_000

// KeptLease is a granted lease that this FS keeps alive. It is safe for
// concurrent use.
type KeptLease struct {
	id   LeaseID
	ttl  time.Duration
	ctx  context.Context
	end  context.CancelCauseFunc
	good leaseStamp // when it was certainly alive last
	k    *keeper
}

// ID is the lease's.
func (l *KeptLease) ID() LeaseID { return l.id }

// Context ends when the lease is not kept alive any more: with an error of kind
// LeaseLost as its cause if it ended, or may have (by this machine's clock,
// when no answer came for its time to live); with Closed after Stop.
func (l *KeptLease) Context() context.Context { return l.ctx }

// Stop no longer keeps the lease alive. It does not revoke it.
func (l *KeptLease) Stop() {
	l.k.drop(l, fserror.New(fserror.Closed, "lease keep-alive", "", "keeping it alive was stopped"))
}

// limit is for how long the lease is certainly alive since it was kept alive: a
// little less than its time to live, as for files that are open.
func (l *KeptLease) limit() time.Duration { return l.ttl - min(l.ttl/20, time.Second) }

// keeper keeps granted leases alive: all of them over one stream.
type keeper struct {
	f    *FS
	wake chan struct{}

	mu      sync.Mutex
	kept    map[*KeptLease]struct{}
	running bool
}

// KeepAlive keeps a granted lease alive until KeptLease.Stop, the end of the
// context, or Close of the FS. It returns when the lease was kept alive once.
// All leases of an FS share one stream, on which each is named three times in
// its time to live. NotFound if there is no such lease (or it is another
// user's).
func (f *FS) KeepAlive(ctx context.Context, id LeaseID) (*KeptLease, error) {
	const op = "lease keep-alive"
	t, err := f.LeaseTimeToLive(ctx, id, false)
	if err != nil {
		return nil, fserror.With(err, op, "")
	}
	l := &KeptLease{id: id, ttl: t.TTL, k: &f.keeper}
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	sent := f.read()
	alive, err := f.keepAliveOnce(ctx, []*KeptLease{l})
	if err != nil {
		l.end(err)
		return nil, fserror.With(err, op, "")
	}
	if !alive[id] {
		err := fserror.New(fserror.NotFound, op, "", "there is no lease %s of this user: it has ended, or never was", id)
		l.end(err)
		return nil, err
	}
	l.good.renewed(sent)
	if !f.keeper.add(l) {
		err := fserror.New(fserror.Closed, op, "", "the client is closed")
		l.end(err)
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { l.k.drop(l, contextError(ctx, op, "", false)) })
	context.AfterFunc(l.ctx, func() { stop() })
	return l, nil
}

func (k *keeper) add(l *KeptLease) bool {
	k.mu.Lock()
	if k.kept == nil {
		k.kept = make(map[*KeptLease]struct{})
	}
	k.kept[l] = struct{}{}
	start := !k.running
	k.running = true
	k.mu.Unlock()
	if start && !k.f.goRun(k.loop) {
		return false
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return true
}

// drop ends a lease's context; the first cause counts.
func (k *keeper) drop(l *KeptLease, cause error) {
	k.mu.Lock()
	delete(k.kept, l)
	k.mu.Unlock()
	l.end(cause)
}

// due returns the leases and how long until they should be kept alive again.
func (k *keeper) due() (all []*KeptLease, period time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	period = time.Hour
	for l := range k.kept {
		all = append(all, l)
		period = min(period, l.ttl/3)
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
		if len(all) > 0 {
			if err := k.round(all, period); err != nil {
				k.f.cfg.Logger.Debug("leasefs: keep-alive failed, will be repeated", "err", err)
				period = min(period, backoffFor(fails))
				fails++
			} else {
				fails = 0
			}
		}
		t.Reset(period)
	}
}

func (k *keeper) stop() {
	all, _ := k.due()
	for _, l := range all {
		k.drop(l, fserror.New(fserror.Closed, "lease keep-alive", "", "the client was closed"))
	}
}

// round keeps all leases alive once, and lets those go that have ended.
func (k *keeper) round(all []*KeptLease, period time.Duration) error {
	sent := k.f.read()
	limit := max(period, time.Second)
	for _, l := range all { // no waiting beyond the end of one
		limit = min(limit, l.limit()-l.good.age(sent))
	}
	ctx, cancel := context.WithTimeout(k.f.ctx, max(limit, 10*time.Millisecond))
	defer cancel()
	alive, err := k.f.keepAliveOnce(ctx, all)
	now := k.f.read()
	for _, l := range all {
		is, answered := alive[l.id]
		switch {
		case is:
			l.good.renewed(sent)
		case answered:
			k.drop(l, fserror.New(fserror.LeaseLost, "lease keep-alive", "", "lease %s has ended", l.id))
		case l.good.age(now) >= l.limit():
			k.drop(l, fserror.New(fserror.LeaseLost, "lease keep-alive", "", "lease %s was not kept alive for %s: %v", l.id, l.ttl, err))
		}
	}
	return err
}

// keepAliveOnce names leases on a stream of the active namenode and tells which
// live. The stream is opened for one round: it is rare, and needs no state.
func (f *FS) keepAliveOnce(ctx context.Context, leases []*KeptLease) (alive map[LeaseID]bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ep := f.eps.current.Load()
	defer func() {
		if err != nil {
			e, _ := answerOf(err)
			if f.ctx.Err() == nil {
				f.eps.moveOn(ep, e.Active)
			}
			err = e
		}
	}()
	stream, err := pb.NewNamenodeClient(ep.conn()).KeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	alive = make(map[LeaseID]bool, len(leases))
	for len(leases) > 0 {
		part := leases[:min(len(leases), keepAliveBatch)]
		leases = leases[len(part):]
		req := &pb.KeepAliveRequest{Caller: f.caller, Ids: make([]uint64, len(part))}
		for i, l := range part {
			req.Ids[i] = uint64(l.id)
		}
		if err := stream.Send(req); err != nil {
			_, err = stream.Recv() // it knows why
			return alive, err
		}
		resp, err := stream.Recv()
		if err != nil {
			return alive, err
		}
		for _, l := range resp.GetLeases() {
			alive[LeaseID(l.GetId())] = l.GetTtlMs() > 0
		}
	}
	return alive, stream.CloseSend()
}
