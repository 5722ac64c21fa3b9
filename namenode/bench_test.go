package namenode_test

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// benchServer starts a namenode on the disk of the work tree and four
// connections to it.
func benchServer(b *testing.B) []pb.NamenodeClient {
	b.Helper()
	s := benchStart(b, benchConfig(b))
	b.Cleanup(func() { _ = s.Close() })
	var out []pb.NamenodeClient
	for range 4 {
		out = append(out, pb.NewNamenodeClient(benchDial(b, s)))
	}
	return out
}

// benchConfig is a namenode on the disk of the work tree.
func benchConfig(b *testing.B) namenode.Config {
	b.Helper()
	return namenode.Config{
		Data: filepath.Join(b.TempDir(), "data"), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Superuser: "root", Supergroup: "supergroup", Groups: func(string) []string { return nil },
	}
}

func benchStart(b *testing.B, cfg namenode.Config) *namenode.Server {
	b.Helper()
	s, err := namenode.Start(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// benchDial opens a connection that ends with the benchmark.
func benchDial(b *testing.B, s *namenode.Server) *grpc.ClientConn {
	b.Helper()
	cc, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cc.Close() })
	return cc
}

// BenchmarkCreateClose makes whole empty files, one unary call each, by 32
// workers, fsync on.
func BenchmarkCreateClose(b *testing.B) {
	cs := benchServer(b)
	var worker, n atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		w := worker.Add(1)
		c := cs[w%4]
		session := make([]byte, 16)
		_, _ = rand.Read(session)
		who := &pb.Caller{User: "root", Client: fmt.Sprint("w", w), Session: session}
		for seq := uint64(1); p.Next(); seq++ {
			i := n.Add(1)
			_, err := c.Create(b.Context(), &pb.CreateRequest{
				Call: &pb.CallId{Session: session, Seq: seq, Acked: seq - 1}, Caller: who,
				At: pb.At(fmt.Sprintf("/d%d/file-%08d", i/1000, i)), Parents: true, Close: true,
			})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

// BenchmarkStat stats one file by 32 workers.
func BenchmarkStat(b *testing.B) {
	cs := benchServer(b)
	session := make([]byte, 16)
	who := &pb.Caller{User: "root", Client: "w", Session: session}
	if _, err := cs[0].Create(b.Context(), &pb.CreateRequest{Call: &pb.CallId{Session: session, Seq: 1}, Caller: who, At: pb.At("/a/b/c"), Parents: true, Close: true}); err != nil {
		b.Fatal(err)
	}
	var worker atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		c := cs[worker.Add(1)%4]
		for p.Next() {
			if _, err := c.Stat(b.Context(), &pb.StatRequest{Caller: who, At: pb.At("/a/b/c")}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "stats/s")
}

// fill makes n empty files with names of 13 bytes, 1,000 a directory.
func fill(b *testing.B, c pb.NamenodeClient, n int) {
	b.Helper()
	session := make([]byte, 16)
	_, _ = rand.Read(session)
	who := &pb.Caller{User: "root", Client: "fill", Session: session}
	seq := uint64(0)
	for at := 0; at < n; {
		var g errgroup.Group
		acked := seq
		for end := min(n, at+1000); at < end; at++ {
			seq++
			req := &pb.CreateRequest{
				Call: &pb.CallId{Session: session, Seq: seq, Acked: acked}, Caller: who, Parents: true, Close: true,
				At: pb.At(fmt.Sprintf("/fill/d%05d/file-%08d", at/1000, at)),
			}
			g.Go(func() error { _, err := c.Create(b.Context(), req); return err })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart measures how long a namenode takes from the start of the
// process's work to its first answer, with so many files in the journal or in
// an image.
func BenchmarkStart(b *testing.B) {
	for _, bc := range []struct {
		name  string
		files int
		image bool
	}{{"journal-330k", 330_000, false}, {"image-1M", 1_000_000, true}} {
		b.Run(bc.name, func(b *testing.B) {
			cfg := benchConfig(b)
			s := benchStart(b, cfg)
			cc := benchDial(b, s)
			fill(b, pb.NewNamenodeClient(cc), bc.files)
			if bc.image {
				session := make([]byte, 16)
				if _, err := pb.NewAdminClient(cc).Checkpoint(b.Context(), &pb.CheckpointRequest{Caller: &pb.Caller{User: "root", Client: "c", Session: session}}); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s := benchStart(b, cfg)
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
