package group_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

const header = 8

// sink is a writer with up to depth batches under way, whose outcomes the test
// gives. Another is sent when it has as many records as are under way.
type sink struct {
	*group.Writer
	t       *testing.T
	depth   int
	outcome chan error // of the oldest
	records []uint32   // of each batch taken
	next    uint64     // txid
	rolls   []uint64   // first txids of batches that begin a segment
}

func newSink(t *testing.T, depth int, change func(*group.Config)) *sink {
	start := time.Now()
	cfg := group.Config{
		Header: header, Target: 1 << 20, MaxBacklog: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Mono: func() time.Duration { return time.Since(start) },
	}
	if change != nil {
		change(&cfg)
	}
	s := &sink{Writer: group.New(cfg), t: t, depth: depth, outcome: make(chan error), next: 1}
	s.Begin(s.write)
	return s
}

func (s *sink) write() {
	var under []*group.Batch
	for {
		for len(under) < s.depth {
			records := uint32(0)
			for _, b := range under {
				records += b.Count
			}
			b := s.Take(max(records, 1))
			if b == nil {
				break
			}
			s.look(b)
			under = append(under, b)
		}
		var outcome chan error
		if len(under) > 0 {
			outcome = s.outcome
		} else if s.Done() {
			return
		}
		select {
		case <-s.Work():
		case err := <-outcome:
			if err != nil {
				s.Fail(err)
				return
			}
			under = under[1:]
			s.Finish(true)
		}
	}
}

// look checks that b holds the records that are due.
func (s *sink) look(b *group.Batch) {
	s.records = append(s.records, b.Count)
	if b.Roll {
		s.rolls = append(s.rolls, b.First)
	}
	if b.First != s.next {
		s.t.Errorf("batch begins with record %d where %d is due", b.First, s.next)
	}
	err := group.DecodeRecords(b.Buf[header:], b.First, b.Count, 0, func(rec journal.Record) error {
		if len(rec.Body) < 1000 { // others are the tests' own
			journaltest.Same(s.t, rec, journaltest.Rec(s.next))
		}
		s.next++
		return nil
	})
	if err != nil || b.Last() != s.next-1 {
		s.t.Errorf("batch of records %d to %d ends with %d: %v", b.First, b.Last(), s.next-1, err)
	}
}

func (s *sink) add(from, to uint64) {
	s.t.Helper()
	for txid := from; txid <= to; txid++ {
		if err := s.Append(journaltest.Rec(txid)); err != nil {
			s.t.Fatalf("Append %d: %v", txid, err)
		}
		synctest.Wait()
	}
}

// finish lets the oldest batches become durable, one after the other.
func (s *sink) finish(n int) {
	for range n {
		s.outcome <- nil
		synctest.Wait()
	}
}

// waiter is a WaitDurable that is under way.
func (s *sink) waiter(ctx context.Context, txid uint64) <-chan error {
	got := make(chan error, 1)
	go func() { got <- s.WaitDurable(ctx, txid) }()
	synctest.Wait()
	return got
}

func pending(t *testing.T, got <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-got:
		t.Fatalf("it is over: %v", err)
	default:
	}
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func (s *sink) took(want ...uint32) {
	s.t.Helper()
	synctest.Wait()
	if !slices.Equal(s.records, want) {
		s.t.Fatalf("batches of %d records, want %d", s.records, want)
	}
}

