package serve

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

type streamOf struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

func (s streamOf) Context() context.Context { return s.ctx }

// TestStreamsEndAsTheirClientsDid: a stream whose deadline has passed says so; one
// whose client has left was canceled.
func TestStreamsEndAsTheirClientsDid(t *testing.T) {
	f := &Front{cfg: Config{Clock: new(clock.Fake), Loops: loops.New(slog.Default(), func(err error) { t.Error(err) }), Guard: identity.New(identity.Config{}, new(clock.Fake), slog.Default())}, calls: newCalls()}
	defer f.cfg.Loops.Stop(errors.New("the test is over"))
	info := &grpc.StreamServerInfo{FullMethod: pb.Admin_Status_FullMethodName} // answered by any namenode
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, c := range []struct {
		ctx  context.Context
		kind error
	}{{late, fserror.Deadline}, {left, fserror.Canceled}} {
		err := f.stream(nil, streamOf{ctx: c.ctx}, info, func(_ any, s grpc.ServerStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		})
		if err := wire.FromStatus(err); !errors.Is(err, c.kind) {
			t.Errorf("a stream that ended by %v: %v", c.ctx.Err(), err)
		}
	}
}

// TestALateMessageTakesNoPlace: a stream whose handler has returned takes no place for a
// message that comes only then; nobody would give it back.
func TestALateMessageTakesNoPlace(t *testing.T) {
	f := &Front{cfg: Config{Clock: new(clock.Fake), Operator: func(string) bool { return false }}}
	f.shared.keepAlives = share.New(1)
	first := &pb.KeepAliveRequest{Caller: &pb.Caller{User: "ann"}}
	stream := func() *auditStream { return &auditStream{f: f, method: pb.Namenode_KeepAlive_FullMethodName} }
	for range 2 {
		s := stream()
		if err := s.begun(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		s.give()
		late := stream()
		late.give()
		if err := late.begun(t.Context(), first); !errors.Is(err, fserror.Canceled) {
			t.Errorf("a message that came late: %v", err)
		}
	}
}
