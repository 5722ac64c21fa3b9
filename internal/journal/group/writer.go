package group

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
)

// Writer is the side of a Commit that the journal keeps to itself. Take, Work,
// Done and Finish are for the goroutine that Begin started.
type Writer struct{ *Commit }

// OnClose says what Close does, once.
func (w *Writer) OnClose(end func() error) { w.close = sync.OnceValue(end) }

// MoveTo says that the journal ends with record last, which is durable. It is for
// a journal that is read; Begin ends that.
func (w *Writer) MoveTo(last uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appended = last
	w.durable.Store(last)
}

// MayBegin says why term may not begin, in a journal whose last term is before.
// It was positioned if a Replay has read to its end.
func (w *Writer) MayBegin(positioned bool, term, before uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closing:
		return journal.ErrClosed
	case w.err != nil:
		return w.err
	case !positioned:
		return errors.New("journal: BeginTerm before a Replay to the end")
	case term == 0:
		return errors.New("journal: term 0 is none")
	case term <= before:
		return fmt.Errorf("%w: term %d, the journal is in %d", journal.ErrFenced, term, before)
	case w.begun:
		return fmt.Errorf("journal: term %d has begun already", before)
	}
	return nil
}

// Begin lets records be appended and starts the writer's goroutine: write, which
// ends when Done says so, or after Fail.
func (w *Writer) Begin(write func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	go func() {
		defer close(w.ended)
		write()
	}()
}

// MayWrite says why the journal may not be written to now; what is named in the
// error.
func (w *Writer) MayWrite(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mayWrite(what)
}

// Take returns the oldest full batch, or the open one if it has worth records (at
// least 1) or 64 KiB; else nil. The batch is then under way.
func (w *Writer) Take(worth uint32) *Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.worth = worth
	if len(w.queue) == 0 {
		if w.open.Count < worth && len(w.open.Buf) < worthBytes {
			return nil
		}
		w.sealOpen(false)
	}
	b := w.queue[0]
	w.queue = slices.Delete(w.queue, 0, 1)
	b.took = w.cfg.Mono()
	w.under = append(w.under, b)
	return b
}

// Work holds a token when Take may return a batch, or Done may have changed,
// since Take last returned nil.
func (w *Writer) Work() <-chan struct{} { return w.work }

// Done reports whether the journal closes and nothing is left to be taken.
func (w *Writer) Done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing && w.open.Count == 0 && len(w.queue) == 0
}

// Finish says that the oldest batch under way is durable; reuse, that nothing
// reads its buffer any more. Once the journal has failed, nothing becomes durable:
// another goroutine may find that out while the writer still looks for the
// outcome of a batch.
func (w *Writer) Finish(reuse bool) {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return
	}
	b := w.under[0]
	w.under = slices.Delete(w.under, 0, 1)
	w.durable.Store(b.Last())
	w.progress = w.cfg.Mono()
	bytes, took := len(b.Buf), w.progress-b.took
	w.backlog -= int64(bytes)
	if reuse && cap(b.Buf) <= 2*w.cfg.Target && len(w.spare) < maxSpare {
		w.spare = append(w.spare, b.Buf)
	}
	notify := w.notify
	w.mu.Unlock()
	close(b.done)
	w.cfg.Wrote(took, bytes)
	if notify != nil {
		notify(b.Last())
	}
}

// Fail ends the journal for good and wakes all who wait. The cause is
// journal.ErrFenced or becomes journal.ErrFailed.
func (w *Writer) Fail(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err = cause
	if !errors.Is(cause, journal.ErrFenced) {
		w.err = fmt.Errorf("%w: %w", journal.ErrFailed, cause)
	}
	w.cfg.Log.Error("journal: failed; nothing more is confirmed", "error", cause)
	close(w.failed)
	for _, list := range [][]*Batch{w.under, w.queue, {w.open}} {
		for _, b := range list {
			close(b.done)
		}
	}
	w.under, w.queue = nil, nil
	w.open = w.newBatch(false)
}

// Stalled is for how long something waits and nothing has become durable.
func (w *Writer) Stalled() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.backlog == 0 {
		return 0
	}
	return w.cfg.Mono() - w.progress
}

// SinceRoll is how many bytes came since the last Roll.
func (w *Writer) SinceRoll() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sinceRoll
}

// SetSinceRoll counts what was there before the first Append.
func (w *Writer) SetSinceRoll(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sinceRoll = bytes
}

// Release takes no more records and returns the last one that was taken. The
// writer's goroutine stays until Stop.
func (w *Writer) Release() (last uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.mayWrite("Release"); err != nil {
		return 0, err
	}
	w.refuses = fmt.Errorf("%w: the term was released", journal.ErrClosed)
	return w.appended, nil
}

// Closing reports whether Stop was called.
func (w *Writer) Closing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing
}

// Stop takes no more records and waits until the writer's goroutine has ended,
// if it was begun. It is called once.
func (w *Writer) Stop() {
	w.mu.Lock()
	w.closing, w.refuses = true, journal.ErrClosed
	begun := w.begun
	w.mu.Unlock()
	if begun {
		w.wakeWriter()
		<-w.ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.open.done) // wakes who waits for records that never came
	w.open = w.newBatch(false)
}