// One at a time: what comes in while a batch is written is the next one, and
// nobody is answered before the batch of his record.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, nil)
		var told []uint64
		s.Notify(func(durable uint64) {
			if s.Durable() != durable {
				t.Errorf("told of %d, Durable is %d", durable, s.Durable())
			}
			told = append(told, durable)
		})
		ahead := s.waiter(t.Context(), 7)
		s.add(1, 6)
		s.took(1)
		one, six := s.waiter(t.Context(), 1), s.waiter(t.Context(), 6)
		pending(t, one)
		s.finish(1)
		is(t, "WaitDurable 1", <-one, nil)
		s.took(1, 5)
		pending(t, six)
		if d, b := s.Durable(), s.Backlog(); d != 1 || b == 0 {
			t.Errorf("durable up to %d, backlog %d", d, b)
		}
		s.finish(1)
		is(t, "WaitDurable 6", <-six, nil)
		pending(t, ahead)
		s.add(7, 7)
		pending(t, ahead)
		s.finish(1)
		is(t, "WaitDurable 7", <-ahead, nil)
		if !slices.Equal(told, []uint64{1, 6, 7}) || s.Backlog() != 0 {
			t.Errorf("told of %d, backlog %d", told, s.Backlog())
		}
		s.Stop()
	})
}

// How long a batch takes counts from when its write began, not from when it was taken up
// into a queue.
func TestWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		bytes := 0
		s := newSink(t, 1, func(c *group.Config) {
			c.Wrote = func(d time.Duration, n int) { took, bytes = append(took, d), bytes+n }
		})
		s.add(1, 3)
		backlog := s.Backlog()
		time.Sleep(time.Second)     //nolint:forbidigo // in a bubble
		s.finish(1)                 // of record 1
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble
		s.finish(1)
		if want := []time.Duration{time.Second, 5 * time.Second}; !slices.Equal(took, want) || int64(bytes) != backlog {
			t.Errorf("told of %s and %d bytes, want %s and %d", took, bytes, want, backlog)
		}
		s.Stop()
	})
}

// Several under way: a batch is taken when it has as many records as are under
// way, or 64 KiB, and the oldest becomes durable first.
func TestSeveralUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 4, nil)
		s.add(1, 3) // 1, then 1 (as many as under way), then one that waits for another
		s.took(1, 1)
		s.add(4, 4)
		s.took(1, 1, 2)
		s.add(5, 5)
		s.took(1, 1, 2)
		if err := s.Append(journal.Record{TxID: 6, Body: make([]byte, 64<<10)}); err != nil {
			t.Fatal(err)
		}
		s.took(1, 1, 2, 2)
		s.add(7, 20)
		s.took(1, 1, 2, 2) // no more than four
		four := s.waiter(t.Context(), 4)
		s.finish(2)
		if s.Durable() != 2 {
			t.Errorf("durable up to %d", s.Durable())
		}
		pending(t, four)
		s.took(1, 1, 2, 2, 14)
		s.finish(3)
		is(t, "WaitDurable 4", <-four, nil)
		if s.Durable() != 20 || s.Backlog() != 0 {
			t.Errorf("durable up to %d, backlog %d", s.Durable(), s.Backlog())
		}
		s.Stop()
	})
}

// A batch takes no record that would bring it over the target; a larger record
// is one of its own, and a segment begins where Roll was called.
func TestTargetAndRoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, func(c *group.Config) { c.Target = header + 3000 })
		s.add(1, 1)
		for i, size := range []int{1400, 1400, 1400, 9000, 1400} {
			if err := s.Append(journal.Record{TxID: uint64(2 + i), Body: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
		}
		before := s.SinceRoll()
		if err := s.Roll(); err != nil {
			t.Fatal(err)
		}
		if before < 14_000 || s.SinceRoll() != 0 {
			t.Errorf("%d bytes since the last roll, then %d", before, s.SinceRoll())
		}
		s.add(7, 8)
		three, eight := s.waiter(t.Context(), 3), s.waiter(t.Context(), 8)
		s.finish(2)
		is(t, "WaitDurable of what was in the queue", <-three, nil)
		s.finish(3)
		s.took(1, 2, 1, 1, 1, 2)
		pending(t, eight)
		s.finish(1)
		is(t, "WaitDurable 8", <-eight, nil)
		if err := s.Roll(); err != nil { // with nothing open
			t.Fatal(err)
		}
		s.add(9, 9)
		s.finish(1)
		if !slices.Equal(s.rolls, []uint64{7, 9}) {
			t.Errorf("segments begin at %d", s.rolls)
		}
		s.Stop()
	})
}

