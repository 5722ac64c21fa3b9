package serve

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
)

// boundKey is under what the context of a handler's stream has that.
type boundKey struct{}

// statusWriter is what gRPC's streams on the server's side are, and do not promise to be.
type statusWriter interface {
	WriteStatus(st *status.Status) error
}

// statusOf returns nil if the stream that ctx is of cannot be interrupted.
func statusOf(ctx context.Context) statusWriter {
	w, _ := grpc.ServerTransportStreamFromContext(ctx).(statusWriter)
	return w
}

// Interrupt ends the stream that a handler serves with ctx: why is sent, and then all fails that
// the handler does with its client, a Recv or Send that waits included. Without it only the
// client's leaving and the handler's return end these, so that a handler would need a goroutine to
// wait in. Of several the first counts, and the handler's own error does not. It returns false for
// a stream that cannot be interrupted: one that did not come by gRPC, or by a gRPC whose streams
// are not a statusWriter any more. It may be called at any time, by any goroutine; when the client
// has left or the handler has returned it does nothing.
func Interrupt(ctx context.Context, why error) bool {
	b, _ := ctx.Value(boundKey{}).(*boundStream)
	if b == nil || b.status == nil {
		return false
	}
	why = b.says(why)
	if b.ServerStream.Context().Err() == nil && b.interrupted.CompareAndSwap(nil, &why) {
		_ = b.status.WriteStatus(status.Convert(wire.ToStatus(why))) // its only error is about headers of ours
	}
	return true
}

// Guard runs fn, which does something for the stream that a handler serves with ctx, and
// interrupts the stream if that fails. A panic in fn is its error, as one in the handler is that
// of the call: a goroutine that is not the handler's own runs what it does for the stream in it.
func Guard(ctx context.Context, fn func() error) error {
	err := contained(ctx, fn)
	if err != nil {
		Interrupt(ctx, err)
	}
	return err
}

// contained runs fn, in which a panic is its error if ctx is that of a handler's stream.
func contained(ctx context.Context, fn func() error) (err error) {
	if b, _ := ctx.Value(boundKey{}).(*boundStream); b != nil {
		defer func() {
			if p := recover(); p != nil {
				err = b.told.f.panicked(b.told.method, p)
			}
		}()
	}
	return fn()
}

// Within runs send, which sends something over the stream that a handler serves with ctx, and
// returns its error, or one of kind Deadline if it takes longer than patience: then the stream
// has to end, which ends it. A panic in send is its error, as with Guard.
func Within(ctx context.Context, patience time.Duration, send func() error) error {
	sent := make(chan error, 1)
	go func() { sent <- contained(ctx, send) }()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return tookNothing(patience)
	}
}

// Patient is Within for the stream of many messages that a handler serves with ctx; one message
// is sent at a time. The operation and path are those of the error.
func Patient(ctx context.Context, patience time.Duration, op, path string) func(send func() error) error {
	if b, _ := ctx.Value(boundKey{}).(*boundStream); b == nil || b.status == nil {
		return func(send func() error) error { return Within(ctx, patience, send) }
	}
	late := time.AfterFunc(patience, func() { Interrupt(ctx, fserror.With(tookNothing(patience), op, path)) })
	late.Stop()
	return func(send func() error) error {
		late.Reset(patience)
		defer late.Stop()
		return send()
	}
}

func tookNothing(patience time.Duration) error {
	return fserror.New(fserror.Deadline, "", "", "nothing of the answer was taken for %s, so it was broken off; ask again, and read on without a pause", patience)
}
