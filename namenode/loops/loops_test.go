package loops_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/namenode/loops"
)

// A loop that ends with an error before the namenode does is told, by name; what fails
// once is tried again.
func TestLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, enough := errors.New("broken"), errors.New("enough")
		failed := make(chan error, 3)
		g := loops.New(slog.New(slog.DiscardHandler), func(err error) { failed <- err })
		rounds := 0
		wake := make(chan struct{})
		g.Every("rounds", time.Minute, wake, func(context.Context) error {
			rounds++
			return broken
		})
		g.Run("one", func(context.Context) error { return broken })
		g.Run("other", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		<-time.After(2*time.Minute + time.Second)
		wake <- struct{}{}
		synctest.Wait()
		g.Stop(enough)
		g.Stop(broken)
		g.Wait()
		if rounds != 3 {
			t.Errorf("%d rounds, want 3", rounds)
		}
		if !errors.Is(g.Err(), enough) || g.Context().Err() == nil {
			t.Errorf("it ended with %v", g.Err())
		}
		if err := <-failed; len(failed) > 0 || err.Error() != "one: broken" || !errors.Is(err, broken) {
			t.Errorf("told: %v, and %d more", err, len(failed))
		}
	})
}

// What minds no context is waited for as long as the context says.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan bool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		got, err := loops.Within(ctx, func(context.Context) (int, error) { <-hangs; return 1, nil })
		if took := time.Since(began); got != 0 || !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%d, %v, after %s", got, err, took)
		}
		close(hangs)
		broken := errors.New("broken")
		if got, err := loops.Within(t.Context(), func(context.Context) (int, error) { return 2, broken }); got != 2 || !errors.Is(err, broken) {
			t.Errorf("%d, %v", got, err)
		}
	})
}
