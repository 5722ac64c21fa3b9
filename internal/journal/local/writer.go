package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasefs/leasefs/internal/journal"
)

// batch is records that wait to be written together.
type batch struct {
	buf   []byte // room for the header, then framed records
	first uint64
	count uint32
	time  int64         // of the last record
	roll  bool          // begins a new segment
	done  chan struct{} // closed when it is durable, or never will be
}

func newBatch(buf []byte, roll bool) *batch {
	if cap(buf) < batchHeaderSize {
		buf = make([]byte, batchHeaderSize, 4<<10)
	}
	return &batch{buf: buf[:batchHeaderSize], roll: roll, done: make(chan struct{})}
}

func (b *batch) last() uint64 { return b.first + uint64(b.count) - 1 }

// Append implements journal.Journal. The body is copied. A body over
// journal.MaxBody and a txid that is not the next one are refused and change
// nothing.
func (j *Journal) Append(rec journal.Record) error {
	if len(rec.Body) > journal.MaxBody {
		return fmt.Errorf("journal: record %d has a body of %d bytes, the limit is %d", rec.TxID, len(rec.Body), journal.MaxBody)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return j.err
	case j.closing:
		return journal.ErrClosed
	case !j.begun:
		return errors.New("journal: Append before BeginTerm")
	case rec.TxID != j.appended+1:
		return fmt.Errorf("journal: record %d appended where %d is due", rec.TxID, j.appended+1)
	}
	size := int64(len(rec.Body) + recordOverhead)
	if j.backlog > 0 && j.backlog+size > j.limit {
		return fmt.Errorf("%w: %d bytes wait to become durable", journal.ErrFull, j.backlog)
	}
	if j.open.count > 0 && int64(len(j.open.buf))+size > batchTarget {
		j.sealOpen(false)
	}
	b := j.open
	before := len(b.buf)
	if b.count == 0 {
		before = 0
	}
	b.buf = appendRecord(b.buf, &rec, b.time)
	b.time = rec.Time
	b.count++
	j.appended++
	grown := int64(len(b.buf) - before)
	j.backlog += grown
	j.sinceRoll += grown
	if b.count == 1 {
		j.work.Signal()
	}
	return nil
}

// sealOpen queues the open batch and opens another. The lock is held.
func (j *Journal) sealOpen(roll bool) {
	if j.open.count > 0 {
		j.queue = append(j.queue, j.open)
	}
	var buf []byte
	if n := len(j.spare); n > 0 {
		buf, j.spare = j.spare[n-1], j.spare[:n-1]
	}
	j.open = newBatch(buf, roll)
	j.open.first = j.appended + 1
}

