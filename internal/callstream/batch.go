package callstream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/tracing"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// handOverAfter is how long a call may take before the others of its message are served
// beside it. Most take a hundredth of that.
const handOverAfter = time.Millisecond

// batch is the calls of one message. One goroutine carries them out in turn, and then
// waits until their answers may be given: that saves a goroutine, with its stack and its
// wake-ups, for each call. If a call waits (Waits) or takes long, another goroutine
// continues with the rest, so no call waits for another.
type batch struct {
	*served
	late *time.Timer // fires when a call takes long; nil: there is only one call

	mu       sync.Mutex
	turn     int    // number of the goroutine that serves the batch now
	carrying bool   // that goroutine is carrying out a call
	begun    int    // calls, so far
	seen     int    // begun, when late fired last
	calls    []call // not yet begun, the oldest first
	done     []done // carried out, but not yet answered, the oldest first
}

type call struct {
	ctx context.Context //nolint:containedctx // its own
	*pb.CarriedCall
}

type done struct {
	Answer
	id     uint64
	method string
}

// ready is Ready, or true if that fails: Wait tells of it then.
func (d done) ready() (is bool) {
	defer func() { is = is || recover() != nil }()
	return d.Ready()
}

// batchKey is the key of a call's batch in its context.
type batchKey struct{}

// Waits says that the call of ctx, or of a context that ctx was made from, is about to
// wait, so that the other calls of its message need not wait for it. It does nothing if
// ctx belongs to no call.
func Waits(ctx context.Context) {
	if b, ok := ctx.Value(batchKey{}).(*batch); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.handOver()
	}
}

// add accepts a call once the answers that are not yet sent leave room for its own.
// It reports false if no more calls are taken.
func (b *batch) add(c *pb.CarriedCall) (more bool, err error) {
	l := b.served
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unsent > maxUnsent && l.ctx.Err() == nil && !l.closed {
		l.changed.Wait()
	}
	switch {
	case l.ctx.Err() != nil || l.closed:
		return false, nil
	case c.GetId() <= l.last:
		return false, status.Errorf(codes.InvalidArgument, "call %d comes after call %d: ids of calls have to grow", c.GetId(), l.last)
	case len(c.GetRequest()) > maxCarried:
		return false, status.Errorf(codes.InvalidArgument, "call %d has a request of %d bytes: one of more than %d travels by itself", c.GetId(), len(c.GetRequest()), maxCarried)
	case len(l.under) >= l.most:
		return false, status.Errorf(codes.ResourceExhausted, "more than %d calls of one stream at once: wait for answers", l.most)
	}
	l.last = c.GetId()
	limit := DefaultTimeout
	if ms := c.GetTimeoutMs(); ms > 0 {
		limit = time.Duration(min(ms, maxTimeout.Milliseconds())) * time.Millisecond
	}
	ctx := &callContext{stream: tracing.Remote(l.ctx, c.GetTraceparent()), batch: b, until: time.Now().Add(limit)}
	l.under[c.GetId()] = ctx
	b.calls = append(b.calls, call{ctx, c})
	return true, nil
}

// start begins to serve the calls that were added.
func (b *batch) start() {
	if len(b.calls) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) > 1 {
		b.late = time.AfterFunc(handOverAfter, b.overdue)
	}
	go b.serve(0)
}

// serve carries out calls and sends answers as long as it is the goroutine's turn.
func (b *batch) serve(turn int) {
	GrowStack()
	for {
		c, d, more := b.next(turn)
		if !more {
			return
		}
		if d.Answer == nil {
			d = b.carryOut(c)
			if !d.ready() && b.later(turn, d) {
				continue
			}
		}
		b.answer(d)
	}
}

// next returns a call to be carried out or, if d has an Answer, one to be answered:
// first answers that need no wait, then calls, then the other answers.
func (b *batch) next(turn int) (c call, d done, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn != turn {
		return c, d, false
	}
	b.carrying = false
	switch {
	case len(b.done) > 0 && (len(b.calls) == 0 || b.done[0].ready()):
		d, b.done = b.done[0], b.done[1:]
		return c, d, true
	case len(b.calls) > 0:
		c, b.calls = b.calls[0], b.calls[1:]
		b.begun++
		b.carrying = true
		return c, d, true
	case b.late != nil:
		b.late.Stop()
	}
	return c, d, false
}

// later puts an answer off until the calls are carried out. It reports false if it is no
// longer the goroutine's turn.
func (b *batch) later(turn int, d done) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn == turn {
		b.done = append(b.done, d)
	}
	return b.turn == turn
}

// answer waits until an answer may be given, and has it sent.
func (b *batch) answer(d done) {
	b.send(b.encoded(d))
}

// encoded is an answer for the wire, when it may be given. A panic is one, too: it is that of
// one call, and not the end of all.
func (b *batch) encoded(d done) (a *pb.CarriedAnswer) {
	defer func() {
		if p := recover(); p != nil {
			a = encode(d.id, nil, b.panicked(d.method, p))
		}
	}()
	resp, err := d.Wait()
	return encode(d.id, resp, err)
}

// handOver lets another goroutine do the rest. The caller holds mu.
func (b *batch) handOver() {
	if len(b.calls) > 0 || len(b.done) > 0 {
		b.turn++
		b.carrying = false
		go b.serve(b.turn)
	}
}

// overdue hands over the rest of the batch if one call takes long.
func (b *batch) overdue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.carrying && b.begun == b.seen {
		b.handOver()
	}
	b.seen = b.begun
	if b.carrying || len(b.calls) > 0 {
		b.late.Reset(handOverAfter)
	}
}

// carryOut carries a call out, without waiting until it may be answered.
func (b *batch) carryOut(c call) (d done) {
	d = done{id: c.GetId(), method: c.GetMethod()}
	defer func() {
		if p := recover(); p != nil {
			d.Answer = ready{err: b.panicked(d.method, p)}
		}
	}()
	m, ok := b.methods[c.GetMethod()]
	if !ok {
		d.Answer = ready{err: status.Errorf(codes.Unimplemented, "unknown method %.100q", c.GetMethod())}
		return d
	}
	if _, err := m.handler(m.impl, c.ctx, func(req any) error {
		if err := proto.Unmarshal(c.GetRequest(), req.(proto.Message)); err != nil {
			return status.Errorf(codes.InvalidArgument, "the request cannot be read: %v", err)
		}
		return nil
	}, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		d.Answer = b.around(ctx, req, info, h)
		return nil, nil //nolint:nilnil // the answer is in d
	}); err != nil {
		d.Answer = ready{err: err}
	}
	return d
}

// AtOnce makes an Around of an interceptor whose answers are ready when it returns.
func AtOnce(intercept grpc.UnaryServerInterceptor) Around {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) Answer {
		resp, err := intercept(ctx, req, info, h)
		return ready{resp, err}
	}
}

// ready is an answer that waits for nothing.
type ready struct {
	resp any
	err  error
}

func (ready) Ready() bool          { return true }
func (r ready) Wait() (any, error) { return r.resp, r.err }
