package ipc

import (
	"sync"
	"sync/atomic"
)

// maxResting is how many goroutines rest at most: more calls are seldom under way.
const maxResting = 64

// workers are goroutines that carry out calls and then rest until there is another one: the
// stack of a new one has to grow several times in a call.
type workers struct {
	next    chan func()
	resting atomic.Int32
	ended   chan struct{}
	all     sync.WaitGroup
}

func newWorkers() *workers {
	return &workers{next: make(chan func()), ended: make(chan struct{})}
}

// do carries out f, which must not panic, beside the caller. It waits for nothing.
func (w *workers) do(f func()) {
	select {
	case w.next <- f:
	default:
		w.all.Go(func() { w.work(f) })
	}
}

func (w *workers) work(f func()) {
	for {
		f()
		if w.resting.Add(1) > maxResting {
			w.resting.Add(-1)
			return
		}
		select {
		case f = <-w.next:
			w.resting.Add(-1)
		case <-w.ended:
			return
		}
	}
}

// close ends those that rest, and waits for the others. do must not be called any more.
func (w *workers) close() {
	close(w.ended)
	w.all.Wait()
}
