package namenode_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// eventCount receives a WatchResponse and only counts its events, so that the
// watchers of a benchmark leave the processor to the namenode.
type eventCount struct{ events int64 }

// countCodec is gRPC's codec of protobuf that knows eventCount, too.
type countCodec struct{ encoding.CodecV2 }

func (c countCodec) Unmarshal(data mem.BufferSlice, v any) error {
	count, ok := v.(*eventCount)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	count.events = 0
	for rest := b.ReadOnlyData(); len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		if n = protowire.ConsumeFieldValue(num, typ, rest); n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		if num == 1 {
			count.events++
		}
	}
	return nil
}

// cpuTime is how much processor time this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStatBesideWatchers is a bystander's stat while a thousand changes a
// second are made, all of which each of the watchers is told, in this process.
// changes/s and told/s are how many were made and told; processors is how many the
// process kept busy, clients included.
func BenchmarkStatBesideWatchers(b *testing.B) {
	for _, watchers := range []int{0, 1000, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			n := env.Start(b)
			r := n.Raw(b, "a")
			ctx, cancel := context.WithCancel(b.Context())
			var all sync.WaitGroup
			var told, made atomic.Int64
			for i := 0; i < watchers; i += 1000 {
				cc, err := grpc.NewClient(n.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithDefaultCallOptions(grpc.ForceCodecV2(countCodec{encoding.GetCodecV2("proto")})))
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
						for resp := new(eventCount); st.RecvMsg(resp) == nil; {
							told.Add(resp.events)
						}
					})
				}
			}
			for w := range 8 { // each makes 125 a second
				r := n.Raw(b, fmt.Sprint("maker", w))
				all.Go(func() {
					tick := time.NewTicker(8 * time.Millisecond)
					defer tick.Stop()
					for i := 0; ; i++ {
						select {
						case <-tick.C:
						case <-ctx.Done():
							return
						}
						if _, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.CallInTurn(), Caller: r.Who, At: pb.At(fmt.Sprintf("/d%d-%d", w, i))}); err != nil {
							if ctx.Err() == nil {
								b.Error(err)
							}
							return
						}
						made.Add(1)
					}
				})
			}
			other := n.Raw(b, "b")
			began, before := time.Now(), cpuTime(b)
			for b.Loop() {
				if _, err := other.NN.Stat(ctx, &pb.StatRequest{Caller: other.Who, At: pb.At("/")}); err != nil {
					b.Fatal(err)
				}
			}
			took, cpu := time.Since(began).Seconds(), cpuTime(b)-before
			b.ReportMetric(float64(made.Load())/took, "changes/s")
			b.ReportMetric(float64(told.Load())/took, "told/s")
			b.ReportMetric(cpu.Seconds()/took, "processors")
			cancel()
			all.Wait()
		})
	}
}
