package zk_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

// BenchmarkAppend is records of 100 B, each appender waiting for its own: in
// this journal; in a bare loop of the same transactions, with as many records
// each as the journal had in the mean, and as many under way, which does nothing
// else; and in internal/journal/local on this disk. The wait is that of one record.
func BenchmarkAppend(b *testing.B) {
	for _, appenders := range []int{1, 32, 256, 1024} {
		var records int // of a batch
		b.Run(fmt.Sprintf("appenders=%d/zookeeper", appenders), func(b *testing.B) {
			j := open(b, ensemble.Addrs(), root())
			benchAppend(b, j, appenders)
			records = max(int(float64(b.N)/float64(j.Batches())+0.5), 1)
			b.ReportMetric(float64(b.N)/float64(j.Batches()), "records/batch")
		})
		b.Run(fmt.Sprintf("appenders=%d/bare", appenders), func(b *testing.B) {
			benchBare(b, min(appenders, 2), records)
		})
		b.Run(fmt.Sprintf("appenders=%d/local", appenders), func(b *testing.B) {
			dir, err := os.MkdirTemp(".", "bench-*.tmp") //nolint:usetesting // the temporary folder may be memory
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			j, err := local.Open(local.Config{Dir: dir, Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			benchAppend(b, j, appenders)
		})
	}
}

func benchAppend(b *testing.B, j journal.Journal, appenders int) {
	b.Helper()
	journaltest.Check(b, j, 1, 0)
	if err := j.BeginTerm(b.Context(), 1); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 100)
	var mu sync.Mutex
	var next uint64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range appenders {
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
	report(b, float64(b.N))
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N)*float64(min(appenders, b.N)), "ms-wait")
}

func report(b *testing.B, records float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // says the same
	b.ReportMetric(records/b.Elapsed().Seconds(), "records/s")
}

// benchBare has so many transactions under way, of so many records each.
func benchBare(b *testing.B, under, records int) {
	b.Helper()
	j := open(b, ensemble.Addrs(), root()) // for the nodes
	s, err := zkconn.Dial(b.Context(), zkconn.Config{Servers: ensemble.Addrs(), SessionTimeout: 10 * time.Second, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	data := make([]byte, 72+104*records)
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
	for done := 0; done < b.N; done += records {
		if len(calls) == under {
			settle()
		}
		n++
		calls = append(calls, s.Start(j.BatchOps(s, n, data)...))
	}
	for len(calls) > 0 {
		settle()
	}
	report(b, float64(n)*float64(records))
	b.ReportMetric(float64(records), "records/batch")
}
