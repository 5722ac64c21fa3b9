package local

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// mostReads is how many reads may be in the file system at once: opens, and transfers whose
	// clients have gone. One that hangs keeps a thread, of which Go allows 10,000, and with it a
	// metadata server would die. A folder that answers has a few at once: with 10 ms each, as of a
	// distant server, this is room for 25,000 a second.
	mostReads = 256
	// gatePatience is for how long after the last one has come or gone who finds no room waits: nobody
	// waits for a disk that hangs.
	gatePatience = time.Second
)

// gate bounds how many calls are in the file system at once. Their callers may have gone: a
// system call that hangs, as on a server of files that does not answer, does not end with them.
type gate struct {
	places chan struct{}
	mono   func() time.Duration
	moved  atomic.Int64 // when the last one came in or went, by mono
}

func newGate(most int, mono func() time.Duration) *gate {
	return &gate{places: make(chan struct{}, most), mono: mono}
}

// enter takes a place. The error is a Retry.
func (g *gate) enter(ctx context.Context, op, what string) error {
	select {
	case g.places <- struct{}{}:
	default:
		if !g.waitWhileMoving(ctx) {
			return &fserror.Error{Op: op, Kind: fserror.Retry, RetryAfter: time.Second,
				Message: what + ": too many reads have not come back from the disk of the block folder: it hangs, or is too slow; try again"}
		}
	}
	g.moved.Store(int64(g.mono()))
	return nil
}

// waitWhileMoving takes a place, unless none has been taken or given back for too long.
func (g *gate) waitWhileMoving(ctx context.Context) bool {
	for {
		moved := g.moved.Load()
		soon, cancel := context.WithTimeout(ctx, gatePatience-(g.mono()-time.Duration(moved)))
		ok := soon.Err() == nil && g.wait(soon.Done())
		cancel()
		if ok || ctx.Err() != nil || g.moved.Load() == moved {
			return ok
		}
	}
}

func (g *gate) wait(done <-chan struct{}) bool {
	select {
	case g.places <- struct{}{}:
		return true
	case <-done:
		return false
	}
}

func (g *gate) leave() {
	g.moved.Store(int64(g.mono()))
	<-g.places
}

// transfer begins one that may last as long as its client, of which ctx is, wants to read. When the
// client goes, gone is called, which must end what waits for it; what outlasts it then is in the
// file system, and takes a place.
func (g *gate) transfer(ctx context.Context, gone func()) (end func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		gone()
		if g.wait(ended) {
			<-ended
			g.leave()
		}
	})
	return func() { stop(); close(ended) }
}
