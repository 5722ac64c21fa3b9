package namenode_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// BenchmarkDeleteMillion deletes a directory with a million files below it while
// others work, until the last inode is given back. Beside the time of the whole
// it reports the longest time that anybody held the namespace's lock, and the
// longest that a stat and a mkdir took meanwhile.
func BenchmarkDeleteMillion(b *testing.B) {
	files := 1_000_000
	if testing.Short() {
		files = 100_000
	}
	s := benchStart(b, benchConfig(b))
	b.Cleanup(func() { _ = s.Close() })
	nn, admin := pb.NewNamenodeClient(benchDial(b, s)), pb.NewAdminClient(benchDial(b, s))
	who := func(id byte) *pb.Caller {
		session := make([]byte, 16)
		session[0] = id
		return &pb.Caller{User: "root", Client: fmt.Sprint("c", id), Session: session}
	}
	var deletes, mkdirs uint64
	var lock, stat, mkdir, reply time.Duration
	longest := func(to *time.Duration, f func(ctx context.Context) error) func(ctx context.Context) {
		return func(ctx context.Context) {
			for ctx.Err() == nil {
				began := time.Now()
				if err := f(ctx); err != nil && ctx.Err() == nil {
					b.Error(err)
					return
				}
				*to = max(*to, time.Since(began))
			}
		}
	}
	others := []func(context.Context){
		func(ctx context.Context) {
			tick := time.NewTicker(500 * time.Microsecond) // not a burden of its own
			defer tick.Stop()
			for ctx.Err() == nil {
				lock = max(lock, s.LockWait())
				<-tick.C
			}
		},
		longest(&stat, func(ctx context.Context) error {
			_, err := nn.Stat(ctx, &pb.StatRequest{Caller: who(1), At: pb.At("/")})
			return err
		}),
		longest(&mkdir, func(ctx context.Context) error {
			mkdirs++
			_, err := nn.Mkdir(ctx, &pb.MkdirRequest{Call: &pb.CallId{Session: who(2).GetSession(), Seq: mkdirs, Acked: mkdirs - 1}, Caller: who(2), At: pb.At("/other"), Parents: true})
			return err
		}),
	}
	for b.Loop() {
		b.StopTimer()
		fill(b, nn, files)
		ctx, cancel := context.WithCancel(b.Context())
		var working sync.WaitGroup
		for _, f := range others {
			working.Go(func() { f(ctx) })
		}
		b.StartTimer()
		deletes++
		began := time.Now()
		_, err := nn.Delete(ctx, &pb.DeleteRequest{Call: &pb.CallId{Session: who(3).GetSession(), Seq: deletes, Acked: deletes - 1}, Caller: who(3), At: pb.At("/fill"), Recursive: true})
		if err != nil {
			b.Fatal(err)
		}
		reply = max(reply, time.Since(began))
		for inodes := uint64(files); inodes > 10; {
			st, err := admin.Status(ctx, &pb.StatusRequest{Caller: who(3)})
			if err != nil {
				b.Fatal(err)
			}
			inodes = st.GetInodes()
		}
		b.StopTimer()
		cancel()
		working.Wait()
		b.StartTimer()
	}
	for unit, d := range map[string]time.Duration{"longest-lock-ms": lock, "longest-stat-ms": stat, "longest-mkdir-ms": mkdir, "reply-ms": reply} {
		b.ReportMetric(float64(d.Microseconds())/1e3, unit)
	}
	b.ReportMetric(float64(files)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}
