// Package journaltest is the suite that every implementation of
// journal.Journal passes.
package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/test/env/size"
)

// Options of one opening. An implementation takes them as nearly as it can.
type Options struct {
	SegmentBytes int64 // 0: its default
	MaxBacklog   int64 // bytes; 0: its default
}

// Opener makes journals over one storage.
type Opener struct {
	// New returns how to open, again and again, a journal that is empty at the
	// first time. The suite closes each journal before it opens the next.
	New func(t *testing.T) func(t *testing.T, o Options) journal.Journal
}

// Run runs the suite.
func Run(t *testing.T, o Opener) {
	for _, c := range []struct {
		name string
		test func(*testing.T, func(*testing.T, Options) journal.Journal)
	}{
		{"Empty", testEmpty},
		{"Order", testOrder},
		{"NextTxIDOnly", testNextTxID},
		{"StepsInOrder", testSteps},
		{"DurableAfterReopen", testReopen},
		{"ReplayFromMiddle", testReplayFrom},
		{"ReplayWhileWriting", testReplayLive},
		{"ReplayOn", testReplayOn},
		{"ReplayBehindPurge", testReplayBehindPurge},
		{"ReplayStops", testReplayStops},
		{"BodiesMayBeKept", testBodiesKept},
		{"Concurrent", testConcurrent},
		{"WaitDurableContext", testWaitContext},
		{"WaitDurableAhead", testWaitAhead},
		{"Notify", testNotify},
		{"RollAndPurge", testPurge},
		{"TermNeverGoesBack", testTerm},
		{"Full", testFull},
		{"BigBodies", testBig},
		{"CloseMakesDurable", testClose},
		{"UseAfterClose", testAfterClose},
		{"Size", testSize},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, o.New(t)) })
	}
}

type opener = func(*testing.T, Options) journal.Journal

// Rec returns record txid of every test: all of it follows from the txid.
func Rec(txid uint64) journal.Record {
	body := bytes.Repeat([]byte{byte(txid), byte(txid >> 8), 0}, int(txid%50))
	return journal.Record{TxID: txid, Time: int64(1_700_000_000_000 + txid/3), Type: byte(1 + txid%7), Body: body}
}

// Same fails the test if rec is not want.
func Same(t testing.TB, rec, want journal.Record) {
	t.Helper()
	if rec.TxID != want.TxID || rec.Time != want.Time || rec.Type != want.Type || !bytes.Equal(rec.Body, want.Body) {
		t.Fatalf("record %d is {%d %d %d, %d bytes}, want {%d %d %d, %d bytes}", want.TxID,
			rec.TxID, rec.Time, rec.Type, len(rec.Body), want.TxID, want.Time, want.Type, len(want.Body))
	}
}

// Check replays j from record from and fails the test unless it holds exactly
// the records up to last.
func Check(t testing.TB, j journal.Journal, from, last uint64) {
	t.Helper()
	next := max(from, 1)
	got, err := j.Replay(t.Context(), from, func(rec journal.Record) error {
		Same(t, rec, Rec(next))
		next++
		return nil
	})
	if err != nil {
		t.Fatalf("Replay from %d: %v", from, err)
	}
	if got != last || next != max(from, 1, last+1) {
		t.Fatalf("Replay from %d returned %d after record %d, want %d", from, got, next-1, last)
	}
}

// start replays all and begins a term.
func start(t *testing.T, open opener, o Options, term, last uint64) journal.Journal {
	t.Helper()
	j := open(t, o)
	Check(t, j, 1, last)
	if err := j.BeginTerm(t.Context(), term); err != nil {
		t.Fatalf("BeginTerm %d: %v", term, err)
	}
	return j
}

func add(t *testing.T, j journal.Journal, from, to uint64) {
	t.Helper()
	for txid := from; txid <= to; txid++ {
		if err := j.Append(Rec(txid)); err != nil {
			t.Fatalf("Append %d: %v", txid, err)
		}
	}
	wait(t, j, to)
}

func wait(t *testing.T, j journal.Journal, txid uint64) {
	t.Helper()
	if err := j.WaitDurable(t.Context(), txid); err != nil {
		t.Fatalf("WaitDurable %d: %v", txid, err)
	}
}

