package keepalive

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/turn"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// batch is how many leases one message keeps alive.
const batch = 10_000

// ID names a granted lease. It is shown in hexadecimal.
type ID uint64

func (id ID) String() string { return strconv.FormatUint(uint64(id), 16) }

// Lease is a granted lease that is kept alive. It is safe for
// concurrent use.
type Lease struct {
	id  ID
	ttl time.Duration
	// lives is for how long the last answer said that it lives on: ttl, or less
	// just after a long silence.
	lives atomic.Int64
	ctx   context.Context
	end   context.CancelCauseFunc
	good  clock.Stamp // when it was certainly alive last
	k     *Keeper
	told  atomic.Bool // see UntilTold
	live  bool        // the namenode has said so; guarded by Keeper.mu
}

// Context ends when the lease is not kept alive any more: with an error of kind
// LeaseLost as its cause if it ended, or may have (by this machine's clock,
// when no answer came for its time to live); with Closed after Stop.
func (l *Lease) Context() context.Context { return l.ctx }

// TTL is the lease's time to live.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Remaining is for how long the lease certainly lives on, by the clock of this machine
// that ran further; below 0 once it can have ended, and 0 once Context has. After the
// machine stood still it knows before Context does, whose timer was late, too.
func (l *Lease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return l.sure(clock.Read(l.k.cfg.Clock))
}

func (l *Lease) sure(now clock.Reading) time.Duration {
	age := l.good.Age(now) // before limit: a renewal in between must not count for more
	return l.limit() - age
}

// left is when the lease's context has to end if no answer comes until then.
func (l *Lease) left(now clock.Reading) time.Duration {
	if l.told.Load() {
		return time.Hour
	}
	return l.sure(now)
}

// UntilTold makes Context end only when the namenode says that the lease has ended, however
// long no answer comes: while no namenode is active, leases do not age. Remaining then tells
// whether it may have ended.
func (l *Lease) UntilTold() { l.told.Store(true) }

// Stop no longer keeps the lease alive. It does not revoke it.
func (l *Lease) Stop() {
	l.k.drop(l, fserror.New(fserror.Closed, Op, "", "keeping it alive was stopped"))
}

// limit is for how long the lease is certainly alive since it was kept alive: a
// little less than the namenode said, as for files that are open.
func (l *Lease) limit() time.Duration {
	return clock.Sure(time.Duration(l.lives.Load()))
}

// alive takes in that the namenode has kept the lease alive, asked at sent.
func (l *Lease) alive(sent clock.Reading, lives time.Duration) {
	if lives < l.ttl { // before the stamp: it must not count for more
		l.lives.Store(int64(lives))
	}
	l.good.Renew(sent)
	l.lives.Store(int64(min(lives, l.ttl)))
}

// Config is what a Keeper is made of. All is needed.
type Config struct {
	Namenodes *namecall.Namenodes
	Caller    *pb.Caller
	Clock     clock.Clock
	Logger    *slog.Logger
	// Go starts a goroutine; false if the client is closed.
	Go func(func()) bool
}

// Keeper keeps granted leases alive. It is safe for concurrent use.
type Keeper struct {
	ctx  context.Context //nolint:containedctx // of New
	cfg  Config
	wake chan struct{}

	turn turn.Turn // of who uses line
	line *line     // nil: none is up

	mu      sync.Mutex // guards what is below
	kept    map[*Lease]struct{}
	ids     map[ID][]*Lease // those that are kept, or are about to be
	running bool
}

// New returns a Keeper, which keeps leases alive until the context ends.
func New(ctx context.Context, cfg Config) *Keeper {
	return &Keeper{
		ctx: ctx, cfg: cfg, wake: make(chan struct{}, 1), turn: turn.New(),
		kept: make(map[*Lease]struct{}), ids: make(map[ID][]*Lease),
	}
}

// Keep keeps a granted lease alive until Lease.Stop, the end of the context, or
// of that of New. It returns when the lease was kept alive once.
func (k *Keeper) Keep(ctx context.Context, id ID, ttl time.Duration) (*Lease, error) {
	l := &Lease{id: id, ttl: ttl, k: k}
	l.lives.Store(int64(ttl))
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := k.keepFirst(ctx, l); err != nil {
		k.drop(l, err)
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { k.drop(l, fserror.Ended(ctx, Op, "")) })
	context.AfterFunc(l.ctx, func() { stop() })
	return l, nil
}

