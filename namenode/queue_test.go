package namenode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// Who may not write a file gets no place among those who wait for it, so that
// nobody waits for one who will be refused: places are kept for who asks again.
func TestOnlyWhoMayWriteQueues(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	holder, waiter := n.Raw(t, "holder"), n.Raw(t, "waiter")
	held := holder.Create("/f")
	waiting := func(want uint32) func() bool {
		return func() bool {
			out, err := holder.NN.ListLeases(t.Context(), &pb.ListLeasesRequest{Caller: holder.Who, Path: "/f"})
			if err != nil {
				t.Fatal(err)
			}
			return out.GetLeases()[0].GetWaiting() == want
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := waiter.NN.Append(ctx, &pb.AppendRequest{Call: waiter.Call(), Caller: waiter.Who, At: pb.Follow("/f"), WaitMs: time.Hour.Milliseconds()})
		ended <- err
	}()
	env.Eventually(t, "one waits", waiting(1))
	inode := holder.File("/f").GetAttr().GetInode()
	for i := range 3 {
		stranger := n.RawFrom(t, "stranger", "127.0.0.2")
		req := &pb.AppendRequest{Call: stranger.Call(), Caller: stranger.Who, At: pb.Follow("/f"), WaitMs: 1, Again: true}
		if i == 2 {
			req.At = pb.Inode(inode)
		}
		if _, err := stranger.NN.Append(t.Context(), req); !errors.Is(err, fserror.Permission) {
			t.Errorf("a stranger who waits for a file that he may not write gets %v", err)
		}
	}
	giveUp()
	if err := <-ended; err == nil {
		t.Error("who waited has got the file")
	}
	env.Eventually(t, "nobody waits", waiting(0))
	if err := holder.Close(held, 0); err != nil {
		t.Fatal(err)
	}
}
