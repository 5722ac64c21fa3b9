package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/sessions"
)

func bare(t *testing.T) *Front {
	t.Helper()
	log, c := slog.New(slog.DiscardHandler), new(clock.Fake)
	f := &Front{cfg: Config{Clock: c, Log: log, Loops: loops.New(log, func(err error) { t.Error(err) }), Guard: identity.New(identity.Config{}, c, log)}, calls: newCalls()}
	t.Cleanup(func() { f.cfg.Loops.Stop(errors.New("the test is over")) })
	return f
}

var bidi = grpc.StreamDesc{StreamName: "Do", ClientStreams: true, ServerStreams: true}

// streamTo opens a stream, over gRPC, that h serves behind the Front's interceptor. What the
// namenode takes for its end comes to ended.
func streamTo(t *testing.T, f *Front, h func(grpc.ServerStream) error) (cs grpc.ClientStream, ended <-chan error) {
	t.Helper()
	ends := make(chan error, 1)
	s := grpc.NewServer(grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		err := f.stream(srv, ss, info, h)
		ends <- err
		return err
	}))
	desc := bidi
	desc.Handler = func(_ any, ss grpc.ServerStream) error { return h(ss) }
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Test", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, nil)
	lis := bufconn.Listen(64 << 10)
	go func() { _ = s.Serve(lis) }() // until it stops
	t.Cleanup(s.Stop)
	cc, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	if cs, err = cc.NewStream(t.Context(), &bidi, "/test.Test/Do"); err != nil {
		t.Fatal(err)
	}
	return cs, ends
}

// both checks what the namenode and the client take for the end of a stream.
func both(t *testing.T, cs grpc.ClientStream, ended <-chan error, kind fserror.Kind) {
	t.Helper()
	if err := <-ended; !errors.Is(wire.FromStatus(err), kind) {
		t.Errorf("for the namenode it ended by %v", err)
	}
	var err error
	for err == nil {
		err = cs.RecvMsg(new(wrapperspb.BytesValue))
	}
	if !errors.Is(wire.FromStatus(err), kind) {
		t.Errorf("the client was told %v", err)
	}
}

// Interrupt ends what waits for the client, and its error is that of the stream. It stands on
// what gRPC does not promise, so this test fails with a gRPC that does not have it any more.
func TestInterrupt(t *testing.T) {
	large := wrapperspb.Bytes(make([]byte, 64<<10))
	for name, waits := range map[string]func(grpc.ServerStream) error{
		"Recv": func(ss grpc.ServerStream) error { return ss.RecvMsg(new(wrapperspb.BytesValue)) },
		"Send": func(ss grpc.ServerStream) (err error) {
			for err == nil { // until the client, who reads nothing, has enough
				err = ss.SendMsg(large)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			cs, ended := streamTo(t, bare(t), func(ss grpc.ServerStream) error {
				go func() {
					if !Interrupt(ss.Context(), fserror.New(fserror.Permission, "", "", "as the test says")) {
						t.Error("streams of this gRPC cannot be interrupted: sessions and watches need goroutines that wait for their ends")
					}
					Interrupt(ss.Context(), errors.New("the second"))
				}()
				return waits(ss)
			})
			both(t, cs, ended, fserror.Permission)
		})
	}
}

// A panic in what another goroutine does for a stream ends the stream, and nothing else: in what
// is guarded, and in a message that is sent within a time, or for which nobody waits any more.
func TestGuard(t *testing.T) {
	panics := func() error { panic("as the test says") }
	for name, c := range map[string]struct {
		handler func(grpc.ServerStream) error
		kind    fserror.Kind
	}{
		"guarded": {func(ss grpc.ServerStream) error {
			go func() {
				if err := Guard(ss.Context(), panics); !errors.Is(err, fserror.Internal) {
					t.Error(err)
				}
			}()
			return ss.RecvMsg(new(wrapperspb.BytesValue))
		}, fserror.Internal},
		"within a time": {func(ss grpc.ServerStream) error { return Within(ss.Context(), time.Minute, panics) }, fserror.Internal},
		"too late": {func(ss grpc.ServerStream) error {
			return Within(ss.Context(), 0, func() error {
				<-ss.Context().Done() // the handler has returned
				return panics()
			})
		}, fserror.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			f := bare(t)
			cs, ended := streamTo(t, f, c.handler)
			both(t, cs, ended, c.kind)
			registry := prometheus.NewRegistry()
			registry.MustRegister(f.calls.panics)
			for { // a late one has no end to wait for
				m, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				if n := m[0].GetMetric()[0].GetCounter().GetValue(); n == 1 {
					break
				} else if n > 1 || t.Context().Err() != nil {
					t.Fatalf("panics are counted as %v", n)
				}
				runtime.Gosched()
			}
		})
	}
}

