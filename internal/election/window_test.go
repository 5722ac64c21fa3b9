package election_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
)

const (
	lease  = 1200 * time.Millisecond
	margin = 200 * time.Millisecond
)

func window(t testing.TB, clk clock.Clock) *election.Window {
	t.Helper()
	w, err := election.NewWindow(clk, lease, margin)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// From sending, not from the answer; and up to lease − margin, not at it.
func TestWindowCountsFromSending(t *testing.T) {
	var clk clock.Fake
	w := window(t, &clk)
	if w.Confirmed() {
		t.Fatal("open before anything was written")
	}
	first := w.Write()
	clk.Advance(300 * time.Millisecond)
	second := w.Write()
	clk.Advance(300 * time.Millisecond)
	if w.Confirmed() {
		t.Fatal("open before a write succeeded")
	}
	second()
	first() // its answer comes late and changes nothing
	if got, want := w.Remaining(), lease-margin-300*time.Millisecond; got != want {
		t.Fatalf("%s remain, want %s", got, want)
	}
	clk.Advance(w.Remaining() - 1)
	if !w.Confirmed() {
		t.Fatal("closed too early")
	}
	clk.Advance(1)
	if w.Confirmed() {
		t.Fatal("open at its end")
	}
	late := w.Write()
	clk.Advance(lease) // held up between sending and answer
	late()
	if w.Confirmed() {
		t.Fatal("a write that was long ago opened the window")
	}
	w.Write()()
	if !w.Confirmed() {
		t.Fatal("closed after a write")
	}
	w.End()
	w.Write()()
	if w.Confirmed() {
		t.Fatal("open after its end")
	}
}

// What ran further counts: the time of day tells of a suspended machine where
// the other clock does not.
func TestWindowWatchesTheTimeOfDay(t *testing.T) {
	var clk clock.Fake
	w := window(t, &clk)
	w.Write()()
	clk.ShiftWall(-time.Hour)
	if got := w.Remaining(); got != lease-margin {
		t.Fatalf("%s remain after the time of day went back", got)
	}
	w.Write()()
	clk.ShiftWall(lease)
	if w.Confirmed() {
		t.Fatal("open though the time of day is past its end")
	}
	w.Write()()
	if !w.Confirmed() {
		t.Fatal("closed after a write")
	}
}

func TestWindowNeedsAMargin(t *testing.T) {
	for _, c := range [][2]time.Duration{{0, 0}, {time.Second, 0}, {time.Second, 500 * time.Millisecond}, {time.Second, -1}} {
		if _, err := election.NewWindow(clock.System{}, c[0], c[1]); err == nil {
			t.Errorf("lease %s with margin %s was taken", c[0], c[1])
		}
	}
}

// bubble is the clock of a synctest bubble.
type bubble struct{ start time.Time }

func (b bubble) Wall() time.Time     { return time.Now() }
func (b bubble) Mono() time.Duration { return time.Since(b.start) }
func (b bubble) Boot() time.Duration { return time.Since(b.start) }

func TestKeepBeatsWhenNothingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := bubble{time.Now()}
		w := window(t, clk)
		over := errors.New("over")
		var mu sync.Mutex
		var all []time.Duration
		beats := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		var fail atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- w.Keep(ctx, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, clk.Mono())
				if fail.Load() {
					return errors.New("lost")
				}
				w.Write()()
				return nil
			}, func(err error) bool { return errors.Is(err, over) })
		}()
		time.Sleep(lease) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if at := beats(); len(at) != 4 || at[1] != lease/3 || at[3] != lease { // at 0, 400, 800, 1200 ms
			t.Fatalf("beats at %v", at)
		}
		for range 20 { // writes in time need no beat
			time.Sleep(lease / 5) //nolint:forbidigo // in a bubble
			w.Write()()
		}
		synctest.Wait()
		if at := beats(); len(at) != 4 {
			t.Fatalf("beats at %v between writes", at)
		}
		fail.Store(true)
		time.Sleep(lease) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if w.Confirmed() || len(beats()) < 10 {
			t.Fatalf("%d beats, open: %t", len(beats()), w.Confirmed())
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		err := w.Keep(t.Context(), func(context.Context) error { return over }, func(err error) bool { return errors.Is(err, over) })
		if !errors.Is(err, over) {
			t.Fatal(err)
		}
	})
}

func TestAwaitEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := bubble{time.Now()}
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		for _, c := range []struct{ seen, want time.Duration }{
			{time.Minute, lease + margin}, {time.Minute - lease, margin}, {time.Second, 0},
		} {
			began := clk.Mono()
			seen := c.seen + began - time.Minute
			if err := election.AwaitEnd(t.Context(), clk, seen, lease, margin); err != nil {
				t.Fatal(err)
			}
			if got := clk.Mono() - began; got != c.want {
				t.Errorf("seen at %s: waited %s, want %s", c.seen, got, c.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := election.AwaitEnd(ctx, clk, clk.Mono(), lease, margin); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func BenchmarkConfirmed(b *testing.B) {
	w, err := election.NewWindow(clock.System{}, time.Hour, time.Second)
	if err != nil {
		b.Fatal(err)
	}
	w.Write()()
	for b.Loop() {
		if !w.Confirmed() {
			b.Fatal("closed")
		}
	}
}
