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
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second) // they are broken off after a minute
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

// A comparison of snapshots looks at much of the tree: it waits for its turn as a walk does.
func TestComparisonsOfSnapshotsTakeTurns(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "root")
	if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d")}); err != nil {
		t.Fatal(err)
	}
	r.Make("/d/f", "/d/g")
	if _, err := r.NN.AllowSnapshots(t.Context(), &pb.AllowSnapshotsRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d"), Allow: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.NN.MakeSnapshot(t.Context(), &pb.MakeSnapshotRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d"), Name: "s"}); err != nil {
		t.Fatal(err)
	}
	r.Make("/d/new")
	release, err := n.HoldWalks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { release() }()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	differ := func(ctx context.Context) {
		out, err := r.NN.DiffSnapshots(ctx, &pb.DiffSnapshotsRequest{Caller: r.Who, At: pb.At("/d"), From: "s"})
		if err == nil && len(out.GetChanges()) != 2 { // the directory, and what is new
			err = fmt.Errorf("it tells of %v", out)
		}
		ended <- err
	}
	waits := func() {
		t.Helper()
		go differ(ctx)
		env.Eventually(t, "it waits, or is answered", func() bool { return n.Parked() > 0 || len(ended) > 0 })
		if len(ended) > 0 {
			t.Fatalf("it did not wait for its turn: %v", <-ended)
		}
	}
	waits()
	cancel() // who goes away takes no turn with him
	if err := <-ended; err == nil {
		t.Error("it was answered")
	}
	env.Eventually(t, "it has gone", func() bool { return n.Parked() == 0 })
	ctx = t.Context()
	waits()
	release()
	release = func() {}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if release, err = n.HoldWalks(t.Context()); err != nil { // all turns were given back
		t.Fatal(err)
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