// WaitDurable implements journal.Journal. It may be called for a record that
// is yet to be appended. Waiters are woken by the batch.
func (j *Journal) WaitDurable(ctx context.Context, txid uint64) error {
	for {
		if j.durable.Load() >= txid {
			return nil
		}
		done, err := j.covering(txid)
		if err != nil {
			return err
		}
		if done == nil {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// covering returns what is closed when the batch of txid is done; nil if it is
// durable.
func (j *Journal) covering(txid uint64) (<-chan struct{}, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.durable.Load() >= txid {
		return nil, nil
	}
	if j.err != nil {
		return nil, j.err
	}
	if j.closing && txid > j.appended {
		return nil, journal.ErrClosed
	}
	if b := j.inflight; b != nil && txid <= b.last() {
		return b.done, nil
	}
	for _, b := range j.queue {
		if txid <= b.last() {
			return b.done, nil
		}
	}
	return j.open.done, nil
}

// write is the writer's goroutine: one batch at a time, each durable before the
// next is begun.
func (j *Journal) write() {
	defer close(j.done)
	for {
		b := j.take()
		if b == nil {
			return
		}
		err := j.prepare(b)
		if err == nil {
			err = j.writeBatch(b.buf, b.count)
		}
		if !j.finish(b, err) {
			return
		}
	}
}

// take waits for the next batch. It returns nil when the journal closes and all
// is written.
func (j *Journal) take() *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.queue) == 0 && j.open.count == 0 {
		if j.closing {
			return nil
		}
		j.work.Wait()
	}
	if len(j.queue) == 0 {
		j.sealOpen(false)
	}
	b := j.queue[0]
	j.queue[0] = nil
	j.queue = j.queue[1:]
	j.inflight = b
	return b
}

// prepare begins a new segment if b is to be in one.
func (j *Journal) prepare(b *batch) error {
	if j.off <= segHeaderSize {
		return nil
	}
	if !b.roll && j.off+int64(len(b.buf))+1 <= j.segBytes {
		return nil
	}
	if j.seg.first == j.next.first {
		return nil // it holds no record yet
	}
	err := j.newSegment(segmentHeader{
		first:     j.next.first,
		prevFirst: j.seg.first,
		prevEnd:   uint64(j.off), //nolint:gosec // an offset is not negative
		chain:     j.next.chain,
	}, nil)
	if err == nil {
		j.makeSpare()
	}
	return err
}

// writeBatch completes a batch in buf, writes and syncs it.
func (j *Journal) writeBatch(buf []byte, count uint32) error {
	data, h := seal(buf, j.off, batchHeader{
		count: count, first: j.next.first, term: j.next.term, chain: j.next.chain,
	})
	end := j.off + int64(len(data))
	if _, err := j.cur.WriteAt(data, j.off); err != nil {
		return err
	}
	if err := j.writeAhead(end, int64(len(data))); err != nil {
		return err
	}
	if err := j.cur.Sync(); err != nil {
		return err
	}
	j.off = end
	j.next = j.next.after(h)
	j.mu.Lock()
	j.segs[len(j.segs)-1].size = j.off
	j.mu.Unlock()
	return nil
}

// finish publishes the outcome of a batch and reports whether to go on.
func (j *Journal) finish(b *batch, err error) bool {
	j.mu.Lock()
	if err != nil {
		j.fail(err)
		j.mu.Unlock()
		return false
	}
	j.inflight = nil
	j.durable.Store(b.last())
	j.backlog -= int64(len(b.buf))
	if cap(b.buf) <= 2*batchTarget && len(j.spare) < 4 {
		j.spare = append(j.spare, b.buf)
	}
	notify := j.notify
	j.mu.Unlock()
	close(b.done)
	if notify != nil {
		notify(b.last())
	}
	return true
}

// fail ends the journal for good and wakes all who wait. The lock is held.
func (j *Journal) fail(cause error) {
	if j.err != nil {
		return
	}
	j.err = fmt.Errorf("%w: %w", journal.ErrFailed, cause)
	j.log.Error("journal: failed; nothing more is confirmed", "dir", j.dir, "error", cause)
	close(j.failed)
	if j.inflight != nil {
		close(j.inflight.done)
		j.inflight = nil
	}
	for _, b := range j.queue {
		close(b.done)
	}
	j.queue = nil
	close(j.open.done)
	j.open = newBatch(nil, false)
}

// Durable implements journal.Journal.
func (j *Journal) Durable() uint64 { return j.durable.Load() }

// Notify implements journal.Journal.
func (j *Journal) Notify(fn func(durable uint64)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notify = fn
}

// Backlog implements journal.Journal. It counts framing too.
func (j *Journal) Backlog() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.backlog
}

// Failed implements journal.Journal.
func (j *Journal) Failed() <-chan struct{} { return j.failed }

// Err implements journal.Journal. It is nil, or wraps journal.ErrFailed and the
// cause.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Roll implements journal.Journal: records appended before it are in older
// segments than those after it. It does no I/O, and nothing if the current
// segment holds no record.
func (j *Journal) Roll() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return j.err
	case j.closing:
		return journal.ErrClosed
	case !j.begun:
		return errors.New("journal: Roll before BeginTerm")
	}
	if j.open.count > 0 {
		j.sealOpen(true)
	} else {
		j.open.roll = true
	}
	j.sinceRoll = 0
	return nil
}

// Size implements journal.Journal. It leaves room ahead out, once the first
// Replay has said where the last segment ends. After a start sinceRoll is the size of the
// batches that the first Replay was asked for: what came since the image.
func (j *Journal) Size() (total, sinceRoll int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.segs {
		total += s.size
	}
	return total, j.sinceRoll
}

// Close implements journal.Journal. Its error wraps journal.ErrFailed if
// something that was appended did not become durable. It is not to be called
// from the function given to Notify. Further calls return the same.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() { j.closeErr = j.close() })
	return j.closeErr
}

func (j *Journal) close() error {
	j.mu.Lock()
	j.closing = true
	begun := j.begun
	j.work.Signal()
	j.mu.Unlock()
	if begun {
		<-j.done
	}
	j.replayMu.Lock() // a Replay or Purge under way
	defer j.replayMu.Unlock()
	j.mu.Lock()
	err := j.err
	known, end := j.positioned && err == nil, reached{j.appended, j.term}
	close(j.open.done)
	j.open = newBatch(nil, false)
	j.mu.Unlock()
	if j.cur != nil {
		if err == nil && !j.needsRoom() {
			j.trimCurrent()
		}
		if cerr := j.cur.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close journal: %w", cerr)
		}
	}
	j.kept.close()
	if known && err == nil && j.cur != nil {
		err = writeReached(j.fs, j.dir, end)
		if noSpace(err) { // it costs only what the note would have told
			j.log.Warn("journal: the disk is full, so its end is not noted: a last segment that goes missing would not be noticed", "dir", j.dir)
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("close journal: %w", err)
		}
	}
	if cerr := j.lock.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close journal: %w", cerr)
	}
	return err
}