// A batch that fails takes all others with it: those under way, those that wait,
// those to come. What was durable stays so.
func TestFailure(t *testing.T) {
	for _, c := range []struct {
		name  string
		cause error
		want  error
	}{
		{"of a write", errors.New("no disk"), journal.ErrFailed},
		{"by a later term", journal.ErrFenced, journal.ErrFenced},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSink(t, 2, nil)
				s.add(1, 1)
				s.finish(1)
				s.add(2, 3)
				s.took(1, 1, 1) // two under way
				s.add(4, 4)
				if err := s.Roll(); err != nil { // one in the queue
					t.Fatal(err)
				}
				s.add(5, 5)
				var all []<-chan error
				for txid := range uint64(5) {
					all = append(all, s.waiter(t.Context(), 2+txid))
				}
				s.outcome <- c.cause
				for _, got := range all {
					err := <-got
					is(t, "WaitDurable", err, c.want)
					is(t, "WaitDurable", err, c.cause)
				}
				<-s.Failed()
				is(t, "Err", s.Err(), c.cause)
				if failed := errors.Is(s.Err(), journal.ErrFailed); failed != errors.Is(c.want, journal.ErrFailed) {
					t.Errorf("it is %v", s.Err())
				}
				is(t, "Append", s.Append(journaltest.Rec(6)), c.want)
				is(t, "Roll", s.Roll(), c.want)
				is(t, "WaitDurable", s.WaitDurable(t.Context(), 6), c.want)
				is(t, "WaitDurable of what is durable", s.WaitDurable(t.Context(), 1), nil)
				is(t, "MayBegin", s.MayBegin(true, 2, 1), c.want)
				s.Fail(errors.New("another"))
				is(t, "Err", s.Err(), c.cause)
				if s.Durable() != 1 || s.Take(1) != nil {
					t.Errorf("durable up to %d, or there is more to write", s.Durable())
				}
				s.Stop()
				is(t, "Append", s.Append(journaltest.Rec(6)), c.want)
			})
		})
	}
}

// A batch that is found to be there after the journal has failed is not
// confirmed any more, and does no harm.
func TestFinishAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, nil)
		s.add(1, 2)
		s.Fail(journal.ErrFenced)
		s.finish(1)
		is(t, "WaitDurable", s.WaitDurable(t.Context(), 1), journal.ErrFenced)
		if s.Durable() != 0 {
			t.Errorf("durable up to %d", s.Durable())
		}
		s.Stop()
	})
}

// Stop during a write: what was appended becomes durable first, and who waits
// for what never came is told.
func TestStopDuringAWrite(t *testing.T) {
	for _, depth := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			s := newSink(t, depth, nil)
			s.add(1, 3)
			three, four := s.waiter(t.Context(), 3), s.waiter(t.Context(), 4)
			stopped := make(chan error, 1)
			go func() { s.Stop(); stopped <- nil }()
			pending(t, stopped)
			is(t, "Append", s.Append(journaltest.Rec(4)), journal.ErrClosed)
			is(t, "WaitDurable 5", s.WaitDurable(t.Context(), 5), journal.ErrClosed)
			pending(t, three)
			for s.Durable() < 3 {
				pending(t, stopped)
				s.finish(1)
			}
			is(t, "WaitDurable 3", <-three, nil)
			is(t, "WaitDurable 4", <-four, journal.ErrClosed)
			is(t, "Stop", <-stopped, nil)
			is(t, "Err", s.Err(), nil)
		})
	}
}

// Stop before the writer has taken anything: it is written all the same.
func TestStopBeforeAWrite(t *testing.T) {
	for last := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			s := &sink{Writer: group.New(group.Config{Header: header, Target: 1 << 20, MaxBacklog: 1 << 20}), t: t, next: 1}
			begin := make(chan struct{})
			s.Begin(func() {
				<-begin
				s.writeAll()
			})
			s.add(1, last)
			got, never := s.waiter(t.Context(), last), s.waiter(t.Context(), last+1)
			stopped := make(chan error, 1)
			go func() { s.Stop(); stopped <- nil }()
			pending(t, stopped)
			close(begin)
			is(t, "Stop", <-stopped, nil)
			is(t, "WaitDurable", <-got, nil)
			is(t, "WaitDurable of what never came", <-never, journal.ErrClosed)
		})
	}
}

