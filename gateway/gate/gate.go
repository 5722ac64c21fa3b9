// Package gate bounds how many things of a kind a gateway does at once, and gives each
// user and address a fair share of them (package share).
package gate

import (
	"context"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/share"
)

// Gate has so many places. It is safe for concurrent use.
type Gate struct {
	limit *share.Limit
	wait  time.Duration
	mu    sync.Mutex
	given chan struct{} // closed when one is given back
}

// New returns a Gate of most places, for one of which Enter waits so long.
func New(most int64, wait time.Duration) *Gate {
	return &Gate{limit: share.New(most), wait: wait, given: make(chan struct{})}
}

// Used is how many places are taken.
func (g *Gate) Used() int64 { return g.limit.Used() }

// Enter waits for a place; leave gives it back, the first time it is called. Retry: there
// was none for who; Canceled and Deadline of the context.
func (g *Gate) Enter(ctx context.Context, who share.Taker) (leave func(), err error) {
	return g.EnterAll(ctx, 1, who)
}

// EnterAll is Enter for n places at once. While it waits it has none of them: who has some
// already and waits for more could wait for himself.
func (g *Gate) EnterAll(ctx context.Context, n int64, who share.Taker) (leave func(), err error) {
	var timer *time.Timer
	for {
		g.mu.Lock()
		given := g.given
		g.mu.Unlock()
		if g.limit.Take(n, who) {
			return sync.OnceFunc(func() {
				g.limit.Give(n, who)
				g.mu.Lock()
				defer g.mu.Unlock()
				close(g.given)
				g.given = make(chan struct{})
			}), nil
		}
		if timer == nil {
			timer = time.NewTimer(g.wait)
			defer timer.Stop()
		}
		select {
		case <-given:
		case <-timer.C:
			return nil, fserror.New(fserror.Retry, "gateway", "", "%d are under way, as many as the gateway allows for one who has so many; try again later, or allow more", g.Used())
		case <-ctx.Done():
			return nil, fserror.Ended(ctx, "gateway", "")
		}
	}
}
