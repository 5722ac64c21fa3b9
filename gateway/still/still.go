// Package still notices that a gateway stood still: its machine was suspended, or its process
// stopped. A time of day that is set forward looks the same, as of a virtual machine whose clocks all
// stood still. Requests that it finds then may be old, and their clients may have made them
// by another gateway, and more since then.
package still

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// Each Pulse a Watch notes that the process runs. If that comes later than Limit, it stood
// still: a machine that is only busy does not keep it for so long, and a client of HDFS waits
// longer, 20 s at least, before it turns to another gateway.
const (
	Pulse = time.Second
	Limit = 15 * time.Second
)

// Watch watches the process. It is safe for concurrent use.
type Watch struct {
	clock clock.Clock
	ran   clock.Stamp // when the process is known to have run last
	times atomic.Int64
}

// New returns a Watch by a clock, nil for the machine's. Run has to be called.
func New(c clock.Clock) *Watch {
	if c == nil {
		c = clock.System{}
	}
	w := &Watch{clock: c}
	w.runs()
	return w
}

func (w *Watch) runs() { w.ran.Renew(clock.Read(w.clock)) }

// For is for how long the process stood still just now; 0: it did not. Once it is 0 again, Times
// has grown, and Run has told of it.
func (w *Watch) For() time.Duration {
	if d := w.ran.Age(clock.Read(w.clock)); d > Limit {
		return d
	}
	return 0
}

// Times is how often the process stood still before now.
func (w *Watch) Times() int64 { return w.times.Load() }

// Run calls stood each time after the process stood still, until life ends.
func (w *Watch) Run(life context.Context, stood func(time.Duration)) {
	t := time.NewTicker(Pulse)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if d := w.For(); d > 0 {
				w.times.Add(1)
				stood(d)
			}
			w.runs() // not before: see For
		case <-life.Done():
			return
		}
	}
}
