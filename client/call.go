package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	firstBackoff = 20 * time.Millisecond
	maxBackoff   = time.Second
	// maxFaults is how often a call is sent again after an answer that neither
	// a namenode nor a broken connection explains.
	maxFaults = 3
	// noLimit as call.attempt lets one attempt last as long as it takes; the
	// connection's keepalive still notices a dead namenode.
	noLimit = time.Duration(-1)
)

// backoffFor is the pause before the n-th repetition, counted from 0: doubling,
// bounded, and somewhere in its upper half so that callers do not march in step.
func backoffFor(n int) time.Duration {
	d := maxBackoff
	if n < 6 {
		d = firstBackoff << n
	}
	d = min(d, maxBackoff)
	return d/2 + rand.N(d/2+1) //nolint:gosec // G404: jitter is no secret
}

// call describes one call to the namenode, and afterwards what became of it.
type call struct {
	op, path string
	attempt  time.Duration // of one attempt; 0: the FS's default
	mutates  bool          // a lost reply leaves its outcome unknown
	// tailToo hands the answer that there is no room in tails to the caller at
	// once, who can make a block. Not while the outcome of an earlier attempt is
	// unknown.
	tailToo bool
	// w is the writer whose lease the record of the call renews, from the first
	// attempt on: any of them may have made it. What makes none renews nothing.
	w *Writer

	first reading // when the first attempt was sent
	lost  bool    // a reply was lost, and no later one told the outcome
	// anyLost: a reply was lost, whatever came later.
	anyLost bool
}

// call sends req until there is an answer, the context ends, or the FS's
// Timeout is over. A repetition is the same request with the same call id.
// Errors are *Error with operation and path.
func (f *FS) call(ctx context.Context, c *call, method string, req, resp any) error {
	began := time.Now()
	deadline := began.Add(f.cfg.Timeout)
	w := f.waits(c.op, c.path)
	c.first = f.read()
	for n, hops, faults := 0, 0, 0; ; n++ {
		if err := f.closedErr(); err != nil {
			return c.fail(err)
		}
		ep := f.eps.current.Load()
		reached, err := f.send(ctx, c, ep, method, req, resp)
		if err == nil {
			c.lost = false
			if c.w != nil {
				c.w.renewed(c.first)
			}
			return nil
		}
		e, answered := answerOf(err)
		if !answered && reached {
			c.lost, c.anyLost = true, true
		}
		if ctx.Err() != nil {
			return c.ended(ctx)
		}
		delay := backoffFor(n)
		switch {
		case !answered:
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
				f.eps.moveOn(ep, "")
				delay = seekBackoff(n, time.Since(began))
			case codes.Internal, codes.Unknown, codes.Aborted:
				// A stream reset, or a fault on the other side.
				if faults++; faults > maxFaults {
					return c.fail(e)
				}
			default:
				return c.fail(e)
			}
		case e.Kind == fserror.NotActive:
			f.kickSession(ep)
			if f.eps.moveOn(ep, e.Active) && hops < 2 {
				hops++
				delay = 0
			} else {
				delay = max(seekBackoff(n, time.Since(began)), min(e.RetryAfter, seekPause))
			}
		case e.Kind == fserror.Retry:
			if c.tailToo && !c.lost && e.Reason == tailBudget {
				return c.fail(e)
			}
			delay = max(delay, e.RetryAfter)
		case e.Kind == fserror.Unavailable, e.Kind == fserror.Unknown:
			c.lost = c.lost || e.Kind == fserror.Unknown
			c.anyLost = c.anyLost || c.lost
			f.eps.moveOn(ep, e.Active)
		default:
			c.lost = false
			return c.fail(e)
		}
		f.stats.retries.Add(1)
		if time.Now().Add(delay).After(deadline) {
			return c.over(f, e)
		}
		if !w.sleep(ctx, f.ctx, delay, e, answered) {
			if ctx.Err() != nil {
				return c.ended(ctx)
			}
		}
	}
}

