package serve

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Park is called by a call of who that is going to wait for others: it takes no place
// among those served meanwhile, but among those that wait as many as its request is large,
// which is kept until then. The func that it returns ends that.
func (f *Front) Park(ctx context.Context, who share.Taker) (back func(), err error) {
	callstream.Waits(ctx)
	_, span := tracing.Begin(ctx, "wait for others")
	served, counts := ctx.Value(servedKey{}).(*call) // a stream, and the namenode's own work, do not
	n := int64(1)
	if counts {
		n = f.Parked.Most(places(served.req), who) // so that one call may wait, however large
	}
	if !f.Parked.Take(n, who) {
		err := TooMany(f.Parked, n, who)
		span.End(err)
		return nil, err
	}
	if counts {
		f.Served.Give(1, served.who)
	}
	return func() {
		if counts {
			f.Served.Hold(1, served.who)
		}
		f.Parked.Give(n, who)
		span.End(nil)
	}, nil
}

// servedKey is the key of the *call of a unary call in its context.
type servedKey struct{}

// placeBytes is how many bytes of a request a place among the calls that wait has. Most
// have fewer; in memory one takes several times as much.
const placeBytes = 512

// places is how many places a call takes that waits.
func places(req any) int64 {
	m, ok := req.(proto.Message)
	if !ok {
		return 1
	}
	return 1 + int64(proto.Size(m)/placeBytes)
}

// servedFor is who takes a place among the calls that are served at once: an
// address, since nothing of the call was checked yet. What a superuser on this
// machine asks may take the reserve; who is none is told so at once by what only
// superusers may ask.
func (f *Front) servedFor(ctx context.Context, method string, req any) share.Taker {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return share.Taker{Reserve: true}
	}
	who := conns.Taker(p.Addr)
	if who.Reserve && !strings.HasPrefix(method, adminPrefix) {
		who.Reserve = f.scarce() && f.cfg.Operator(f.userOf(ctx, req))
	}
	return who
}

// scarce reports whether it matters who may take the reserve, which takes a while to find out.
func (f *Front) scarce() bool {
	return f.Served.Used() >= int64(f.cfg.MaxInFlight)/2 || f.cfg.Limits(share.Calls)
}

// adminPrefix begins the names of the methods of service Admin.
const adminPrefix = "/leasefs.v1.Admin/"

// unary wraps every unary call.
func (f *Front) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	defer func() { // what follows has barriers of its own, where there is something to be given back
		if p := recover(); p != nil {
			resp, err = nil, wire.ToStatus(f.panicked(info.FullMethod, p))
		}
	}()
	who, err := f.prove(ctx, info.FullMethod)
	if err != nil {
		f.calls.failed(info.FullMethod, err)
		f.auditUnproven(ctx, info.FullMethod, req, err)
		return nil, wire.ToStatus(withRequest(err, info.FullMethod, req))
	}
	if shown := metadata.ValueFromIncomingContext(ctx, tracing.Header); f.cfg.Tracer != nil && len(shown) == 1 {
		ctx = tracing.Remote(ctx, shown[0])
	}
	callstream.GrowStack()
	if who != nil {
		held, done := f.cfg.Guard.Hold(ctx, who) // a call may wait for long
		defer done()
		ctx = held
	}
	return f.carry(ctx, req, info, h).Wait()
}

// prove finds out who makes a call. The services that are gRPC's own are for everybody.
func (f *Front) prove(ctx context.Context, method string) (who *identity.Caller, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = f.panicked(method, p)
		}
	}()
	if !strings.HasPrefix(method, ours) {
		return nil, nil
	}
	return f.cfg.Guard.Prove(ctx)
}

// ours begins the full names of the methods of this program.
const ours = "/leasefs.v1."

