// Package group gathers records into batches that become durable together
// (group commit, with no delay of its own). Both journals have the same queue,
// waiters, limit of bytes and end; they differ in how a batch is written.
//
// Append frames a record into the open batch and returns. One goroutine of the
// journal takes batches, oldest first, and writes them: one at a time, or several
// at once. It then says that the oldest one under way is durable (Finish), or that
// the journal has failed for good (Fail).
package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
)

const (
	// worthBytes is the size at which a batch is worth writing, however few
	// records it has.
	worthBytes = 64 << 10
	maxSpare   = 4 // buffers
)

// Batch is records that become durable together. Its exported fields are the
// writer's once it has taken the batch.
type Batch struct {
	Buf   []byte // room for a header, then framed records
	First uint64 // txid
	Count uint32
	Roll  bool // begins a new segment

	time int64         // of the last record
	took time.Duration // by the writer, by Mono
	done chan struct{} // closed when the batch is durable, or never will be
}

// Last is the txid of the last record.
func (b *Batch) Last() uint64 { return b.First + uint64(b.Count) - 1 }

// Config is how batches are made.
type Config struct {
	Header     int   // bytes in front of the records, which the writer fills in
	Target     int   // a batch takes no further record that would bring it over this; one record may be larger
	MaxBacklog int64 // bytes that may wait to become durable; a single record is taken whatever its size
	// Mono is what Stalled and Wrote measure by; nil if nobody asks.
	Mono func() time.Duration
	// Wrote is told how long a batch has taken from when its write began until it was durable,
	// and its bytes. It is called once a batch, and must be quick; nil: nobody asks.
	Wrote func(took time.Duration, bytes int)
	Log   *slog.Logger // names the journal
}

// Commit is what those who append and wait use: the part of journal.Journal
// that is the same wherever batches go.
type Commit struct {
	cfg     Config
	durable atomic.Uint64
	work    chan struct{} // holds a token when there is something for the writer
	failed  chan struct{}
	ended   chan struct{} // closed when the writer's goroutine has ended
	close   func() error  // of Writer.OnClose

	mu        sync.Mutex
	begun     bool
	closing   bool
	refuses   error // what Append returns after Release or Stop
	err       error // final
	notify    func(uint64)
	appended  uint64   // last txid appended
	under     []*Batch // taken by the writer, oldest first
	queue     []*Batch // full ones, oldest first
	open      *Batch   // takes the next record
	worth     uint32   // the writer takes it when it has so many records
	backlog   int64
	progress  time.Duration // when something became durable, or began to wait
	sinceRoll int64
	spare     [][]byte // buffers of written batches
}

// New returns a Commit from its writer's side. Nothing can be appended before
// Begin.
func New(cfg Config) *Writer {
	if cfg.Mono == nil {
		cfg.Mono = func() time.Duration { return 0 }
	}
	if cfg.Wrote == nil {
		cfg.Wrote = func(time.Duration, int) {}
	}
	c := &Commit{cfg: cfg, work: make(chan struct{}, 1), failed: make(chan struct{}), ended: make(chan struct{})}
	c.open = c.newBatch(false)
	return &Writer{c}
}

func (c *Commit) newBatch(roll bool) *Batch {
	var buf []byte
	if n := len(c.spare); n > 0 {
		buf, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		buf = make([]byte, c.cfg.Header, 4<<10)
	}
	return &Batch{Buf: buf[:c.cfg.Header], Roll: roll, done: make(chan struct{})}
}

// Append implements journal.Journal. The body is copied. A body over
// journal.MaxBody and a txid that is not the next one are refused and change
// nothing.
func (c *Commit) Append(rec journal.Record) error {
	if len(rec.Body) > journal.MaxBody {
		return fmt.Errorf("journal: record %d has a body of %d bytes, the limit is %d", rec.TxID, len(rec.Body), journal.MaxBody)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite("Append"); err != nil {
		return err
	}
	if rec.TxID != c.appended+1 {
		return fmt.Errorf("journal: record %d appended where %d is due", rec.TxID, c.appended+1)
	}
	size := len(rec.Body) + RecordOverhead
	if c.backlog > 0 && c.backlog+int64(size) > c.cfg.MaxBacklog {
		return fmt.Errorf("%w: %d bytes wait to become durable", journal.ErrFull, c.backlog)
	}
	if c.open.Count > 0 && len(c.open.Buf)+size > c.cfg.Target {
		c.sealOpen(false)
	}
	b := c.open
	before := len(b.Buf)
	if b.Count == 0 {
		before = 0
		b.First = rec.TxID
	}
	b.Buf = AppendRecord(b.Buf, &rec, b.time)
	b.time = rec.Time
	b.Count++
	c.appended++
	if c.backlog == 0 {
		c.progress = c.cfg.Mono()
	}
	grown := int64(len(b.Buf) - before)
	c.backlog += grown
	c.sinceRoll += grown
	if b.Count == 1 || b.Count == c.worth || before < worthBytes && len(b.Buf) >= worthBytes {
		c.wakeWriter()
	}
	return nil
}

// mayWrite says why this process may not write now. The lock is held.
func (c *Commit) mayWrite(what string) error {
	switch {
	case c.err != nil:
		return c.err
	case c.refuses != nil:
		return c.refuses
	case !c.begun:
		return errors.New("journal: " + what + " before BeginTerm")
	}
	return nil
}

func (c *Commit) wakeWriter() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// sealOpen queues the open batch and opens another. The lock is held.
func (c *Commit) sealOpen(roll bool) {
	c.queue = append(c.queue, c.open)
	c.open = c.newBatch(roll)
}

// WaitDurable implements journal.Journal. It may be called for a record that
// is yet to be appended. Waiters are woken by the batch.
func (c *Commit) WaitDurable(ctx context.Context, txid uint64) error {
	for {
		if c.durable.Load() >= txid {
			return nil
		}
		done, err := c.covering(txid)
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

// covering returns what is closed when the batch of txid is done; nil if it is
// durable.
func (c *Commit) covering(txid uint64) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.durable.Load() >= txid:
		return nil, nil
	case c.err != nil:
		return nil, c.err
	case c.refuses != nil && txid > c.appended:
		return nil, journal.ErrClosed
	}
	for _, list := range [][]*Batch{c.under, c.queue} {
		for _, b := range list {
			if txid <= b.Last() {
				return b.done, nil
			}
		}
	}
	return c.open.done, nil
}

// Durable implements journal.Journal.
func (c *Commit) Durable() uint64 { return c.durable.Load() }

// Notify implements journal.Journal.
func (c *Commit) Notify(fn func(durable uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = fn
}

// Backlog implements journal.Journal. It counts framing too.
func (c *Commit) Backlog() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.backlog
}

// Failed implements journal.Journal.
func (c *Commit) Failed() <-chan struct{} { return c.failed }

// Err implements journal.Journal. It is nil, or wraps journal.ErrFailed and the
// cause, or journal.ErrFenced.
func (c *Commit) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Roll implements journal.Journal: records appended before it are in older
// segments than those after it. It does no I/O, and nothing if the current
// segment holds no record.
func (c *Commit) Roll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite("Roll"); err != nil {
		return err
	}
	if c.open.Count > 0 {
		c.sealOpen(true)
	} else {
		c.open.Roll = true
	}
	c.sinceRoll = 0
	return nil
}

// Close implements journal.Journal. It must not be called from the function given
// to Notify. Further calls return the same.
func (c *Commit) Close() error { return c.close() }