// writeAll is a writer of one batch at a time, whose writes take no time.
func (s *sink) writeAll() {
	for !s.Done() {
		b := s.Take(1)
		if b == nil {
			<-s.Work()
			continue
		}
		s.look(b)
		s.Finish(true)
	}
}

// A write that fails during Stop ends it.
func TestStopWithAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, nil)
		s.add(1, 3)
		got := s.waiter(t.Context(), 3)
		stopped := make(chan error, 1)
		go func() { s.Stop(); stopped <- nil }()
		pending(t, stopped)
		s.outcome <- errors.New("no disk")
		is(t, "Stop", <-stopped, nil)
		is(t, "WaitDurable", <-got, journal.ErrFailed)
		is(t, "Err", s.Err(), journal.ErrFailed)
	})
}

// After Release nothing more is taken, and what was taken becomes durable.
func TestReleaseEndsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, nil)
		s.add(1, 2)
		last, err := s.Release()
		if last != 2 || err != nil {
			t.Fatalf("Release: %d, %v", last, err)
		}
		is(t, "Append", s.Append(journaltest.Rec(3)), journal.ErrClosed)
		is(t, "WaitDurable 3", s.WaitDurable(t.Context(), 3), journal.ErrClosed)
		_, err = s.Release()
		is(t, "Release", err, journal.ErrClosed)
		two := s.waiter(t.Context(), 2)
		s.finish(2)
		is(t, "WaitDurable 2", <-two, nil)
		s.Stop()
	})
}

// What waits is bounded, be it under way or not; a single record is taken
// whatever its size.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10_000
		s := newSink(t, 1, func(c *group.Config) { c.MaxBacklog = limit })
		body := func(txid uint64, size int) error {
			err := s.Append(journal.Record{TxID: txid, Body: make([]byte, size)})
			synctest.Wait()
			return err
		}
		is(t, "Append of more than the limit", body(1, 2*limit), nil)
		is(t, "Append", body(2, 1), journal.ErrFull)
		s.finish(1)
		txid := uint64(2)
		for ; ; txid++ {
			err := body(txid, 1000)
			if err != nil {
				is(t, "Append", err, journal.ErrFull)
				break
			}
			if s.Backlog() > limit {
				t.Fatalf("backlog of %d bytes", s.Backlog())
			}
		}
		if txid != 11 {
			t.Errorf("record %d was refused first", txid)
		}
		s.finish(1)
		is(t, "Append after a batch was written", body(txid, 1000), nil)
		s.finish(2)
		if s.Durable() != txid || s.Backlog() != 0 {
			t.Errorf("durable up to %d, backlog %d", s.Durable(), s.Backlog())
		}
		s.Stop()
	})
}

func TestWaitDurableContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, nil)
		s.add(1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		got := s.waiter(ctx, 1)
		cancel()
		is(t, "WaitDurable", <-got, context.Canceled)
		s.finish(1)
		is(t, "WaitDurable of what is durable", s.WaitDurable(ctx, 1), nil)
		s.Stop()
	})
}

// Stalled counts from when something began to wait, or became durable.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 1, nil)
		after := func(d, want time.Duration) {
			t.Helper()
			<-time.After(d)
			if got := s.Stalled(); got != want {
				t.Errorf("stalled for %s, want %s", got, want)
			}
		}
		after(time.Hour, 0)
		s.add(1, 1)
		after(time.Second, time.Second)
		s.add(2, 2)
		after(time.Second, 2*time.Second)
		s.finish(1)
		after(time.Second, time.Second)
		s.finish(1)
		after(time.Second, 0)
		s.Stop()
	})
}

