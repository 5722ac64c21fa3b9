package zk_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/journal"
	"github.com/leasefs/leasefs/journal/zk"
	"github.com/leasefs/leasefs/zkconn"
)

// BenchmarkAppend is records of 100 B, each appender waiting for its own.
func BenchmarkAppend(b *testing.B) {
	for _, under := range []int{1, 2, zk.DefaultInFlight, 8} {
		for _, workers := range []int{1, 32, 256} {
			b.Run(fmt.Sprintf("underway=%d/appenders=%d", under, workers), func(b *testing.B) {
				j := open(b, ensemble.Addrs(), root(), func(c *zk.Config) { c.InFlight = under })
				begin(b, j, 1, 0)
				body := make([]byte, 100)
				var mu sync.Mutex
				var next uint64
				var wg sync.WaitGroup
				b.ResetTimer()
				for range workers {
					wg.Go(func() {
						for {
							mu.Lock()
							if next == uint64(b.N) {
								mu.Unlock()
								return
							}
							next++
							txid := next
							err := j.Append(journal.Record{TxID: txid, Type: 1, Body: body})
							mu.Unlock()
							if err == nil {
								err = j.WaitDurable(b.Context(), txid)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
				b.ReportMetric(float64(b.N)/float64(j.Batches()), "records/batch")
			})
		}
	}
}

// BenchmarkBare is what a loop of the same transactions reaches that does
// nothing else: so many records of 100 B each, so many under way.
func BenchmarkBare(b *testing.B) {
	for _, c := range []struct{ under, records int }{{1, 1}, {1, 32}, {1, 256}, {2, 16}, {2, 128}, {4, 8}, {4, 64}, {4, 256}} {
		b.Run(fmt.Sprintf("underway=%d/records=%d", c.under, c.records), func(b *testing.B) {
			path := root()
			j := open(b, ensemble.Addrs(), path) // for the nodes
			s, err := zkconn.Dial(b.Context(), zkconn.Config{Servers: ensemble.Addrs(), SessionTimeout: 10 * time.Second, Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			data := make([]byte, 72+104*c.records)
			var calls []*zkconn.Call
			settle := func() {
				<-calls[0].Done()
				if _, err := calls[0].Result(); err != nil {
					b.Fatal(err)
				}
				calls = calls[1:]
			}
			n := uint64(0)
			b.ResetTimer()
			for done := 0; done < b.N; done += c.records {
				if len(calls) == c.under {
					settle()
				}
				n++
				calls = append(calls, s.Start(
					&zookeeper.CheckVersionRequest{Path: path + "/term", Version: 0},
					&zookeeper.CheckVersionRequest{Path: j.BatchPath(n - 1), Version: 0},
					&zookeeper.CreateRequest{Path: j.BatchPath(n), Data: data, Acl: s.ACL()}))
			}
			for len(calls) > 0 {
				settle()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "batches/s")
		})
	}
}
