package namenode_test

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// BenchmarkHistory makes files and closes them, by two unary calls each, with and without
// the history of leases. Of a machine with other work, only the processor time says much:
// that of clients and namenode together.
func BenchmarkHistory(b *testing.B) {
	for name, keep := range map[string]time.Duration{"off": -1, "on": 0} {
		b.Run(name, func(b *testing.B) {
			cfg := benchConfig(b)
			cfg.LeaseHistory = keep
			s := benchStart(b, cfg)
			defer func() { _ = s.Close() }()
			c := pb.NewNamenodeClient(benchDial(b, s))
			var worker atomic.Int64
			began := processorTime(b)
			b.SetParallelism(16)
			b.RunParallel(func(p *testing.PB) {
				session := make([]byte, 16)
				_, _ = rand.Read(session)
				who := &pb.Caller{User: "root", Client: fmt.Sprint("w", worker.Add(1)), Session: session}
				for seq := uint64(1); p.Next(); seq += 2 {
					id := &pb.CallId{Session: session, Seq: seq, Acked: seq - 1}
					made, err := c.Create(b.Context(), &pb.CreateRequest{Call: id, Caller: who, At: pb.At(fmt.Sprintf("/%s/file-%08d", who.GetClient(), seq)), Parents: true})
					if err == nil {
						_, err = c.Close(b.Context(), &pb.CloseRequest{Call: &pb.CallId{Session: session, Seq: seq + 1, Acked: seq}, Writer: made.GetWriter()})
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}