// What is out of order is refused and changes nothing.
func TestSteps(t *testing.T) {
	w := &sink{Writer: group.New(group.Config{Header: header, Target: 1 << 20, MaxBacklog: 1 << 20}), t: t, next: 7}
	if err := w.Append(journaltest.Rec(1)); err == nil {
		t.Error("Append before Begin was taken")
	}
	w.MoveTo(6)
	for _, c := range []struct {
		positioned   bool
		term, before uint64
		ok           bool
	}{{false, 1, 0, false}, {true, 0, 0, false}, {true, 3, 4, false}, {true, 4, 4, false}, {true, 5, 4, true}} {
		if err := w.MayBegin(c.positioned, c.term, c.before); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	w.Begin(w.writeAll)
	if err := w.MayBegin(true, 5, 4); err == nil {
		t.Error("a term may begin twice")
	}
	for _, txid := range []uint64{0, 6, 8} {
		if err := w.Append(journaltest.Rec(txid)); err == nil {
			t.Errorf("record %d after 6 was taken", txid)
		}
	}
	if err := w.Append(journal.Record{TxID: 7, Body: make([]byte, journal.MaxBody+1)}); err == nil {
		t.Error("a body over MaxBody was taken")
	}
	is(t, "Append", w.Append(journaltest.Rec(7)), nil)
	is(t, "WaitDurable", w.WaitDurable(t.Context(), 7), nil)
	w.Stop()
	is(t, "MayBegin", w.MayBegin(true, 6, 5), journal.ErrClosed)
	if w.Durable() != 7 || !w.Closing() {
		t.Errorf("durable up to %d", w.Durable())
	}
}

// TestAllocations: of a record none; of a batch itself and its channel. Its buffer
// is that of one before.
func TestAllocations(t *testing.T) {
	w := group.New(group.Config{Header: header, Target: 1 << 20, MaxBacklog: 1 << 20})
	w.Begin(func() {})
	rec := journal.Record{Body: bytes.Repeat([]byte{1}, 100)}
	batch := func() {
		for range 100 {
			rec.TxID++
			if err := w.Append(rec); err != nil {
				t.Fatal(err)
			}
		}
		w.Take(1)
		w.Finish(true)
	}
	for range 10 { // until the buffers are as large as they get
		batch()
	}
	if n := testing.AllocsPerRun(100, batch); n > 2 {
		t.Errorf("%v allocations for a batch of 100 records", n)
	}
	w.Stop()
}

// TestDecodeRecords: what does not fit is told with the record and the offset.
func TestDecodeRecords(t *testing.T) {
	var all []byte
	var ends []int
	prev := int64(0)
	for txid := range uint64(3) {
		rec := journaltest.Rec(5 + txid)
		all = group.AppendRecord(all, &rec, prev)
		prev = rec.Time
		ends = append(ends, len(all))
	}
	for _, c := range []struct {
		name   string
		bytes  []byte
		count  uint32
		txid   uint64 // 0: nothing is wrong
		offset int
	}{
		{"whole", all, 3, 0, 0},
		{"too many counted", all, 4, 8, ends[2]},
		{"too few counted", all, 2, 7, ends[1]},
		{"cut in a body", all[:ends[2]-1], 3, 7, ends[1]},
		{"cut in a time", all[:ends[0]+2], 3, 6, ends[0]},
		{"empty", nil, 1, 5, 0},
	} {
		var seen []uint64
		err := group.DecodeRecords(c.bytes, 5, c.count, 6, func(rec journal.Record) error {
			journaltest.Same(t, rec, journaltest.Rec(rec.TxID))
			seen = append(seen, rec.TxID)
			return nil
		})
		var framing *group.FramingError
		switch errors.As(err, &framing); {
		case c.txid == 0 && (err != nil || !slices.Equal(seen, []uint64{6, 7})):
			t.Errorf("%s: records %d, %v", c.name, seen, err)
		case c.txid > 0 && (framing == nil || framing.TxID != c.txid || framing.Offset != int64(c.offset)):
			t.Errorf("%s: %+v", c.name, framing)
		}
	}
}
