// Package giveback gives leases back that nobody in this process wants any more, or knows of: in the
// background, while calls do not get through.
//
// An opening call whose answer was lost may have been carried out, or may be yet. Its id is kept
// until a namenode has cancelled it: then what it has opened is closed, and if it has opened
// nothing, it never will.
package giveback

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxOpens is how many opening calls are remembered. A namenode that knows results of the session
	// refuses a call whose number is so far above the lowest one that is not answered.
	maxOpens = 1 << 14
	// maxWorkers is how many of them are cancelled at once.
	maxWorkers = 16
	// settleTime is how long who opens a file waits for them: longer than a namenode that answers takes.
	settleTime = 10 * time.Second
)

// Config is what a Table works with. All is required.
type Config struct {
	Namenodes *namecall.Namenodes
	Session   *session.Session
	Caller    *pb.Caller
	Logger    *slog.Logger
	Go        func(func()) bool // starts a goroutine; false: it is too late
}

// Table has what is to be given back. It is safe for concurrent use.
type Table struct {
	ctx context.Context //nolint:containedctx // until its client ends
	cfg Config

	mu      sync.Mutex
	opens   map[*open]struct{} // all
	queue   []*open            // those of which no worker has begun
	workers int
}

// open is an opening call whose answer was lost.
type open struct {
	path string
	call *pb.CallId
	done chan struct{}
}

// New returns a Table. The context is that of all it does.
func New(ctx context.Context, cfg Config) *Table {
	return &Table{ctx: ctx, cfg: cfg, opens: make(map[*open]struct{})}
}

// Opening is told how an opening call has ended, before its id is retired. If a request may still be
// on its way, or its answer was lost, what it opens is given back.
func (t *Table) Opening(c *namecall.Call, id *pb.CallId, err error) {
	if err == nil || !c.AnyLost {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.opens) == maxOpens {
		return
	}
	if t.workers < maxWorkers {
		if !t.cfg.Go(t.work) {
			return
		}
		t.workers++
	}
	t.cfg.Namenodes.IDs().Keep(id)
	o := &open{path: c.Path, call: id, done: make(chan struct{})}
	t.opens[o] = struct{}{}
	t.queue = append(t.queue, o)
}

// work cancels calls until none is left.
func (t *Table) work() {
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			t.workers--
			t.mu.Unlock()
			return
		}
		o := t.queue[0]
		t.queue = t.queue[1:]
		t.mu.Unlock()
		t.Try(o.path, func(ctx context.Context) error {
			req := &pb.CancelOpenRequest{Call: &pb.CallId{Session: o.call.Session, Seq: o.call.Seq, Acked: o.call.Acked}, Caller: t.cfg.Caller}
			c := namecall.Call{Op: "close", Path: o.path, Mutates: true}
			return t.cfg.Namenodes.Do(ctx, &c, pb.Namenode_CancelOpen_FullMethodName, req, new(pb.MutateResponse))
		})
		t.cfg.Namenodes.IDs().Retire(o.call)
		t.mu.Lock()
		delete(t.opens, o)
		t.mu.Unlock()
		close(o.done)
	}
}

// Try gives a file back by once, which is called again while nobody answers, or takes it on: for the
// hard limit, in which the lease lapses, or until the client ends.
func (t *Table) Try(path string, once func(context.Context) error) {
	start := t.cfg.Session.Now()
	for n := 0; t.cfg.Session.Now().Since(start) < t.cfg.Session.Limit(); n++ {
		switch err := once(t.ctx); {
		case err == nil || errors.Is(err, fserror.LeaseLost):
			return
		case t.ctx.Err() == nil && !fserror.Transient(err):
			t.cfg.Logger.Warn("leasefs: the file may stay open until its lease is over", "path", path, "err", err)
			return
		}
		if !t.cfg.Namenodes.Sleep(t.ctx, max(namecall.Backoff(n), time.Second/2)) {
			return
		}
	}
}

// Settle waits until all opening calls are cancelled of which the Table has been told. False: there was
// none, or the context, or the time for that, ended before.
func (t *Table) Settle(ctx context.Context) bool { return t.settle(ctx, settleTime) }

// Wait is Settle for as long as that, whatever comes of it.
func (t *Table) Wait(most time.Duration) { t.settle(t.ctx, most) }

func (t *Table) settle(ctx context.Context, most time.Duration) bool {
	t.mu.Lock()
	all := slices.Collect(maps.Keys(t.opens))
	t.mu.Unlock()
	if len(all) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, o := range all {
		select {
		case <-o.done:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
