package still_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/gateway/still"
	"github.com/leasefs/leasefs/internal/clock"
)

// woken is a machine that was suspended: not all of its clocks ran meanwhile.
type woken struct {
	clock.Fake
	boot, wall time.Duration
}

func (w *woken) Boot() time.Duration { return w.Fake.Boot() + w.boot }
func (w *woken) Wall() time.Time     { return w.Fake.Wall().Add(w.wall) }

// TestWatch: each standstill is told of once, whichever clock shows it, and nothing that is shorter.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c woken
		var told []time.Duration
		w := still.New(&c)
		life, end := context.WithCancel(t.Context())
		go w.Run(life, func(d time.Duration) { told = append(told, d) })
		pass := func(n int) {
			for range n {
				c.Advance(still.Pulse)
				time.Sleep(still.Pulse) //nolint:forbidigo // of the bubble
				synctest.Wait()
			}
		}
		pass(60)
		c.Advance(still.Limit - still.Pulse)
		if d := w.For(); d != 0 {
			t.Errorf("a machine that is busy stood still for %s", d)
		}
		pass(1)
		for n, stops := range []func(){
			func() { c.Advance(time.Minute) },
			func() { c.boot += time.Minute },
			func() { c.wall += time.Minute },
		} {
			stops()
			if w.For() < time.Minute || w.Times() != int64(n) {
				t.Errorf("standstill %d: for %s, noted %d times", n, w.For(), w.Times())
			}
			pass(2)
			if w.For() != 0 || w.Times() != int64(n+1) || len(told) != n+1 || told[n] < time.Minute {
				t.Errorf("after standstill %d: for %s, noted %d times, told %s", n, w.For(), w.Times(), told)
			}
		}
		end()
	})
}
