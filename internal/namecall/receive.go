package namecall

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Receive reads a stream of answers to its end, or until each returns false or an
// error. Until the first message has come it is begun again as calls are; after it
// a broken stream is an error.
func Receive[M any](ctx context.Context, s *Namenodes, op, path string,
	open func(context.Context, grpc.ClientConnInterface) (grpc.ServerStreamingClient[M], error), each func(*M) (bool, error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, w := &Call{Op: op, Path: path}, s.Waits(op, path)
	for n := 0; ; n++ {
		if err := s.Err(); err != nil {
			return c.fail(err)
		}
		ep := s.Active()
		got := false
		stream, err := open(ctx, ep.Conn())
		for err == nil {
			var m *M
			if m, err = stream.Recv(); err != nil {
				break
			}
			got = true
			goOn, eerr := each(m)
			if eerr != nil || !goOn {
				return eerr
			}
		}
		if err == io.EOF { //nolint:errorlint // a stream's end is io.EOF itself
			return nil
		}
		if ctx.Err() != nil {
			return c.ended(ctx)
		}
		e, answered := Answer(err)
		again := !answered && status.Code(err) == codes.Unavailable
		if answered {
			switch e.Kind {
			case fserror.NotActive, fserror.Unavailable, fserror.Retry:
				again = true
			}
		}
		if got || !again {
			return c.fail(e)
		}
		if e.Kind != fserror.Retry {
			s.MoveOn(ep, e.Active)
		}
		if err := w.Next(ctx, c, max(Backoff(n), e.RetryAfter), e, answered); err != nil {
			return err
		}
	}
}
