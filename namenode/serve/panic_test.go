package serve

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// final is an Answer that waits for nothing.
type final struct{}

func (final) Ready() bool                { return true }
func (final) Wait(context.Context) error { return nil }
func (final) Wrote() uint64              { return 0 }

// broken is an Answer that fails when it is asked for.
type broken struct{ final }

func (broken) Wait(context.Context) error { panic("as the test says") }

// TestAPanicIsAnAnswer: a handler that panics, or what comes before and after it, ends its call, unary or of a stream, with an
// error that says where to look, is counted, and gives its place back.
func TestAPanicIsAnAnswer(t *testing.T) {
	f := &Front{calls: newCalls(), Served: share.New(1), cfg: Config{
		Clock: new(clock.Fake), Log: slog.New(slog.DiscardHandler), Limits: func(string) bool { return false },
		Answer: func(ctx context.Context, _ func(context.Context)) (context.Context, Answer) { return ctx, final{} },
	}}
	answers := f.cfg.Answer
	f.cfg.Guard = identity.New(identity.Config{}, f.cfg.Clock, f.cfg.Log)
	info := &grpc.UnaryServerInfo{FullMethod: pb.Admin_Status_FullMethodName} // answered by any namenode
	panics := func(context.Context, any) (any, error) { panic("as the test says") }
	fine := func(context.Context, any) (any, error) { return 1, nil }
	with := func(answer func(context.Context, func(context.Context)) (context.Context, Answer), call func() (any, error)) func() (any, error) {
		return func() (any, error) {
			f.cfg.Answer = answer
			defer func() { f.cfg.Answer = answers }()
			return call()
		}
	}
	fails := func(context.Context, func(context.Context)) (context.Context, Answer) { panic("as the test says") }
	breaks := func(ctx context.Context, _ func(context.Context)) (context.Context, Answer) { return ctx, broken{} }
	for name, serve := range map[string]func() (any, error){
		"before the handler": with(fails, func() (any, error) { return f.unary(t.Context(), &pb.StatusRequest{}, info, fine) }),
		"behind the handler": with(breaks, func() (any, error) { return f.carry(t.Context(), &pb.StatusRequest{}, info, fine).Wait() }),
		"unary":              func() (any, error) { return f.unary(t.Context(), &pb.StatusRequest{}, info, panics) },
		"of a stream":        func() (any, error) { return f.carry(t.Context(), &pb.StatusRequest{}, info, panics).Wait() },
	} {
		resp, err := serve()
		if err = wire.FromStatus(err); resp != nil || !errors.Is(err, fserror.Internal) {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.calls.panics)
	if m, err := registry.Gather(); err != nil || m[0].GetMetric()[0].GetCounter().GetValue() != 4 {
		t.Errorf("panics are counted as %v, %v", m, err)
	}
	if _, err := f.unary(t.Context(), &pb.StatusRequest{}, info, func(context.Context, any) (any, error) { return 1, nil }); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