func end(t *testing.T, j journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func testEmpty(t *testing.T, open opener) {
	j := open(t, Options{})
	Check(t, j, 1, 0)
	Check(t, j, 0, 0)
	if j.Durable() != 0 || j.Backlog() != 0 || j.Err() != nil {
		t.Fatalf("empty journal: durable %d, backlog %d, err %v", j.Durable(), j.Backlog(), j.Err())
	}
	end(t, j)
	end(t, start(t, open, Options{}, 1, 0))
	end(t, start(t, open, Options{}, 2, 0))
}

func testOrder(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	for to := uint64(1); to <= 100; to++ {
		add(t, j, to, to)
		if j.Durable() != to {
			t.Fatalf("Durable is %d after record %d", j.Durable(), to)
		}
	}
	add(t, j, 101, 1000)
	end(t, j)
	end(t, start(t, open, Options{}, 2, 1000))
}

func testNextTxID(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	for _, txid := range []uint64{0, 2, 1 << 40} {
		if err := j.Append(Rec(txid)); err == nil {
			t.Fatalf("Append of record %d as the first was taken", txid)
		}
	}
	add(t, j, 1, 3)
	for _, txid := range []uint64{0, 1, 3, 5} {
		if err := j.Append(Rec(txid)); err == nil {
			t.Fatalf("Append of record %d after 3 was taken", txid)
		}
	}
	add(t, j, 4, 4)
	end(t, j)
	end(t, start(t, open, Options{}, 2, 4))
}

func testSteps(t *testing.T, open opener) {
	j := open(t, Options{})
	if err := j.BeginTerm(t.Context(), 1); err == nil {
		t.Fatal("BeginTerm before Replay was taken")
	}
	Check(t, j, 1, 0)
	if err := j.Append(Rec(1)); err == nil {
		t.Fatal("Append before BeginTerm was taken")
	}
	end(t, j)
}

func testReopen(t *testing.T, open opener) {
	last := uint64(0)
	for term := uint64(1); term <= 20; term++ {
		j := start(t, open, Options{SegmentBytes: 1500}, term, last)
		if j.Durable() != last {
			t.Fatalf("Durable is %d after replay up to %d", j.Durable(), last)
		}
		if more := term % 4 * term; more > 0 {
			add(t, j, last+1, last+more)
			last += more
		}
		end(t, j)
	}
	end(t, start(t, open, Options{}, 21, last))
}

func testReplayFrom(t *testing.T, open opener) {
	const last = 300
	j := start(t, open, Options{SegmentBytes: 2000}, 1, 0)
	for n := uint64(1); n <= last; n += 10 {
		add(t, j, n, n+9)
	}
	end(t, j)
	for from := uint64(1); from <= last+2; from += size.Of[uint64](23, 7) {
		j := open(t, Options{SegmentBytes: 2000})
		Check(t, j, from, last)
		if err := j.BeginTerm(t.Context(), from+1); err != nil {
			t.Fatal(err)
		}
		end(t, j)
	}
}

func testReplayLive(t *testing.T, open opener) {
	j := start(t, open, Options{SegmentBytes: 2000}, 1, 0)
	for n := uint64(1); n <= 100; n += 10 {
		add(t, j, n, n+9)
		Check(t, j, 1, n+9)
		Check(t, j, n, n+9)
		Check(t, j, n+11, n+9)
	}
	end(t, j)
}

// testReplayOn: who reads on and on, in pieces, gets each record once, and after a step back
// all again.
func testReplayOn(t *testing.T, open opener) {
	j := start(t, open, Options{SegmentBytes: 2000}, 1, 0)
	enough := errors.New("enough")
	next := uint64(1)
	piece := func(most uint64) {
		t.Helper()
		end := next + most
		_, err := j.Replay(t.Context(), next, func(rec journal.Record) error {
			if next == end {
				return enough
			}
			Same(t, rec, Rec(next))
			next++
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	for n := uint64(1); n <= 200; n += 10 {
		add(t, j, n, n+9)
		for range n % 4 {
			piece(7)
		}
		if n%3 == 0 && next > 5 {
			next -= 5
		}
	}
	piece(1000)
	if next != 201 {
		t.Fatalf("read up to %d of 200", next-1)
	}
	piece(1000)
	if err := j.Roll(); err != nil {
		t.Fatal(err)
	}
	add(t, j, 201, 210)
	if err := j.Purge(t.Context(), 205); err != nil {
		t.Fatal(err)
	}
	if piece(1000); next != 211 {
		t.Fatalf("read up to %d of 210", next-1)
	}
	end(t, j)
}

// testReplayBehindPurge: who has read on and on can still do so behind what was purged meanwhile.
func testReplayBehindPurge(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	add(t, j, 1, 20)
	Check(t, j, 1, 20)
	for n := uint64(21); n <= 100; n += 10 {
		add(t, j, n, n+9)
		if err := j.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Purge(t.Context(), 91); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := j.Replay(t.Context(), 21, func(journal.Record) error { return nil })
		is(t, "Replay from 21", err, journal.ErrPurged)
		var purged *journal.PurgedError
		if !errors.As(err, &purged) || purged.Oldest != 91 {
			t.Fatalf("%v, want 91 to be the oldest", err)
		}
		Check(t, j, 95, 100)
		Check(t, j, 101, 100)
	}
	end(t, j)
}

func testReplayStops(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	add(t, j, 1, 50)
	end(t, j)
	j = open(t, Options{})
	stop := errors.New("stop")
	_, err := j.Replay(t.Context(), 1, func(rec journal.Record) error {
		if rec.TxID == 20 {
			return stop
		}
		return nil
	})
	is(t, "Replay", err, stop)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = j.Replay(ctx, 1, func(journal.Record) error { return nil })
	is(t, "Replay", err, context.Canceled)
	Check(t, j, 1, 50)
	end(t, j)
}

func testBodiesKept(t *testing.T, open opener) {
	j := start(t, open, Options{SegmentBytes: 3000}, 1, 0)
	for n := uint64(1); n <= 200; n += 20 {
		add(t, j, n, n+19)
	}
	end(t, j)
	j = open(t, Options{})
	var kept []journal.Record
	if _, err := j.Replay(t.Context(), 1, func(rec journal.Record) error {
		kept = append(kept, rec)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, rec := range kept {
		Same(t, rec, Rec(uint64(i+1)))
	}
	end(t, j)
}

func testConcurrent(t *testing.T, open opener) {
	const workers, each = 32, 50
	j := start(t, open, Options{SegmentBytes: 10_000}, 1, 0)
	var mu sync.Mutex // a caller assigns txids and appends in one step
	var next uint64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				mu.Lock()
				next++
				txid := next
				err := j.Append(Rec(txid))
				mu.Unlock()
				if err == nil {
					err = j.WaitDurable(t.Context(), txid)
				}
				if err != nil || j.Durable() < txid {
					t.Errorf("record %d: %v, durable %d", txid, err, j.Durable())
					return
				}
			}
		})
	}
	wg.Wait()
	end(t, j)
	end(t, start(t, open, Options{}, 2, workers*each))
}

func testWaitContext(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is(t, "WaitDurable", j.WaitDurable(ctx, 1), context.Canceled)
	add(t, j, 1, 1)
	if err := j.WaitDurable(ctx, 1); err != nil {
		t.Fatalf("WaitDurable of a durable record with an ended context: %v", err)
	}
	end(t, j)
}

func testWaitAhead(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	got := make(chan error)
	go func() { got <- j.WaitDurable(t.Context(), 3) }()
	add(t, j, 1, 1)
	add(t, j, 2, 2)
	select {
	case err := <-got:
		t.Fatalf("WaitDurable 3 returned %v after record 2", err)
	default:
	}
	add(t, j, 3, 3)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	go func() { got <- j.WaitDurable(t.Context(), 4) }()
	end(t, j)
	is(t, "WaitDurable of a record that never came", <-got, journal.ErrClosed)
}

func testNotify(t *testing.T, open opener) {
	j := open(t, Options{})
	Check(t, j, 1, 0)
	var seen atomic.Uint64
	reached := make(chan struct{})
	j.Notify(func(durable uint64) {
		if durable <= seen.Load() || j.Durable() < durable {
			t.Errorf("notified of %d after %d, Durable is %d", durable, seen.Load(), j.Durable())
		}
		seen.Store(durable)
		if durable == 500 {
			close(reached)
		}
	})
	if err := j.BeginTerm(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 500; n += 50 {
		add(t, j, n, n+49)
	}
	<-reached
	end(t, j)
}

func testPurge(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	for n := uint64(1); n <= 100; n += 10 {
		add(t, j, n, n+9)
		if err := j.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	purge := func(before uint64) {
		t.Helper()
		if err := j.Purge(t.Context(), before); err != nil {
			t.Fatalf("Purge %d: %v", before, err)
		}
	}
	total, _ := j.Size()
	purge(1)
	Check(t, j, 1, 100)
	purge(35) // the segment of 31–40 holds what is not below
	Check(t, j, 31, 100)
	if now, _ := j.Size(); now >= total {
		t.Fatalf("%d bytes after Purge, %d before", now, total)
	}
	_, err := j.Replay(t.Context(), 1, func(journal.Record) error { return nil })
	is(t, "Replay from 1", err, journal.ErrPurged)
	purge(1 << 60)
	Check(t, j, 101, 100)
	add(t, j, 101, 110)
	end(t, j)

	j = open(t, Options{})
	_, err = j.Replay(t.Context(), 30, func(journal.Record) error { return nil })
	is(t, "Replay from 30", err, journal.ErrPurged)
	Check(t, j, 101, 110)
	if err := j.BeginTerm(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	add(t, j, 111, 111)
	end(t, j)
}

func testTerm(t *testing.T, open opener) {
	j := start(t, open, Options{}, 5, 0)
	is(t, "BeginTerm 4 in term 5", j.BeginTerm(t.Context(), 4), journal.ErrFenced)
	is(t, "BeginTerm 5 in term 5", j.BeginTerm(t.Context(), 5), journal.ErrFenced)
	end(t, j)

	j = open(t, Options{}) // nothing was appended: the term counts all the same
	Check(t, j, 1, 0)
	is(t, "BeginTerm 4 after 5", j.BeginTerm(t.Context(), 4), journal.ErrFenced)
	is(t, "BeginTerm 5 after 5", j.BeginTerm(t.Context(), 5), journal.ErrFenced)
	if err := j.BeginTerm(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	add(t, j, 1, 5)
	end(t, j)

	j = open(t, Options{})
	Check(t, j, 1, 5)
	is(t, "BeginTerm 6 after 7", j.BeginTerm(t.Context(), 6), journal.ErrFenced)
	end(t, j)
	end(t, start(t, open, Options{}, 8, 5))
}

func testFull(t *testing.T, open opener) {
	const limit = 1 << 20
	j := open(t, Options{MaxBacklog: limit})
	Check(t, j, 1, 0)
	hold := make(chan struct{})
	j.Notify(func(uint64) { <-hold }) // the writer stands still after its first batch
	if err := j.BeginTerm(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, limit/10)
	var err error
	n := uint64(0)
	for n < 100 {
		if err = j.Append(journal.Record{TxID: n + 1, Type: 1, Body: body}); err != nil {
			break
		}
		if n++; n == 1 {
			wait(t, j, 1)
		}
		if b := j.Backlog(); b > limit {
			t.Fatalf("backlog of %d bytes, the limit is %d", b, limit)
		}
	}
	is(t, fmt.Sprintf("Append %d", n+1), err, journal.ErrFull)
	close(hold)
	wait(t, j, n) // what was taken is kept, and there is room again
	if err := j.Append(journal.Record{TxID: n + 1, Type: 1, Body: body}); err != nil {
		t.Fatalf("Append after the backlog was written: %v", err)
	}
	end(t, j)
}

func testBig(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	body := func(txid uint64) []byte {
		sizes := []int{0, 1, 511, 4096, 1 << 20, journal.MaxBody - 1, journal.MaxBody}
		b := make([]byte, sizes[txid%uint64(len(sizes))])
		for i := range b {
			b[i] = byte(i>>8) * byte(txid) // with sectors of zeros
		}
		return b
	}
	if err := j.Append(journal.Record{TxID: 1, Body: make([]byte, journal.MaxBody+1)}); err == nil {
		t.Fatal("a body over MaxBody was taken")
	}
	for txid := uint64(1); txid <= 14; txid++ {
		if err := j.Append(journal.Record{TxID: txid, Type: 255, Body: body(txid)}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, j, 14)
	end(t, j)
	j = open(t, Options{})
	last, err := j.Replay(t.Context(), 1, func(rec journal.Record) error {
		Same(t, rec, journal.Record{TxID: rec.TxID, Type: 255, Body: body(rec.TxID)})
		return nil
	})
	if err != nil || last != 14 {
		t.Fatalf("Replay: %d, %v", last, err)
	}
	end(t, j)
}

func testClose(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	for txid := uint64(1); txid <= 5000; txid++ {
		if err := j.Append(Rec(txid)); err != nil {
			t.Fatal(err)
		}
	}
	end(t, j) // nobody waited
	end(t, start(t, open, Options{}, 2, 5000))
}

func testAfterClose(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	add(t, j, 1, 2)
	end(t, j)
	end(t, j)
	is(t, "Append", j.Append(Rec(3)), journal.ErrClosed)
	is(t, "WaitDurable", j.WaitDurable(t.Context(), 3), journal.ErrClosed)
	is(t, "Roll", j.Roll(), journal.ErrClosed)
	is(t, "Purge", j.Purge(t.Context(), 1), journal.ErrClosed)
	is(t, "BeginTerm", j.BeginTerm(t.Context(), 9), journal.ErrClosed)
	_, err := j.Replay(t.Context(), 1, func(journal.Record) error { return nil })
	is(t, "Replay", err, journal.ErrClosed)
	if err := j.WaitDurable(t.Context(), 2); err != nil {
		t.Fatalf("WaitDurable of a durable record after Close: %v", err)
	}
	select {
	case <-j.Failed():
		t.Fatal("Close counts as a failure")
	default:
	}
}

func testSize(t *testing.T, open opener) {
	j := start(t, open, Options{}, 1, 0)
	add(t, j, 1, 100)
	total, since := j.Size()
	if since < 1000 || total < since {
		t.Fatalf("Size is %d, %d since the last roll", total, since)
	}
	if err := j.Roll(); err != nil {
		t.Fatal(err)
	}
	if _, since = j.Size(); since != 0 {
		t.Fatalf("%d bytes right after Roll", since)
	}
	add(t, j, 101, 110)
	after, since := j.Size()
	if since <= 0 || since >= total || after <= total {
		t.Fatalf("Size went from %d to %d, %d since the last roll", total, after, since)
	}
	end(t, j)
}
