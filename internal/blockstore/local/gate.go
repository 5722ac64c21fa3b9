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
	// gatePatience is for how long who finds no room waits, and no longer than this after the last
	// one has come or gone: nobody waits for a disk that hangs.
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
		left := gatePatience - (g.mono() - time.Duration(g.moved.Load()))
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		if ctx.Err() != nil || !g.wait(ctx.Done()) {
			return &fserror.Error{Op: op, Kind: fserror.Retry, RetryAfter: time.Second,
				Message: what + ": too many reads have not come back from the disk of the block folder: it hangs, or is too slow; try again"}
		}
	}
	g.moved.Store(int64(g.mono()))
	return nil
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

// transfer begins one that may last as long as its client, of which ctx is, wants to read. If
// it outlasts the client, which it does only in the file system, it takes a place.
func (g *gate) transfer(ctx context.Context) (end func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		if g.wait(ended) {
			<-ended
			g.leave()
		}
	})
	return func() { stop(); close(ended) }
}
