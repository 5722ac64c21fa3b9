package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, tc := range []struct {
		in      []time.Duration
		percent int
		want    time.Duration
	}{
		{nil, 50, 0}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:3], 50, 2},
	} {
		if got := quantile(tc.in, tc.percent); got != tc.want {
			t.Errorf("%d%% of %d: %d, want %d", tc.percent, len(tc.in), got, tc.want)
		}
	}
}

func TestChosen(t *testing.T) {
	names, err := Config{Run: []string{"stat", "health"}}.Chosen()
	if err != nil || !slices.Equal(names, []string{"health", "stat"}) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := (Config{Run: []string{"stat", "no"}}).Chosen(); !errors.Is(err, fserror.InvalidArgument) {
		t.Errorf("unknown workload: %v", err)
	}
	all, err := Config{}.Chosen()
	if err != nil || slices.Contains(all, "fdatasync") || len(all) != len(Names())-1 {
		t.Errorf("without a data folder: %v, %v", all, err)
	}
}

func TestParallel(t *testing.T) {
	var sum atomic.Int64
	row, err := parallel(t.Context(), 4, 100, func(_ context.Context, _, i int) error {
		sum.Add(int64(i))
		return nil
	})
	if err != nil || row.Ops != 100 || sum.Load() != 4950 {
		t.Errorf("%+v, sum %d, %v", row, sum.Load(), err)
	}
	bad := errors.New("bad")
	if _, err := parallel(t.Context(), 4, 1000, func(context.Context, int, int) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := parallel(ctx, 4, 1000, func(context.Context, int, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPaced: no operation starts before it is due, and one that had to wait for
// the worker counts from when it was due.
func TestPaced(t *testing.T) {
	const rate, n = 1000, 20
	began := time.Now()
	row, err := paced(t.Context(), 1, n, rate, func(_ context.Context, _, i int) error {
		if due := time.Duration(i) * time.Second / rate; time.Since(began) < due {
			t.Errorf("operation %d after %v, due after %v", i, time.Since(began), due)
		}
		for i == 0 && time.Since(began) < 2*n*time.Second/rate { // holds the only worker beyond all that are due
			runtime.Gosched()
		}
		return nil
	})
	if least := n * time.Second / rate; err != nil || row.Ops != n || row.P50 < least {
		t.Errorf("%+v, %v: half of the operations had to wait %v or more", row, err, least)
	}
}
