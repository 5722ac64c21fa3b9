package zk

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasefs/leasefs/internal/journal"
)

// group is records that become durable together: one batch node, or, if it is
// one large record, several.
type group struct {
	buf   []byte // room for a header, then framed records
	first uint64
	count uint32
	time  int64         // of the last record
	roll  bool          // begins a new segment
	done  chan struct{} // closed when it is durable, or never will be
}

func (g *group) last() uint64 { return g.first + uint64(g.count) - 1 }

// newGroup opens a group behind all that was appended. The lock is held.
func (j *Journal) newGroup(roll bool) *group {
	var buf []byte
	if n := len(j.spare); n > 0 {
		buf, j.spare = j.spare[n-1], j.spare[:n-1]
	} else {
		buf = make([]byte, headerSize, 4<<10)
	}
	return &group{buf: buf[:headerSize], roll: roll, first: j.appended + 1, done: make(chan struct{})}
}

// Append implements journal.Journal. The body is copied. A body over
// journal.MaxBody and a txid that is not the next one are refused and change
// nothing.
func (j *Journal) Append(rec journal.Record) error {
	if len(rec.Body) > journal.MaxBody {
		return fmt.Errorf("journal: record %d has a body of %d bytes, the limit is %d", rec.TxID, len(rec.Body), journal.MaxBody)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.mayWrite("Append"); err != nil {
		return err
	}
	if rec.TxID != j.appended+1 {
		return fmt.Errorf("journal: record %d appended where %d is due", rec.TxID, j.appended+1)
	}
	size := int64(len(rec.Body) + recordOverhead)
	if j.backlog > 0 && j.backlog+size > j.cfg.MaxBacklog {
		return fmt.Errorf("%w: %d bytes wait to become durable", journal.ErrFull, j.backlog)
	}
	if j.open.count > 0 && len(j.open.buf)+int(size) > j.cfg.MaxNode {
		j.sealOpen(false)
	}
	g := j.open
	before := len(g.buf)
	if g.count == 0 {
		before = 0
		g.first = rec.TxID
	}
	g.buf = appendRecord(g.buf, &rec, g.time)
	g.time = rec.Time
	g.count++
	j.appended++
	if j.backlog == 0 {
		j.progress.Store(int64(j.clock.Mono()))
	}
	j.backlog += int64(len(g.buf) - before)
	j.sinceRoll += int64(len(g.buf) - before)
	if g.count == 1 || g.count == j.worth || before < worthBytes && len(g.buf) >= worthBytes {
		j.wakeWriter()
	}
	return nil
}

// worthBytes is the size with which a group is sent though others are under way.
const worthBytes = 64 << 10

// mayWrite says why this process may not write now. The lock is held.
func (j *Journal) mayWrite(what string) error {
	switch {
	case j.err != nil:
		return j.err
	case j.closing:
		return journal.ErrClosed
	case j.released:
		return fmt.Errorf("%w: the term was released", journal.ErrClosed)
	case !j.begun:
		return errors.New("journal: " + what + " before BeginTerm")
	}
	return nil
}

func (j *Journal) wakeWriter() {
	select {
	case j.work <- struct{}{}:
	default:
	}
}

// sealOpen queues the open group and opens another. The lock is held.
func (j *Journal) sealOpen(roll bool) {
	if j.open.count > 0 {
		j.queue = append(j.queue, j.open)
	}
	j.open = j.newGroup(roll)
}

// takeGroup returns the next group to be written, nil if there is none that has
// enough records to be worth a batch now. The writer is woken when it has.
func (j *Journal) takeGroup(worth uint32) *group {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.worth = worth
	if len(j.queue) == 0 {
		if j.open.count < worth && len(j.open.buf) < worthBytes {
			return nil
		}
		j.sealOpen(false)
	}
	g := j.queue[0]
	j.queue[0] = nil
	j.queue = j.queue[1:]
	j.under = append(j.under, g)
	return g
}

// WaitDurable implements journal.Journal. It may be called for a record that
// is yet to be appended. Waiters are woken by the batch.
func (j *Journal) WaitDurable(ctx context.Context, txid uint64) error {
	for {
		if j.durable.Load() >= txid {
			return nil
		}
		done, err := j.covering(txid)
		if err != nil || done == nil {
			return err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// covering returns what is closed when the group of txid is done; nil if it is
// durable.
func (j *Journal) covering(txid uint64) (<-chan struct{}, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.durable.Load() >= txid:
		return nil, nil
	case j.err != nil:
		return nil, j.err
	case (j.closing || j.released) && txid > j.appended:
		return nil, journal.ErrClosed
	}
	for _, list := range [][]*group{j.under, j.queue} {
		for _, g := range list {
			if txid <= g.last() {
				return g.done, nil
			}
		}
	}
	return j.open.done, nil
}

// finish publishes that the oldest group under way is durable, up to the end of
// batch number at offset.
// Nothing is published any more once the journal has failed: a Beat may find out
// that the term is over while the writer still reads back what became of a batch.
func (j *Journal) finish(number, offset uint64, reuse bool) {
	j.mu.Lock()
	if j.err != nil {
		j.mu.Unlock()
		return
	}
	g := j.under[0]
	j.under[0] = nil
	j.under = j.under[1:]
	j.durableNumber, j.durableOffset = number, offset
	j.durable.Store(g.last())
	j.size.Store(int64(offset))        //nolint:gosec // bytes
	j.batches.Store(int64(number) + 1) //nolint:gosec // batches
	j.progress.Store(int64(j.clock.Mono()))
	j.backlog -= int64(len(g.buf))
	if reuse && cap(g.buf) <= 2*DefaultMaxNode && len(j.spare) < 8 {
		j.spare = append(j.spare, g.buf)
	}
	notify := j.notify
	j.mu.Unlock()
	close(g.done)
	if notify != nil {
		notify(g.last())
	}
}

// fail ends the journal for good and wakes all who wait. cause is ErrFenced or
// becomes ErrFailed.
func (j *Journal) fail(cause error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return
	}
	j.err = cause
	if !errors.Is(cause, journal.ErrFenced) {
		j.err = fmt.Errorf("%w: %w", journal.ErrFailed, cause)
	}
	j.log.Error("journal: failed; nothing more is confirmed", "path", j.cfg.Path, "error", cause)
	close(j.failed)
	for _, list := range [][]*group{j.under, j.queue, {j.open}} {
		for _, g := range list {
			close(g.done)
		}
	}
	j.under, j.queue = nil, nil
	j.open = j.newGroup(false)
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

// nodeOverhead is what a batch takes of each ZooKeeper server's heap besides its
// bytes: two names, their places in two tables, a status. Measured: 364 bytes (3.8.0,
// Java 17, a namespace of four letters); the rest is for longer paths.
const nodeOverhead = 400

// KeptNodes is how many batches ZooKeeper holds: what came since the last Purge and
// what that left.
func (j *Journal) KeptNodes() int64 { return j.batches.Load() - j.keptBefore.Load() }

// Kept is how many bytes of its memory each ZooKeeper server needs for them, so
// the caller has an image written, and then sheds load, when they grow over its
// limit.
func (j *Journal) Kept() int64 { return j.keptBytes() + j.KeptNodes()*nodeOverhead }

func (j *Journal) keptBytes() int64 { return j.size.Load() - j.kept.Load() }

// Failed implements journal.Journal.
func (j *Journal) Failed() <-chan struct{} { return j.failed }

// Err implements journal.Journal. It is nil, or wraps journal.ErrFailed and the
// cause, or journal.ErrFenced.
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
	if err := j.mayWrite("Roll"); err != nil {
		return err
	}
	if j.open.count > 0 {
		j.sealOpen(true)
	} else {
		j.open.roll = true
	}
	j.sinceRoll = 0
	return nil
}

// Size implements journal.Journal: total is the batches
// that ZooKeeper holds, without what a node takes besides. After a start sinceRoll is the
// size of the batches that the first Replay was asked for: what came since the
// image.
func (j *Journal) Size() (total, sinceRoll int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.keptBytes(), j.sinceRoll
}

// Close makes all that was appended durable, if that can be done within
// CloseTimeout, and ends. Its error wraps journal.ErrFailed if something that was
// appended is not known to be durable. It is not to be called from the function
// given to Notify. Further calls return the same.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() { j.closeErr = j.close() })
	return j.closeErr
}

var errCloseTimeout = errors.New("ZooKeeper did not take all that was appended before the journal was closed")

func (j *Journal) close() error {
	j.mu.Lock()
	j.closing = true
	begun := j.begun
	j.mu.Unlock()
	if begun {
		j.wakeWriter()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(j.life), j.cfg.CloseTimeout)
		select {
		case <-j.done:
		case <-ctx.Done():
			j.endLife(errCloseTimeout)
			<-j.done
		}
		cancel()
	}
	j.endLife(journal.ErrClosed)
	j.workers.Wait()
	j.reading <- struct{}{} // a Replay, Tail or Purge under way ends now
	defer j.unlockReading()
	j.endSession()
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.open.done)
	j.open = j.newGroup(false)
	return j.err
}