// transport is what gRPC has of a stream, and knows what was written as its status.
type transport struct {
	grpc.ServerTransportStream
	wrote []codes.Code
}

func (s *transport) WriteStatus(st *status.Status) error {
	s.wrote = append(s.wrote, st.Code())
	return nil
}

// Once the interceptor has told of a stream's end, nothing else is sent as that.
func TestInterruptAfterTheReturn(t *testing.T) {
	tr := new(transport)
	var of context.Context
	err := bare(t).stream(nil, streamOf{ctx: grpc.NewContextWithServerTransportStream(t.Context(), tr)}, &grpc.StreamServerInfo{FullMethod: "/test.Test/Do"}, func(_ any, ss grpc.ServerStream) error {
		of = ss.Context()
		return nil
	})
	if !Interrupt(of, errors.New("too late")) || err != nil || len(tr.wrote) != 0 {
		t.Errorf("the end was %v, and then %v was sent", err, tr.wrote)
	}
}

// A stream that cannot be interrupted says so, and those who take nothing of it are cut off
// all the same.
func TestNoInterrupt(t *testing.T) {
	err := bare(t).stream(nil, streamOf{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/test.Test/Do"}, func(_ any, ss grpc.ServerStream) error {
		if Interrupt(ss.Context(), errors.New("as the test says")) {
			t.Error("it was interrupted")
		}
		stuck := make(chan error)
		return Patient(ss.Context(), time.Nanosecond, "watch", "/")(func() error { return <-stuck })
	})
	if !errors.Is(wire.FromStatus(err), fserror.Deadline) {
		t.Error(err)
	}
}

// However a session's stream ends while what it has to be told waits for its client, who reads
// nothing, its handler returns and the client is told why.
func TestAStuckTellerEnds(t *testing.T) {
	large := wrapperspb.Bytes(make([]byte, 64<<10))
	for _, c := range []struct {
		name string
		kind fserror.Kind // of the end; 0: none
		end  func(f *Front, cs grpc.ClientStream, ended context.CancelCauseFunc)
	}{
		{"the namenode ends", fserror.NotActive, func(f *Front, _ grpc.ClientStream, _ context.CancelCauseFunc) {
			f.cfg.Loops.Stop(errors.New("as the test says"))
		}},
		{"its proof ends", fserror.Permission, func(_ *Front, _ grpc.ClientStream, ended context.CancelCauseFunc) {
			ended(fserror.New(fserror.Permission, "", "", "as the test says"))
		}},
		{"the client says that no more comes", 0, func(_ *Front, cs grpc.ClientStream, _ context.CancelCauseFunc) {
			if err := cs.CloseSend(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := bare(t)
			sent, proof := make(chan struct{}, 1000), make(chan context.CancelCauseFunc, 1)
			cs, ended := streamTo(t, f, func(ss grpc.ServerStream) (err error) {
				ctx, cancel := context.WithCancelCause(ss.Context())
				defer cancel(nil)
				proof <- cancel
				line := new(sessions.Table).Connect(namespace.SessionID{1}, 1, "", func() {})
				defer line.Stop(func() bool { return Interrupt(ctx, err) })
				line.Begin(func([]readlease.Revocation, *sessions.Loss) bool {
					return Guard(ctx, func() error {
						for {
							sent <- struct{}{}
							if err := ss.SendMsg(large); err != nil {
								return err
							}
						}
					}) == nil
				})
				line.Revoke(readlease.Revocation{Seq: 1})
				defer context.AfterFunc(ctx, func() { Interrupt(ctx, context.Cause(ctx)) })()
				if err = ss.RecvMsg(new(wrapperspb.BytesValue)); errors.Is(err, io.EOF) {
					err = nil
				}
				return err
			})
			for range 2 { // the first took all that gRPC lets wait
				<-sent
			}
			c.end(f, cs, <-proof)
			if c.kind != 0 {
				both(t, cs, ended, c.kind)
			} else if err := <-ended; err != nil {
				t.Errorf("it ended by %v", err)
			}
		})
	}
}
