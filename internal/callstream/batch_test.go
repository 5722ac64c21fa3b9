package callstream_test

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/callstream"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// final is an answer that may be given once until is closed.
type final struct {
	callstream.Answer
	until chan struct{}
}

func (f final) Ready() bool {
	select {
	case <-f.until:
		return true
	default:
		return false
	}
}

func (f final) Wait() (any, error) {
	<-f.until
	return f.Answer.Wait()
}

// together sends stats of paths in one message, under ids from 1 on.
func together(t *testing.T, st pb.Calls_CarryClient, paths ...string) {
	t.Helper()
	m := &pb.CarryRequest{}
	for i, p := range paths {
		m.Calls = append(m.Calls, &pb.CarriedCall{Id: uint64(i + 1), Method: "Namenode/Stat", Request: marshal(t, &pb.StatRequest{At: &pb.Ref{Path: p}})})
	}
	if err := st.Send(m); err != nil {
		t.Fatal(err)
	}
}

// answered returns the ids of the next n answers, in their order.
func answered(t *testing.T, st pb.Calls_CarryClient, n int) (ids []uint64) {
	t.Helper()
	for len(ids) < n {
		m, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range m.GetAnswers() {
			if a.GetCode() != 0 {
				t.Errorf("call %d: %s", a.GetId(), a.GetMessage())
			}
			ids = append(ids, a.GetId())
		}
	}
	return ids
}

// TestASlowCallHoldsUpNoneOfItsMessage: later calls are served beside it, at once if it
// says that it waits, else soon. Earlier ones are answered.
func TestASlowCallHoldsUpNoneOfItsMessage(t *testing.T) {
	for name, within := range map[string]time.Duration{"waits": 0, "is silent": 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
				if p == "slow" {
					if name == "waits" {
						callstream.Waits(ctx)
					}
					<-release
				}
				return echo(ctx, p)
			})
			s.final = make(chan struct{})
			st := s.carry(t.Context())
			began := time.Now()
			together(t, st, "final", "slow", "a", "slow", "final", "b")
			if got := answered(t, st, 2); !slices.Equal(got, []uint64{3, 6}) {
				t.Errorf("a call that %s: answers to %v", name, got)
			}
			if took := time.Since(began); took > within {
				t.Errorf("a call that %s held others up for %v", name, took)
			}
			close(s.final)
			got := answered(t, st, 2)
			if slices.Sort(got); !slices.Equal(got, []uint64{1, 5}) {
				t.Errorf("a call that %s: answers to %v, when those that wait are final", name, got)
			}
			close(release)
			got = answered(t, st, 2)
			if slices.Sort(got); !slices.Equal(got, []uint64{2, 4}) {
				t.Errorf("a call that %s: answers to %v at last", name, got)
			}
		})
	}
}

// panics is an answer that fails whatever it is asked.
type panics struct{ callstream.Answer }

func (panics) Wait() (any, error) { panic("as the test says") }

// TestAPanicIsOneAnswer: a panic around a call, while its answer waits or is encoded, is the
// error of that call. The others of its message are answered.
func TestAPanicIsOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "carried out" {
				panic("as the test says")
			}
			return echo(ctx, p)
		})
		s.bad = map[string]callstream.Answer{"waits": panics{}, "encoded": callstream.AtOnce(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) { return 3, nil })(t.Context(), nil, nil, nil)}
		st := s.carry(t.Context())
		together(t, st, "carried out", "a", "waits", "encoded", "b")
		codes := map[uint64]uint32{}
		for len(codes) < 5 {
			m, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range m.GetAnswers() {
				codes[a.GetId()] = a.GetCode()
			}
		}
		if want := map[uint64]uint32{1: 13, 2: 0, 3: 13, 4: 13, 5: 0}; !maps.Equal(codes, want) {
			t.Errorf("answered with %v, want %v", codes, want)
		}
	})
}

// TestASlowCallAtTheEnd: the answers of those before it do not wait for it.
func TestASlowCallAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "slow" {
				<-release
			}
			return echo(ctx, p)
		})
		s.final = make(chan struct{})
		st := s.carry(t.Context())
		together(t, st, "final", "slow")
		<-time.After(time.Second)
		close(s.final)
		synctest.Wait()
		if got := answered(t, st, 1); got[0] != 1 {
			t.Errorf("answer to %v", got)
		}
		close(release)
		answered(t, st, 1)
	})
}

// TestAMessageTakesOneGoroutine: however many of its calls wait for the same.
func TestAMessageTakesOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, echo)
		s.final = make(chan struct{})
		st := s.carry(t.Context())
		ask(t, st, 1, "x")
		answered(t, st, 1)
		synctest.Wait()
		before := runtime.NumGoroutine()
		m := &pb.CarryRequest{}
		for id := range uint64(100) {
			m.Calls = append(m.Calls, &pb.CarriedCall{Id: id + 2, Method: "Namenode/Stat", Request: marshal(t, &pb.StatRequest{At: &pb.Ref{Path: "final"}})})
		}
		if err := st.Send(m); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if n := runtime.NumGoroutine() - before; n != 1 {
			t.Errorf("%d goroutines for 100 calls that wait", n)
		}
		close(s.final)
		answered(t, st, 100)
	})
}

// TestABadCallEndsTheStream: but not before the good calls of its message have ended.
func TestABadCallEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 2, echo)
		s.final = make(chan struct{})
		st := s.carry(t.Context())
		together(t, st, "final", "final", "one too many")
		synctest.Wait()
		select {
		case err := <-s.served:
			t.Fatal("it has ended, with calls under way:", err)
		default:
		}
		close(s.final)
		if err := <-s.served; err == nil {
			t.Error("it ended without an error")
		}
	})
}
