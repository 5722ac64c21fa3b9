package namenode_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/testenv"
)

// BenchmarkStatBesideWatchers is a bystander's stat while a thousand changes a
// second are made, all of which each of the watchers is told, in this process.
func BenchmarkStatBesideWatchers(b *testing.B) {
	for _, watchers := range []int{0, 1000, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			n := testenv.Start(b)
			r := n.Raw(b, "a")
			ctx, cancel := context.WithCancel(b.Context())
			var all sync.WaitGroup
			var told, made atomic.Int64
			for i := 0; i < watchers; i += 1000 {
				cc, err := grpc.NewClient(n.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = cc.Close() })
				for range min(watchers, 1000) {
					st, err := pb.NewNamenodeClient(cc).Watch(ctx, &pb.WatchRequest{Caller: r.Who, Path: "/", Recursive: true})
					if err == nil {
						_, err = st.Recv()
					}
					if err != nil {
						b.Fatal(err)
					}
					all.Go(func() {
						for {
							resp, err := st.Recv()
							if err != nil {
								return
							}
							told.Add(int64(len(resp.GetEvents())))
						}
					})
				}
			}
			for w := range 8 { // each makes 125 a second
				all.Go(func() {
					tick := time.NewTicker(8 * time.Millisecond)
					defer tick.Stop()
					for i := 0; ; i++ {
						select {
						case <-tick.C:
						case <-ctx.Done():
							return
						}
						if _, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, Path: fmt.Sprintf("/d%d-%d", w, i)}); err != nil {
							return
						}
						made.Add(1)
					}
				})
			}
			other := n.Raw(b, "b")
			began := time.Now()
			for b.Loop() {
				if _, err := other.NN.Stat(ctx, &pb.StatRequest{Caller: other.Who, Path: "/"}); err != nil {
					b.Fatal(err)
				}
			}
			took := time.Since(began).Seconds()
			b.ReportMetric(float64(made.Load())/took, "changes/s")
			b.ReportMetric(float64(told.Load())/took, "told/s")
			cancel()
			all.Wait()
		})
	}
}
