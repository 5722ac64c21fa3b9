package client_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestSuspendedBetweenAttempts: a client's machine is suspended when the answer to its delete
// is on its way, for longer than a namenode knows a repetition. The call is not sent again: it
// would delete what another user has made in that place meanwhile.
func TestSuspendedBetweenAttempts(t *testing.T) {
	t.Parallel()
	clk := new(env.LeapingClock) // of all of them: nothing but timers stands still in a suspended machine
	n := env.Start(t, func(c *namenode.Config) { c.Clock = clk })
	other := n.Raw(t, "other")
	other.Close(other.Create("/a"), 0)
	var attempts atomic.Int32
	lose := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if !strings.HasSuffix(method, "/Delete") || attempts.Add(1) > 1 {
			return err
		}
		if err != nil {
			t.Errorf("the first attempt: %v", err)
		}
		for i := range 20 {
			clk.Leap(time.Minute)
			other.Close(other.Create("/work"+strings.Repeat("x", i+1)), 0)
		}
		other.Close(other.Create("/a"), 0)
		return status.Error(codes.Unavailable, "the connection is broken")
	}
	f, err := client.New(t.Context(), client.Config{
		Namenodes: []string{n.Addr()}, User: "root", Clock: clk, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(lose)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Remove(t.Context(), "/a"); fserror.KindOf(err) != fserror.Unavailable || !strings.Contains(err.Error(), "not known") {
		t.Errorf("the delete ended with %v, not with an unknown outcome", err)
	}
	if _, err := f.Stat(t.Context(), "/a"); err != nil {
		t.Errorf("the file that another has made meanwhile: %v", err)
	}
}
