package namenode_test

import (
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// BenchmarkCheckpoint writes an image of ten million files (with -short one
// million) while 32 workers stat: how long they wait then, beside how long they
// wait without; and how long the next start from that image takes.
func BenchmarkCheckpoint(b *testing.B) {
	files := 10_000_000
	if testing.Short() {
		files = 1_000_000
	}
	cfg := benchConfig(b)
	s := benchStart(b, cfg)
	defer func() { _ = s.Close() }()
	cc := benchDial(b, s)
	nn, admin := pb.NewNamenodeClient(cc), pb.NewAdminClient(cc)
	fill(b, nn, files)
	who := &pb.Caller{User: "root", Client: "c", Session: make([]byte, 16)}

	// load stats until done says so, and reports the time that one in a thousand took.
	load := func(unit string, done func() bool) {
		const workers = 32
		took := make([][]time.Duration, workers)
		finished := make(chan struct{})
		var left atomic.Int32
		left.Store(workers)
		for w := range workers {
			go func() {
				defer func() {
					if left.Add(-1) == 0 {
						close(finished)
					}
				}()
				for i := 0; !done(); i++ {
					began := time.Now()
					if _, err := nn.Stat(b.Context(), &pb.StatRequest{Caller: who, At: pb.At("/fill/d00000/file-00000000")}); err != nil {
						b.Error(err)
						return
					}
					took[w] = append(took[w], time.Since(began))
				}
			}()
		}
		<-finished
		all := slices.Concat(took...)
		slices.Sort(all)
		if len(all) == 0 {
			b.Fatal("no stat was answered")
		}
		b.ReportMetric(float64(all[len(all)*999/1000].Microseconds())/1e3, unit+"-p999-ms")
		b.ReportMetric(float64(all[len(all)-1].Microseconds())/1e3, unit+"-max-ms")
	}
	for b.Loop() {
		quiet := time.Now().Add(5 * time.Second)
		load("quiet", func() bool { return time.Now().After(quiet) })
		var written atomic.Bool
		go func() {
			defer written.Store(true)
			resp, err := admin.Checkpoint(b.Context(), &pb.CheckpointRequest{Caller: who})
			if err != nil {
				b.Error(err)
				return
			}
			b.ReportMetric(float64(resp.GetDurationMs())/1e3, "checkpoint-s")
		}()
		load("checkpoint", written.Load)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		debug.FreeOSMemory()
		began := time.Now()
		s = benchStart(b, cfg)
		b.ReportMetric(time.Since(began).Seconds(), "start-s")
	}
}
