package blockio

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// stall ends a transfer that moves too little.
type stall struct {
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	limit  time.Duration
	need   int64        // bytes to be moved within limit
	got    atomic.Int64 // bytes since the time began
	time   atomic.Int64 // until the transfer is broken off
}

// watchStall ends the transfer unless its first bytes move within first, and
// more of them all the time.
func (t *Transport) watchStall(ctx context.Context, first time.Duration) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := max(first, t.stall)
	w := &stall{ctx: ctx, limit: limit, need: int64(bodyPiece * limit / StallTime), cancel: func() { cancel(nil) }}
	w.time.Store(int64(first))
	w.timer = time.AfterFunc(first, func() {
		cancel(fmt.Errorf("the block store moved %d bytes in %s, which is too slow", w.got.Load(), fserror.Round(time.Duration(w.time.Load()))))
	})
	return ctx, w
}

// moved counts what has moved; when it is enough, the time begins again.
func (w *stall) moved(n int) {
	if w.got.Add(int64(n)) >= w.need {
		w.restart()
	}
}

func (w *stall) restart() {
	w.got.Store(0)
	w.time.Store(int64(w.limit))
	w.timer.Reset(w.limit)
}

func (w *stall) stop() {
	w.timer.Stop()
	w.cancel()
}

// explain prefers what ended the transfer over how that looked.
func (w *stall) explain(err error) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return blockstore.WithoutURL(err)
}
