package serve

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/identity"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxOpen is how many streams of gRPC's own services there may be at once.
const maxOpen = 256

func (f *Front) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	told := &auditStream{f: f, method: info.FullMethod, began: f.cfg.Clock.Mono()}
	ctx := ss.Context()
	b := &boundStream{ServerStream: ss, told: told, status: statusOf(ctx), says: func(err error) error { return err }}
	defer func() {
		if p := recover(); p != nil {
			err = f.panicked(info.FullMethod, p)
		} else if why := ss.Context().Err(); err != nil && why != nil {
			kind := fserror.Canceled // its client has left
			if errors.Is(why, context.DeadlineExceeded) {
				kind = fserror.Deadline
			}
			err = fserror.Wrap(kind, "", "", err)
		}
		if ours := err; !b.interrupted.CompareAndSwap(nil, &ours) {
			err = *b.interrupted.Load() // what the client is told
		}
		f.calls.failed(info.FullMethod, err)
		told.ended(ctx, err)
		err = wire.ToStatus(err)
	}()
	if !strings.HasPrefix(info.FullMethod, ours) { // for everybody, without a proof
		defer f.open.Add(-1)
		if f.open.Add(1) > maxOpen {
			return &fserror.Error{Kind: fserror.Retry, Message: "overloaded: too many watches of the namenode's health, and looks at its methods, at once", RetryAfter: time.Second}
		}
	}
	who, err := f.prove(ctx, info.FullMethod)
	if err != nil {
		f.auditUnproven(ctx, info.FullMethod, nil, err)
		told.silent = true
		return err
	}
	held, done := f.cfg.Guard.Hold(ss.Context(), who)
	defer done()
	defer told.give()
	if info.FullMethod == pb.Calls_Carry_FullMethodName {
		return h(srv, b.bind(held)) // each call comes to the gate by itself, and is answered when the loops end
	}
	ctx, cancel := context.WithCancelCause(held)
	defer cancel(nil)
	defer context.AfterFunc(f.cfg.Loops.Context(), func() { cancel(f.cfg.Loops.Err()) })()
	if err := f.gate(info.FullMethod); err != nil {
		return err
	}
	b.says = func(err error) error {
		if why := identity.Ended(held); why != nil && errors.Is(err, context.Canceled) {
			return why
		}
		if why := f.cfg.Loops.Err(); why != nil && ss.Context().Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, why)) {
			// It was not the client who broke it off: he continues with the next namenode.
			return &fserror.Error{Kind: fserror.NotActive, Message: why.Error(), RetryAfter: 100 * time.Millisecond}
		}
		return err
	}
	return b.says(h(srv, b.bind(context.WithValue(ctx, boundKey{}, b))))
}

// boundStream has a context that ends with the namenode, and with the proof of who its
// client is, in whose name all messages have to come.
type boundStream struct {
	grpc.ServerStream
	ctx   atomic.Pointer[context.Context]
	begun atomic.Bool // a message has come
	told  *auditStream

	status      statusWriter          // nil: it cannot be interrupted
	says        func(error) error     // what the client is told of an end
	interrupted atomic.Pointer[error] // what it was told: by Interrupt, or by the handler's return
}

func (b *boundStream) bind(ctx context.Context) *boundStream {
	b.ctx.Store(&ctx)
	return b
}

// RecvMsg implements grpc.ServerStream.
func (b *boundStream) RecvMsg(m any) error {
	if err := b.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if !b.begun.Swap(true) { // in whose name a stream comes is said by its first message
		ctx := identity.WithReal(b.Context(), m)
		b.ctx.Store(&ctx)
	}
	if err := identity.Says(b.Context(), m); err != nil {
		b.told.refused(b.Context(), m)
		return err
	}
	return b.told.begun(b.Context(), m)
}

func (b *boundStream) Context() context.Context { return *b.ctx.Load() }