// send is one attempt. reached reports whether it may have left this machine.
func (f *FS) send(ctx context.Context, c *call, ep *endpoint, method string, req, resp any) (reached bool, err error) {
	limit := c.attempt
	if limit == 0 {
		limit = f.attemptTime
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	settled := f.suspect(ctx, cancel, ep)
	defer func() { cancel(); settled() }()
	if !c.mutates {
		return true, ep.conn().Invoke(ctx, method, req, resp, grpc.StaticMethod())
	}
	var p peer.Peer
	err = ep.conn().Invoke(ctx, method, req, resp, grpc.StaticMethod(), grpc.Peer(&p))
	return p.Addr != nil, err
}

// answerOf turns what gRPC returned into an error of ours, and tells whether a
// namenode said it, rather than the transport.
func answerOf(err error) (e *fserror.Error, answered bool) {
	if !errors.As(wire.FromStatus(err), &e) {
		e = fserror.Wrap(fserror.Internal, "", "", err)
	}
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if _, ok := d.(*pb.ErrorDetail); ok {
			return e, true
		}
	}
	return e, false
}

func (c *call) fail(err error) error { return fserror.With(err, c.op, c.path) }

// ended is the error of a call whose context is over: its cause if that is an
// error of ours (a lost lease).
func (c *call) ended(ctx context.Context) error {
	return contextError(ctx, c.op, c.path, c.mutates && c.lost)
}

const unknownOutcome = "its reply was lost, so whether it happened is not known"

// over is the error of a call whose time is over, last being what it got last.
func (c *call) over(f *FS, last *fserror.Error) error {
	unknown := c.mutates && c.lost
	if last.Kind == fserror.Retry && !unknown {
		return c.fail(last)
	}
	e := fserror.New(fserror.Unavailable, c.op, c.path, "no active namenode answered within %s (asked %s); last: %s",
		f.cfg.Timeout, f.eps, plain(last))
	if unknown {
		e.Message += "; " + unknownOutcome + ": look before you repeat it"
	} else {
		e.Message += "; check that one runs there (leasefs status)"
	}
	return e
}

// plain is the text of an error without operation and path.
func plain(e *fserror.Error) string {
	c := *e
	c.Op, c.Path = "", ""
	return c.Error()
}

// contextError is the error for an ended context.
func contextError(ctx context.Context, op, path string, unknown bool) error {
	cause := context.Cause(ctx)
	if cause == nil { // not this one, but the FS's own has ended
		return fserror.New(fserror.Closed, op, path, "the client was closed meanwhile")
	}
	var e *fserror.Error
	if errors.As(cause, &e) {
		return fserror.With(e, op, path)
	}
	kind := fserror.Canceled
	if errors.Is(cause, context.DeadlineExceeded) {
		kind = fserror.Deadline
	}
	e = fserror.Wrap(kind, op, path, cause)
	if unknown {
		e.Message = unknownOutcome
	}
	return e
}

// sleep waits; false means that one of the contexts ended first.
func sleep(ctx, also context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil && also.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-also.Done():
	}
	return false
}

// callIDs numbers the calls of a process and knows up to where all are
// answered. It is safe for concurrent use.
type callIDs struct {
	session []byte

	mu   sync.Mutex
	next uint64              // the last number given
	low  uint64              // all up to this one are answered
	done map[uint64]struct{} // those above low that are
	// moved is closed when low has grown; nil: nobody waits.
	moved chan struct{}
}

// callWindow is how far beginMany goes ahead of the oldest call that is under
// way: the namenode keeps the results from there on, and no more than 16,384.
const callWindow = 12_000

func newCallIDs(session []byte) *callIDs {
	return &callIDs{session: session, done: make(map[uint64]struct{})}
}

// begin returns the id of a new call. end has to follow, whatever comes of it.
func (c *callIDs) begin() *pb.CallId {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return &pb.CallId{Session: c.session, Seq: c.next, Acked: c.low}
}

// beginMany returns the ids of n new calls. It waits while too many results
// would be kept for one call that takes long. Who has begun some must not wait
// for more.
func (c *callIDs) beginMany(ctx context.Context, n int) ([]*pb.CallId, error) {
	for {
		c.mu.Lock()
		if c.next == c.low || c.next-c.low+uint64(n) <= callWindow { //nolint:gosec // a length
			ids := make([]*pb.CallId, n)
			for i := range ids {
				c.next++
				ids[i] = &pb.CallId{Session: c.session, Seq: c.next, Acked: c.low}
			}
			c.mu.Unlock()
			return ids, nil
		}
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// end tells that nobody will ask for the call's result any more.
func (c *callIDs) end(id *pb.CallId) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id.Seq != c.low+1 {
		c.done[id.Seq] = struct{}{}
		return
	}
	c.low++
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
	for {
		if _, ok := c.done[c.low+1]; !ok {
			return
		}
		delete(c.done, c.low+1)
		c.low++
	}
}
