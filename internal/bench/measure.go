package bench

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// parallel runs op for 0 … n−1 by so many workers, each as fast as it can, and
// times each one.
func parallel(ctx context.Context, workers, n int, op func(ctx context.Context, worker, i int) error) (Row, error) {
	return paced(ctx, workers, n, 0, op)
}

// paced is parallel with so many operations a second: each is due at a time of
// its own, and timed from then, so that one that had to wait for a worker counts
// as slow. 0: as fast as it goes.
func paced(ctx context.Context, workers, n, rate int, op func(ctx context.Context, worker, i int) error) (Row, error) {
	workers = max(1, min(workers, n))
	took := make([][]time.Duration, workers)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for w := range workers {
		g.Go(func() error {
			mine := make([]time.Duration, 0, n/workers+n/8+1)
			defer func() { took[w] = mine }()
			due := time.NewTimer(0)
			defer due.Stop()
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				t := time.Now()
				if rate > 0 {
					t = began.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
					due.Reset(time.Until(t))
					select {
					case <-due.C:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
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