// Op is the operation that errors name.
const Op = "lease keep-alive"

// keepFirst keeps a lease alive for the first time, and has it kept from then on.
func (k *Keeper) keepFirst(ctx context.Context, l *Lease) error {
	k.mu.Lock()
	k.ids[l.id] = append(k.ids[l.id], l)
	k.mu.Unlock()
	w := k.cfg.Namenodes.Waits(Op, "")
	err := w.Try(ctx, func() error {
		sent := clock.Read(k.cfg.Clock)
		alive, err := k.exchange(ctx, []*Lease{l})
		if err == nil {
			err = wantAlive(l.id, alive[l.id])
		}
		if err == nil {
			l.alive(sent, ms(alive[l.id].GetTtlMs()))
		}
		return err
	})
	if err != nil {
		return fserror.With(err, Op, "")
	}
	k.mu.Lock()
	if l.ctx.Err() == nil { // else it has ended already
		k.kept[l] = struct{}{}
	}
	start := !k.running
	k.running = true
	k.mu.Unlock()
	if start && !k.cfg.Go(k.loop) {
		return fserror.New(fserror.Closed, Op, "", "the client is closed")
	}
	k.poke()
	return nil
}

// wantAlive is nil if the namenode has kept the lease alive.
func wantAlive(id ID, a *pb.LeaseAlive) error {
	switch {
	case a.GetTtlMs() > 0:
		return nil
	case a.GetOwner() != "":
		return fserror.New(fserror.Permission, Op, "", "lease %s belongs to user %s; only that user and the superuser may use it", id, a.GetOwner())
	}
	return fserror.New(fserror.NotFound, Op, "", "there is no lease %s: it has ended, or never was", id).Because(fserror.ReasonNoLease)
}

func (k *Keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// drop ends a lease's context; the first cause counts.
func (k *Keeper) drop(l *Lease, cause error) {
	k.mu.Lock()
	delete(k.kept, l)
	k.ids[l.id] = slices.DeleteFunc(k.ids[l.id], func(o *Lease) bool { return o == l })
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
func (k *Keeper) due() (all []*Lease, period time.Duration) {
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
func (k *Keeper) loop() {
	t := time.NewTimer(0)
	defer t.Stop()
	fails := 0
	for {
		select {
		case <-k.ctx.Done():
			k.stop()
			return
		case <-t.C:
		case <-k.wake:
		}
		all, period := k.due()
		if len(all) == 0 {
			k.rest()
		} else if err := k.round(all, period); err != nil {
			k.cfg.Logger.Debug("leasefs: keep-alive failed, will be repeated", "err", err)
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
func (k *Keeper) left(all []*Lease) time.Duration {
	now := clock.Read(k.cfg.Clock)
	left := time.Hour
	for _, l := range all {
		left = min(left, l.left(now))
	}
	return max(left, time.Millisecond)
}

func (k *Keeper) stop() {
	all, _ := k.due()
	for _, l := range all {
		k.drop(l, fserror.New(fserror.Closed, Op, "", "the client was closed"))
	}
}

// round keeps all leases alive once, and lets those go that have ended.
func (k *Keeper) round(all []*Lease, period time.Duration) error {
	sent := clock.Read(k.cfg.Clock)
	limit := max(period, time.Second)
	for _, l := range all { // no waiting beyond the end of one
		limit = min(limit, l.left(sent))
	}
	ctx, cancel := context.WithTimeout(k.ctx, max(limit, 10*time.Millisecond))
	defer cancel()
	alive, err := k.exchange(ctx, all)
	now := clock.Read(k.cfg.Clock)
	for _, l := range all {
		a, answered := alive[l.id]
		switch {
		case a.GetTtlMs() > 0:
			l.alive(sent, ms(a.GetTtlMs()))
		case answered:
			k.drop(l, hasEnded(l.id, ""))
		case l.left(now) <= 0:
			k.drop(l, fserror.New(fserror.LeaseLost, Op, "", "lease %s was not kept alive for %s: %v; grant another one", l.id, l.ttl, err))
		}
	}
	return err
}

func hasEnded(id ID, reason string) error {
	if reason != "" {
		reason = " (" + reason + ")"
	}
	e := fserror.New(fserror.LeaseLost, Op, "", "lease %s has ended%s; grant another one", id, reason)
	return e
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
