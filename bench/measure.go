package bench

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// parallel runs op for 0 … n−1 by so many workers and times each one.
func parallel(ctx context.Context, workers, n int, op func(ctx context.Context, worker, i int) error) (Row, error) {
	workers = max(1, min(workers, n))
	took := make([][]time.Duration, workers)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for w := range workers {
		g.Go(func() error {
			mine := make([]time.Duration, 0, n/workers+n/8+1)
			defer func() { took[w] = mine }()
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				t := time.Now()
				if err := op(ctx, w, i); err != nil {
					return err
				}
				mine = append(mine, time.Since(t))
			}
		})
	}
	err := g.Wait()
	return summarize(slices.Concat(took...), time.Since(began)), err
}

// summarize makes a row of single times.
func summarize(took []time.Duration, all time.Duration) Row {
	slices.Sort(took)
	return Row{Ops: int64(len(took)), Seconds: all.Seconds(), P50: quantile(took, 50), P99: quantile(took, 99)}
}

// quantile is a percentile of sorted times: the smallest that so many per cent
// do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := (len(sorted)*percent + 99) / 100
	return sorted[max(0, i-1)]
}
