package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/vfs"
)

// benchDir is a folder on the disk of the repository: the temporary folder may
// be memory, where a sync costs nothing.
func benchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(".", "bench-*.tmp") //nolint:usetesting // on purpose, see above
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func percentiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkFdatasync is what the disk gives: 100 bytes appended and synced.
func BenchmarkFdatasync(b *testing.B) {
	f, err := vfs.OS().Create(filepath.Join(benchDir(b), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, 100)
	for i := range data {
		data[i] = byte(i)
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	percentiles(b, took)
}

// BenchmarkAppendWait: each goroutine appends 100 bytes and waits for them, in
// segments that grow with each batch, and in those that have room ahead.
func BenchmarkAppendWait(b *testing.B) {
	for _, workers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("%d/growing", workers), func(b *testing.B) { appendWait(b, workers, -1) })
		b.Run(fmt.Sprintf("%d/ahead", workers), func(b *testing.B) { appendWait(b, workers, DefaultAhead) })
	}
}

func appendWait(b *testing.B, workers int, ahead int64) {
	j := benchJournal(b, benchDir(b), ahead)
	body := make([]byte, 100)
	var mu sync.Mutex
	var txid uint64
	var left atomic.Int64
	left.Store(int64(b.N))
	all := make([][]time.Duration, workers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				mu.Lock()
				txid++
				mine := txid
				err := j.Append(journal.Record{TxID: mine, Time: 1_700_000_000_000, Type: 1, Body: body})
				mu.Unlock()
				if err == nil {
					err = j.WaitDurable(b.Context(), mine)
				}
				if err != nil {
					b.Error(err)
					return
				}
				all[w] = append(all[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	percentiles(b, slices.Concat(all...))
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAppend is the part that the caller's lock is held for.
func BenchmarkAppend(b *testing.B) {
	j := benchJournal(b, benchDir(b), DefaultAhead)
	body := make([]byte, 100)
	b.ReportAllocs()
	txid := uint64(0)
	for b.Loop() {
		txid++
		if err := j.Append(journal.Record{TxID: txid, Type: 1, Body: body}); err != nil {
			b.Fatal(err)
		}
		if txid%100_000 == 0 {
			b.StopTimer()
			if err := j.WaitDurable(b.Context(), txid); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkReplay reads 330,000 records of 100 bytes, in batches of 1 MiB and
// of 30 records.
func BenchmarkReplay(b *testing.B) {
	const records = 330_000
	for _, each := range []uint64{records, 30} {
		b.Run(fmt.Sprintf("batch=%d", each), func(b *testing.B) {
			dir := benchDir(b)
			j := benchJournal(b, dir, DefaultAhead)
			body := make([]byte, 100)
			for txid := uint64(1); txid <= records; txid++ {
				if err := j.Append(journal.Record{TxID: txid, Time: 1_700_000_000_000, Type: 1, Body: body}); err != nil {
					b.Fatal(err)
				}
				if txid%each == 0 {
					if err := j.WaitDurable(b.Context(), txid); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				j, err := Open(Config{Dir: dir, Logger: quiet})
				if err != nil {
					b.Fatal(err)
				}
				if last, err := j.Replay(b.Context(), 1, nothing); err != nil || last != records {
					b.Fatal(last, err)
				}
				if err := j.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchJournal(b *testing.B, dir string, ahead int64) *Journal {
	b.Helper()
	j, err := Open(Config{Dir: dir, Ahead: ahead, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	if _, err := j.Replay(b.Context(), 1, nothing); err != nil {
		b.Fatal(err)
	}
	if err := j.BeginTerm(b.Context(), 1); err != nil {
		b.Fatal(err)
	}
	return j
}
