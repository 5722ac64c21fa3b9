package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// manyNames makes more than a stream takes that nobody reads.
func manyNames(t *testing.T, r *env.Raw) {
	t.Helper()
	for batch := range 3 {
		paths := make([]string, 1000)
		for i := range paths {
			paths[i] = fmt.Sprintf("/%d-%03d-%s", batch, i, strings.Repeat("n", 200))
		}
		r.Make(paths...)
	}
}

// pausedFind is a find of which only the first page is read.
func pausedFind(t *testing.T, r *env.Raw) (next func() error) {
	t.Helper()
	s, err := r.NN.Find(t.Context(), &pb.FindRequest{Caller: r.Who, At: pb.Follow("/")})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		_, err := s.Recv()
		return wire.FromStatus(err)
	}
}

func TestAPausedFindHoldsUpNoOtherWalk(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "r")
	manyNames(t, r)
	for range 4 {
		pausedFind(t, n.Raw(t, "paused"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // they are broken off after a minute
	defer cancel()
	if out, err := r.NN.Summary(ctx, &pb.SummaryRequest{Caller: r.Who, At: pb.Follow("/")}); err != nil || out.GetFiles() != 3000 {
		t.Fatalf("%v, %v", out, err)
	}
}

// Walks that wait for their turn take no place among the calls that are served.
func TestWaitingWalksLeaveRoomForCalls(t *testing.T) {
	t.Parallel()
	const most = 4
	n := env.Start(t, func(c *namenode.Config) { c.MaxInFlight = most })
	r := n.Raw(t, "r")
	release, err := n.HoldWalks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2*most)
	for i := range 2 * most {
		go func() {
			_, err := r.NN.Summary(t.Context(), &pb.SummaryRequest{Caller: r.Who, At: pb.Follow("/")})
			ended <- err
		}()
		env.Eventually(t, "it waits, or is refused", func() bool { return n.Parked()+n.Served() > int64(i) || len(ended) > 0 })
	}
	if _, err := r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At("/")}); err != nil {
		t.Errorf("a call beside walks that wait: %v", err)
	}
	release()
	for range 2 * most {
		if err := <-ended; err != nil && !errors.Is(err, fserror.Retry) { // they may come back at once
			t.Error(err)
		}
	}
}

func TestAFindThatIsNotReadOnIsBrokenOff(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	n.SetPatience(200 * time.Millisecond)
	r := n.Raw(t, "r")
	manyNames(t, r)
	next := pausedFind(t, r)
	env.Eventually(t, "the namenode breaks off", func() bool {
		return strings.Contains(n.Metrics(t), `leasefs_call_errors_total{kind="DEADLINE",method="find"}`)
	})
	var err error
	for err == nil {
		err = next()
	}
	if !errors.Is(err, fserror.Deadline) || !strings.Contains(err.Error(), "nothing of the answer was taken") {
		t.Fatal(err)
	}
}
