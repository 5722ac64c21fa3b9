package many

import (
	"fmt"
	"sync"
	"testing"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// BenchmarkHandOver is so many clients, each with its own connection, that wait for one file:
// how long after one has closed it the next one has it.
func BenchmarkHandOver(b *testing.B) {
	const waiters = 200
	n := startNamenode(b)
	first := env.RawAt(b, n.listen, "first")
	take := func(r *env.Raw) (*pb.WriterId, error) {
		resp, err := r.NN.Append(b.Context(), &pb.AppendRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/lock"), Create: true, WaitMs: 25_000, Again: true})
		return resp.GetWriter(), err
	}
	held, err := take(first)
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex // of both
	var closed time.Time
	var took []time.Duration
	give := func(r *env.Raw, w *pb.WriterId) {
		mu.Lock()
		closed = time.Now()
		mu.Unlock()
		if _, err := r.NN.Close(b.Context(), &pb.CloseRequest{Call: r.Call(), Writer: w}); err != nil {
			b.Error(err)
		}
	}
	var wg sync.WaitGroup
	for i := range waiters {
		r := env.RawAt(b, n.listen, fmt.Sprint("waiter", i))
		wg.Go(func() {
			w, err := take(r)
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			took = append(took, time.Since(closed))
			mu.Unlock()
			give(r, w)
		})
	}
	env.Eventually(b, "all wait", func() bool {
		l, err := first.NN.ListLeases(b.Context(), &pb.ListLeasesRequest{Caller: first.Who, Path: "/lock"})
		return err == nil && len(l.GetLeases()) == 1 && l.GetLeases()[0].GetWaiting() == waiters
	})
	stop := n.bystander()
	cpu := n.cpu()
	give(first, held)
	wg.Wait()
	report(b, took, "hand-over")
	report(b, stop(), "bystander")
	b.ReportMetric(float64((n.cpu()-cpu).Microseconds())/waiters, "cpu-us/hand-over")
	b.ReportMetric(0, "ns/op")
}
