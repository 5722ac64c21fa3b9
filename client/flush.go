package client

import (
	"context"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/tracing"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// tailPiece is one AppendTail: bytes of the file at an offset.
type tailPiece struct {
	off  int64
	data []byte
	crc  uint32
	lost bool // a reply was lost: it may be there, or still come to be
}

// flushRound is one flush under way, which any number of callers wait for.
type flushRound struct {
	done     chan struct{}
	forClose bool            // what can go with Close is left to it
	ctx      context.Context //nolint:containedctx // of its calls: the writer's, in the trace of who began it
	err      error           // valid once done is closed
}

// Flush returns once all that was written before it is durable and visible to
// readers. Few bytes go into the file's tail with one call; more become a
// block. If the context ends first, the flush continues in the background.
// LeaseLost, NoSpace, Retry, Unavailable: the bytes are kept, and another
// Flush tries again (not after LeaseLost).
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	target := w.length
	for {
		if err := w.usable(); err != nil {
			w.mu.Unlock()
			return fserror.With(err, "flush", w.path)
		}
		if w.durable >= target {
			w.mu.Unlock()
			return nil
		}
		r := w.round
		if r == nil {
			r = w.startRound(ctx, false)
		}
		w.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return fserror.Ended(ctx, "flush", w.path)
		}
		w.mu.Lock()
		if r.err != nil && w.durable < target {
			w.mu.Unlock()
			return fserror.With(r.err, "flush", w.path)
		}
	}
}

// Sync is Flush without a context.
func (w *Writer) Sync() error { return w.Flush(context.WithoutCancel(w.ctx)) }

// startRound begins a flush. The caller holds mu, and there is none.
func (ct *content) startRound(ctx context.Context, forClose bool) *flushRound {
	r := &flushRound{done: make(chan struct{}), forClose: forClose, ctx: tracing.Under(ct.work, ctx)}
	ct.round = r
	if !ct.fs.goRun(func() {
		err := ct.flush(r)
		ct.mu.Lock()
		ct.endRound(r, err)
		ct.mu.Unlock()
	}) {
		ct.endRound(r, fserror.New(fserror.Closed, "", "", "the client is closed"))
	}
	return r
}

// endRound: the caller holds mu.
func (ct *content) endRound(r *flushRound, err error) {
	r.err = err
	ct.round = nil
	close(r.done)
	ct.cond.Broadcast()
}

// flush makes durable what is written. No block is dispatched by Write
// meanwhile, so the order of bytes is that of this function.
func (ct *content) flush(r *flushRound) error {
	ct.mu.Lock()
	if ct.blockErr != nil {
		ct.restart()
	}
	ct.mu.Unlock()
	if err := ct.drain(ct.work); err != nil {
		return err
	}
	ct.mu.Lock()
	target := ct.length // what comes later is for the next round
	ct.mu.Unlock()
	asBlock := false
	for {
		if err := ct.check(); err != nil {
			return err
		}
		ct.mu.Lock()
		if ct.unsure == nil && (ct.durable >= target || r.forClose && ct.fitsClose()) {
			ct.mu.Unlock()
			return nil
		}
		if ct.unsure == nil && (asBlock || int64(len(ct.cur.B)) > ct.fs.session.Welcome().GetMaxTail()) {
			ct.dispatch()
			ct.mu.Unlock()
			if err := ct.drain(ct.work); err != nil {
				return err
			}
			continue
		}
		if ct.unsure == nil {
			off := int(ct.durable - ct.start)
			data := ct.cur.B[off:min(len(ct.cur.B), off+maxPiece(ct.fs.session.Welcome()))]
			ct.unsure = &tailPiece{off: ct.durable, data: data, crc: blockstore.CRC(data)}
		}
		piece := ct.unsure
		ct.mu.Unlock()
		refused, err := ct.appendTail(r.ctx, piece)
		if err != nil {
			return err
		}
		asBlock = asBlock || refused
	}
}

// appendTail sends one piece. refused means that the tails' budget is used up
// and that it was not taken. Once a reply was lost the piece is unsure until it
// is known to be there, or is one that is never taken: a refusal for now tells
// nothing of an attempt that is still on its way.
func (ct *content) appendTail(ctx context.Context, p *tailPiece) (refused bool, err error) {
	req := &pb.AppendTailRequest{Writer: ct.id, Offset: p.off, Data: p.data, Crc32C: p.crc}
	c, asked := namecall.Call{Op: "flush", Path: ct.path, Mutates: true, TailToo: !p.lost}, ct.fs.session.Now()
	g := ct.fs.giveUpFile(ct.key.Inode)
	req.GivenUp = g.wire()
	err = ct.fs.nn.Do(ctx, &c, pb.Namenode_AppendTail_FullMethodName, req, new(pb.AppendTailResponse))
	g.settle(&c, err)
	if err == nil && !p.lost { // else an earlier call may have left the record: this one renews nothing
		ct.lease.Renew(asked)
	}
	ct.mu.Lock()
	defer ct.mu.Unlock()
	if err == nil {
		ct.durable, ct.unsure = p.off+int64(len(p.data)), nil
		return false, nil
	}
	p.lost = p.lost || c.AnyLost
	if !p.lost || fserror.KindOf(err) == fserror.TooLarge {
		ct.unsure = nil
		if tailRefused(err) {
			return true, nil
		}
	}
	return false, ct.seenLocked(err)
}

// fitsClose reports whether all that is left can go with Close. The caller
// holds mu.
func (ct *content) fitsClose() bool {
	rest := ct.length - ct.durable
	switch {
	case len(ct.pending) > 0 || ct.unsure != nil:
		return false
	case rest == 0:
		return true
	}
	return rest <= ct.fs.about().MaxWholeFile && ct.length-ct.start <= ct.fs.session.Welcome().GetMaxTail()
}

// drain waits until no block is under way.
func (ct *content) drain(ctx context.Context) error {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	for len(ct.pending) > 0 {
		if ct.blockErr != nil {
			return ct.blockErr
		}
		if e := ct.lost.Load(); e != nil {
			return e
		}
		if ct.work.Err() != nil {
			return fserror.Ended(ct.work, "flush", ct.path)
		}
		if err := ct.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
