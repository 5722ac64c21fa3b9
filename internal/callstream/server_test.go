package callstream_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// carry opens a stream as another client would.
func (s *side) carry(ctx context.Context) pb.Calls_CarryClient {
	s.t.Helper()
	st, err := pb.NewCallsClient(s.cc.ClientConn).Carry(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// ask sends a stat of a path under an id.
func ask(t *testing.T, st pb.Calls_CarryClient, id uint64, p string) {
	t.Helper()
	c := &pb.CarriedCall{Id: id, Method: "Namenode/Stat", Request: marshal(t, &pb.StatRequest{At: &pb.Ref{Path: p}}), TimeoutMs: 1 << 40}
	if err := st.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{c}}); err != nil {
		t.Fatal(err)
	}
}

// TestStop: calls under way are answered as if nothing were, those that come meanwhile
// are, too, and the stream ends with the last.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *side
		release := make(chan struct{})
		s = start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p == "wait" {
				select {
				case <-release:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			} else if s.stop.Err() != nil {
				return nil, &fserror.Error{Kind: fserror.NotActive, Message: "it stops"}
			}
			return echo(ctx, p)
		})
		s.open()
		got := make(chan error, 1)
		go func() { _, err := s.stat(t.Context(), "wait"); got <- err }()
		synctest.Wait()
		s.end()
		synctest.Wait()
		for range 3 {
			if _, err := s.stat(t.Context(), "late"); fserror.KindOf(wire.FromStatus(err)) != fserror.NotActive {
				t.Error("a call that comes while it stops:", err)
			}
		}
		close(release)
		if err := <-got; err != nil {
			t.Error("a call under way:", err)
		}
		<-time.After(time.Minute) // the stream has ended, others end at once
		stopped := make(chan struct{})
		go func() { s.srv.GracefulStop(); close(stopped) }()
		select {
		case <-stopped:
		case <-time.After(time.Minute):
			t.Error("a stream holds the server up")
		}
	})
}

// TestTheContextOfAStreamEnds: what waits ends with it, what is done is answered once it may be, no call begins,
// and the stream ends with the last answer.
func TestTheContextOfAStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			if p != "final" {
				<-ctx.Done()
				return nil, status.Error(codes.Aborted, p)
			}
			return echo(ctx, p)
		})
		proof, end := context.WithCancel(t.Context())
		s.proof, s.final = proof, make(chan struct{})
		st := s.carry(t.Context())
		ask(t, st, 1, "final")
		ask(t, st, 2, "waits")
		synctest.Wait()
		end()
		if m, err := st.Recv(); err != nil || len(m.GetAnswers()) != 1 || m.GetAnswers()[0].GetId() != 2 || codes.Code(m.GetAnswers()[0].GetCode()) != codes.Aborted {
			t.Errorf("what waits: %v, %v", m, err)
		}
		ask(t, st, 3, "late")
		synctest.Wait()
		close(s.final)
		if m, err := st.Recv(); err != nil || len(m.GetAnswers()) != 1 || m.GetAnswers()[0].GetId() != 1 || m.GetAnswers()[0].GetCode() != 0 {
			t.Errorf("what is done: %v, %v", m, err)
		}
		if m, err := st.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last answer: %v, %v", m, err)
		}
		if n := s.carried.Load(); n != 2 {
			t.Errorf("%d calls were carried out", n)
		}
	})
}

// TestHalfClosed: calls end with the connection of a client that has said its last word.
func TestHalfClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		s := start(t, 1000, func(ctx context.Context, p string) (*pb.StatResponse, error) {
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		})
		st := s.carry(t.Context())
		ask(t, st, 1, "wait")
		if err := st.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go func() { _ = s.cc.Close() }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the call is under way for nobody")
		}
	})
}

// TestErrorsThatNobodyReads count as answers do, and what one is about is shortened.
func TestErrorsThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, func(_ context.Context, p string) (*pb.StatResponse, error) {
			return nil, status.Error(codes.Internal, "\xff"+strings.Repeat("x", 32<<10))
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		st := s.carry(ctx)
		for id := range uint64(300) {
			ask(t, st, id+1, "x")
			synctest.Wait()
		}
		if n := s.carried.Load(); n > 200 {
			t.Errorf("%d large errors wait for who does not read", n)
		}
		for n := 0; n < 300; {
			m, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if b := proto.Size(m); b > 1<<20 {
				t.Errorf("a message of %d bytes", b)
			}
			n += len(m.GetAnswers())
		}
		// One that never reads is broken off, with its calls.
		for id := range uint64(300) {
			ask(t, st, id+1000, "x")
		}
		<-time.After(2 * time.Minute)
		if _, err := s.stat(t.Context(), "x"); status.Code(err) != codes.Internal {
			t.Error("another's call:", err)
		}
		var err error
		for err == nil {
			_, err = st.Recv()
		}
		if status.Code(err) != codes.DeadlineExceeded {
			t.Error("after two minutes:", err)
		}
	})
}

// TestFewStreams: a connection has four.
func TestFewStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, echo)
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			st := s.carry(ctx)
			ask(t, st, 1, "x")
			if _, err := st.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.carry(ctx).Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Error("the fifth:", err)
		}
		if _, err := s.stat(t.Context(), "unary"); err != nil {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
		st := s.carry(t.Context())
		ask(t, st, 1, "x")
		if _, err := st.Recv(); err != nil {
			t.Error("once they have ended:", err)
		}
	})
}

// TestAbandonedCallsAreFew: a client whose messages stand still keeps no requests of
// calls that were given up, and no more than a few of their records.
func TestAbandonedCallsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 50, echo)
		s.open()
		s.mu.Lock()
		s.hold = make(chan struct{})
		s.mu.Unlock()
		unary := s.unary.Load()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := s.stat(ctx, "x"); err != nil && status.Code(err) != codes.DeadlineExceeded {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.unary.Load() - unary; n < 140 {
			t.Errorf("%d of 200 calls did not go over a stream that takes 50 and stands still", n)
		}
		close(s.hold)
		if _, err := s.stat(t.Context(), "next"); err != nil {
			t.Error(err)
		}
	})
}

// TestLeavingIsNoFailure: the stream of a client that leaves, however it does, ends
// without an error: such errors are counted, and its calls were counted by themselves.
func TestLeavingIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1000, echo)
		s.open()
		if err := s.cc.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-s.served; err != nil {
			t.Error(err)
		}
	})
}
