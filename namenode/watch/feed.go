package watch

import (
	"context"
	"sync/atomic"
	"time"
)

// Journal is where events become durable.
type Journal interface {
	Durable() uint64
	WaitDurable(ctx context.Context, txid uint64) error
}

// Feed is a Hub that shows its events by itself as they become durable.
type Feed struct {
	*Hub
	applied atomic.Uint64 // last txid of which the events are known
	added   chan struct{}
	due     chan struct{} // watchers are
}

// NewFeed returns a Feed that knows no event up to and including the txid after.
func NewFeed(cfg Config, after uint64) *Feed {
	return &Feed{Hub: New(cfg, after), added: make(chan struct{}, 1), due: make(chan struct{}, 1)}
}

// Keep is Add, and has the events shown when the change is durable.
func (f *Feed) Keep(events []Event, txid uint64) {
	f.Add(events, txid)
	f.applied.Store(txid)
	poke(f.added)
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// PublishDurable shows all that is durable at once: a watch that begins after it is not told of
// what was before.
func (f *Feed) PublishDurable(j Journal) { f.Publish(min(f.applied.Load(), j.Durable())) }

// Show shows watchers what is durable, and nothing else, until the context ends.
func (f *Feed) Show(ctx context.Context, j Journal) error {
	published := uint64(0)
	for {
		select {
		case <-ctx.Done():
			f.Close()
			return nil
		case <-f.added:
		}
		for last := f.applied.Load(); published < last; last = f.applied.Load() {
			if j.Durable() <= published {
				if j.WaitDurable(ctx, published+1) != nil {
					break // the namenode ends, and says why
				}
			}
			published = min(j.Durable(), last)
			if f.Publish(published) {
				poke(f.due)
			}
		}
	}
}

// Watchers that have something to read are woken wakesAtOnce at a time, or a
// wakeShare of all, if these are more, with a wakePause after them; no more are woken until
// at most wakesAtOnce of those woken have still to read. So however many there are, calls of others do
// not queue behind them, and each is told of a change within about a fifth of a second, as
// far as the processors suffice: if they do not, it is told of more at a time.
const (
	wakesAtOnce = 10
	wakeShare   = 100
	wakePause   = time.Millisecond
)

// WakeWatchers wakes the watchers that Show has something for, until the context ends.
func (f *Feed) WakeWatchers(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.due:
		}
		for f.Reading() > wakesAtOnce || f.Wake(wakesAtOnce, wakeShare) >= wakesAtOnce {
			pause.Reset(wakePause)
			select {
			case <-ctx.Done():
				return nil
			case <-pause.C:
			}
		}
	}
}
