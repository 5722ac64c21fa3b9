package namenode_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestLargeRequestsWaitInFewPlaces: a call that waits keeps its request in memory, so a large
// one takes as many places as it is large, and who makes many of them is refused.
func TestLargeRequestsWaitInFewPlaces(t *testing.T) {
	t.Parallel()
	n := env.Start(t, func(c *namenode.Config) { c.MaxWaiting = 3000 })
	holder, waiter := n.Raw(t, "holder"), n.Raw(t, "waiter")
	holder.Create("/f")
	large := proto.CloneOf(waiter.Who)
	for i := range 4096 {
		large.Groups = append(large.Groups, fmt.Sprintf("%06d", i)+strings.Repeat("x", 234)) // 1,945 places
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := func(who *pb.Caller) chan error {
		said := make(chan error, 1)
		go func() {
			_, err := waiter.NN.Append(ctx, &pb.AppendRequest{Call: waiter.Call(), Caller: who, At: pb.Follow("/f"), WaitMs: time.Hour.Milliseconds()})
			said <- err
		}()
		return said
	}
	waiting := func(want uint32) {
		t.Helper()
		env.Eventually(t, fmt.Sprint(want, " wait"), func() bool {
			out, err := holder.NN.ListLeases(t.Context(), &pb.ListLeasesRequest{Caller: holder.Who, Path: "/f"})
			return err == nil && out.GetLeases()[0].GetWaiting() == want
		})
	}
	first := wait(large)
	waiting(1)
	if err := wire.FromStatus(<-wait(large)); !fserror.Has(err, fserror.Retry, fserror.ReasonShares) || !strings.Contains(err.Error(), "waiting") {
		t.Errorf("the second large one: %v", err)
	}
	small := wait(waiter.Who)
	waiting(2)
	cancel()
	for _, said := range []chan error{first, small} {
		if err := <-said; err == nil {
			t.Error("it got the file that another has open")
		}
	}
}
