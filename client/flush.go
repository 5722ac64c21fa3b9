package client

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
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
	forClose bool  // what can go with Close is left to it
	err      error // valid once done is closed
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
			r = w.startRound(false)
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
func (w *Writer) startRound(forClose bool) *flushRound {
	r := &flushRound{done: make(chan struct{}), forClose: forClose}
	w.round = r
	if !w.fs.goRun(func() {
		err := w.flush(r)
		w.mu.Lock()
		w.endRound(r, err)
		w.mu.Unlock()
	}) {
		w.endRound(r, fserror.New(fserror.Closed, "", "", "the client is closed"))
	}
	return r
}

// endRound: the caller holds mu.
func (w *Writer) endRound(r *flushRound, err error) {
	r.err = err
	w.round = nil
	close(r.done)
	w.cond.Broadcast()
}

// flush makes durable what is written. No block is dispatched by Write
// meanwhile, so the order of bytes is that of this function.
func (w *Writer) flush(r *flushRound) error {
	w.mu.Lock()
	if w.blockErr != nil {
		w.restart()
	}
	w.mu.Unlock()
	if err := w.drain(w.work); err != nil {
		return err
	}
	w.mu.Lock()
	target := w.length // what comes later is for the next round
	w.mu.Unlock()
	asBlock := false
	for {
		if err := w.check(); err != nil {
			return err
		}
		w.mu.Lock()
		if w.unsure == nil && (w.durable >= target || r.forClose && w.fitsClose()) {
			w.mu.Unlock()
			return nil
		}
		if w.unsure == nil && (asBlock || int64(len(w.cur.B)) > w.fs.session.Welcome().GetMaxTail()) {
			w.dispatch()
			w.mu.Unlock()
			if err := w.drain(w.work); err != nil {
				return err
			}
			continue
		}
		if w.unsure == nil {
			off := int(w.durable - w.start)
			data := w.cur.B[off:min(len(w.cur.B), off+maxPiece(w.fs.session.Welcome()))]
			w.unsure = &tailPiece{off: w.durable, data: data, crc: blockstore.CRC(data)}
		}
		piece := w.unsure
		w.mu.Unlock()
		refused, err := w.appendTail(piece)
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
func (w *Writer) appendTail(p *tailPiece) (refused bool, err error) {
	req := &pb.AppendTailRequest{Writer: w.id, Offset: p.off, Data: p.data, Crc32C: p.crc}
	c, asked := namecall.Call{Op: "flush", Path: w.path, Mutates: true, TailToo: !p.lost}, w.fs.session.Now()
	end := p.off + int64(len(p.data))
	g := w.fs.giveUpFile(w.key.Inode)
	req.GivenUp = g.wire()
	err = w.fs.nn.Do(w.work, &c, pb.Namenode_AppendTail_FullMethodName, req, new(pb.AppendTailResponse))
	g.end(&c, err)
	if err == nil && !p.lost { // else an earlier call may have left the record: this one renews nothing
		w.lease.Renew(asked)
	}
	var e *fserror.Error
	if errors.As(err, &e) && e.Kind == fserror.NotAtEnd && e.Length == end {
		err = nil // an earlier attempt did it: nobody else can write here
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.durable, w.unsure = end, nil
		return false, nil
	}
	p.lost = p.lost || c.AnyLost
	if !p.lost || fserror.KindOf(err) == fserror.TooLarge {
		w.unsure = nil
		if tailRefused(err) {
			return true, nil
		}
	}
	return false, w.seenLocked(err)
}

// seenLocked is seen for callers that hold mu.
func (w *Writer) seenLocked(err error) error {
	w.mu.Unlock()
	defer w.mu.Lock()
	return w.seen(err)
}

// fitsClose reports whether all that is left can go with Close. The caller
// holds mu.
func (w *Writer) fitsClose() bool {
	rest := w.length - w.durable
	switch {
	case len(w.pending) > 0 || w.unsure != nil:
		return false
	case rest == 0:
		return true
	}
	return rest <= w.fs.about().MaxWholeFile && w.length-w.start <= w.fs.session.Welcome().GetMaxTail()
}

// drain waits until no block is under way.
func (w *Writer) drain(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) > 0 {
		if w.blockErr != nil {
			return w.blockErr
		}
		if e := w.lost.Load(); e != nil {
			return e
		}
		if w.work.Err() != nil {
			return fserror.Ended(w.work, "flush", w.path)
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