// carry wraps every call, however it came: limit, panic barrier, metrics, errors.
func (f *Front) carry(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (a callstream.Answer) {
	ctx, span := tracing.Serve(ctx, f.cfg.Tracer, info.FullMethod)
	c := &call{f: f, ctx: ctx, method: info.FullMethod, req: req, span: span, answer: atOnce{}}
	a = c
	defer c.barrier()
	c.who = f.servedFor(ctx, info.FullMethod, req)
	if c.err = identity.Ended(ctx); c.err != nil {
		return c
	}
	if c.err = f.slow(ctx, c.who, req); c.err != nil {
		return c
	}
	if c.served = f.Served.Take(1, c.who); !c.served {
		f.calls.shed.Inc()
		c.err = &fserror.Error{Kind: fserror.Retry, Message: "overloaded: too many calls at once", RetryAfter: 100 * time.Millisecond}
		return c
	}
	c.began = f.cfg.Clock.Mono()
	ctx, c.answer = f.cfg.Answer(context.WithValue(identity.WithReal(ctx, req), servedKey{}, c), callstream.Waits)
	if _, ok := ctx.Deadline(); !ok {
		ctx, c.cancel = context.WithTimeout(ctx, callstream.DefaultTimeout)
	}
	c.ctx = ctx
	if c.err = identity.Of(ctx).Says(req); c.err == nil {
		c.err = f.gate(c.method)
	}
	if c.err == nil {
		c.resp, c.err = h(c.ctx, c.req)
	}
	return c
}

// barrier makes a panic the call's error. It is deferred.
func (c *call) barrier() {
	if p := recover(); p != nil {
		c.err = c.f.panicked(c.method, p)
	}
}

// atOnce is the Answer of a call that has come to none.
type atOnce struct{}

func (atOnce) Ready() bool                { return true }
func (atOnce) Wait(context.Context) error { return nil }
func (atOnce) Wrote() uint64              { return 0 }

// call is a call that was carried out and is yet to be answered.
type call struct {
	f      *Front
	ctx    context.Context //nolint:containedctx // its own, until it is answered
	cancel context.CancelFunc
	method string
	who    share.Taker
	served bool // it counts among the calls that are served
	began  time.Duration
	span   tracing.Span
	answer Answer
	req    any
	resp   any
	err    error
}

// Ready implements callstream.Answer.
func (c *call) Ready() bool { return !c.served || c.answer.Ready() }

// Wait implements callstream.Answer.
func (c *call) Wait() (any, error) {
	defer func() { c.span.End(c.err) }()
	c.finish()
	if c.err != nil {
		return nil, wire.ToStatus(withRequest(c.err, c.method, c.req))
	}
	return c.resp, nil
}

// finish waits until the answer may be given, gives the call's place back, and tells of it.
func (c *call) finish() {
	defer c.barrier()
	if c.served {
		defer func() {
			if c.cancel != nil {
				c.cancel()
			}
			c.f.Served.Give(1, c.who)
		}()
		c.err = cmp.Or(c.settle(), c.err)
	}
	if errors.Is(c.err, context.Canceled) {
		c.err = cmp.Or(identity.Ended(c.ctx), c.err)
	}
	if c.served {
		took := c.f.cfg.Clock.Mono() - c.began
		c.f.calls.observe(c.method, took, c.err, c.span.ID())
		c.f.audit(c.ctx, c.method, c.req, c.resp, c.err, c.answer.Wrote(), took)
	} else {
		c.f.audit(c.ctx, c.method, c.req, nil, c.err, 0, 0)
	}
}

// settle waits until the answer may be given. The end of the proof with which the call came ends the call
// while it waits for others, but takes no answer from it: it may be the call that ended the proof.
func (c *call) settle() error {
	err := c.answer.Wait(c.ctx)
	if err == nil || c.err != nil || identity.Ended(c.ctx) == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), callstream.DefaultTimeout)
	defer cancel()
	return c.answer.Wait(ctx)
}

// gate refuses, before anything of a call is looked at, what only the active
// namenode answers: all but the question how it is. What there is of the state
// may not be there yet, or be changed by the journal just now.
func (f *Front) gate(method string) error {
	if method == pb.Admin_Status_FullMethodName || !strings.HasPrefix(method, ours) {
		return nil
	}
	return f.role.Active()
}

func (f *Front) panicked(method string, p any) error {
	f.calls.panics.Inc()
	f.cfg.Log.Error("a call panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return fserror.New(fserror.Internal, "", "", "the namenode failed in this call; its log tells more")
}

// withRequest names the path in an error that does not.
func withRequest(err error, method string, req any) error {
	if err == nil {
		return nil
	}
	var path string
	switch r := req.(type) {
	case interface{ GetAt() *pb.Ref }:
		path = r.GetAt().AbsolutePath()
	case interface{ GetFrom() *pb.Ref }:
		path = r.GetFrom().AbsolutePath()
	case interface{ GetTarget() *pb.Ref }:
		path = r.GetTarget().AbsolutePath()
	case interface{ GetPath() string }:
		path = r.GetPath()
	}
	var e *fserror.Error
	if !errors.As(err, &e) {
		if _, ok := status.FromError(err); ok {
			return err // an answer of gRPC's own services, such as health
		}
		switch { // else they would be faults of ours
		case errors.Is(err, context.DeadlineExceeded):
			err = fserror.Wrap(fserror.Deadline, "", "", err)
		case errors.Is(err, context.Canceled):
			err = fserror.Wrap(fserror.Canceled, "", "", err)
		}
	}
	return fserror.With(err, opName(method), path)
}
