package scenarios_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// Recover from another client, the limits an hour away: closed at once, the
// content whole. What is closed, missing or a directory gets the right answer.
func TestScenario20RecoverFromAnotherClient(t *testing.T) {
	t.Parallel()
	n := env.Start(t, env.Limits(time.Hour, 2*time.Hour), smallBlocks)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	content := pattern(3*smallBlock + 1000)
	w := create(t, a, "/d/f")
	flush(t, w, content)
	res, err := b.Recover(t.Context(), "/d/f", true)
	must(t, err)
	if !res.WasOpen || res.Length != int64(len(content)) || res.Epoch <= w.Token() {
		t.Fatalf("recover: %+v; want open, length %d, an epoch above %d", res, len(content), w.Token())
	}
	wantOpen(t, b, "/d/f", "")
	wantContent(t, b, "/d/f", content)
	wantLost(t, late(t, w), "", "recovered")
	wantContent(t, b, "/d/f", content)

	res, err = b.Recover(t.Context(), "/d/f", true)
	if err != nil || res.WasOpen || res.Length != int64(len(content)) {
		t.Fatalf("recover of a closed file: %+v, %v; want that it was not open, and no error", res, err)
	}
	_, err = b.Recover(t.Context(), "/d/missing", true)
	wantKind(t, err, fserror.NotFound)
	_, err = b.Recover(t.Context(), "/d", true)
	wantKind(t, err, fserror.IsDirectory)
}

// A file was created, nothing flushed, its writer gone: recover gives an empty
// closed file, and append to it works.
func TestScenario21RecoverOfAnEmptyFile(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, wire := n.Wired(t, env.Named("A"))
	b := n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	write(t, w, "never flushed")
	wire.Cut()
	clk.Advance(pastSoft)
	res, err := b.Recover(t.Context(), "/f", false)
	if err != nil || !res.WasOpen || res.Length != 0 {
		t.Fatalf("recover: %+v, %v; want an empty file that was open", res, err)
	}
	wantOpen(t, b, "/f", "")
	wb := appendTo(t, b, "/f")
	if wb.TookOver() {
		t.Fatal("the append took over a file that was recovered")
	}
	write(t, wb, "B's")
	must(t, wb.Close())
	wantContent(t, b, "/f", "B's")
}

// A block was uploaded and never committed, its writer gone: the file is closed
// without it, a late commit is refused, and the orphan is collected once its
// URL is over.
func TestScenario22UncommittedBlock(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, smallBlocks)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	w := a.Create("/f")
	must(t, a.Flush(w, 0, "flushed"))
	blk, err := a.PutBlock(w, []byte("flushed and more"))
	must(t, err)
	clk.Advance(pastSoft)
	res, err := b.Recover(t.Context(), "/f", false)
	if err != nil || res.Length != 7 {
		t.Fatalf("recover: %+v, %v; want length 7", res, err)
	}
	wantLost(t, a.Commit(w, 0, blk, "flushed"), "", "recovered")

	// Nor can a new writer make it part of the file: it was not his.
	again, err := a.Append("/f")
	must(t, err)
	wantKind(t, a.Commit(again.GetWriter(), 0, blk, "flushed"), fserror.InvalidArgument)
	must(t, a.Close(again.GetWriter(), 7))
	wantContent(t, b, "/f", "flushed")

	collect := func(orphans, deleted uint64) {
		t.Helper()
		got, err := b.Admin().Collect(t.Context())
		if err != nil || got.Orphans != orphans || got.Deleted != deleted {
			t.Fatalf("collect: %+v, %v; want %d orphans found, %d blocks deleted", got, err, orphans, deleted)
		}
	}
	collect(0, 0) // its URL is good: it may yet be committed
	n.BlockFile(t, blk.GetTerm(), blk.GetSeq())
	clk.Advance(namenode.DefaultURLLife + 2*time.Minute)
	collect(1, 0) // found; readers' URLs could still be good
	n.BlockFile(t, blk.GetTerm(), blk.GetSeq())
	again, err = a.Append("/f")
	must(t, err)
	wantKind(t, a.Commit(again.GetWriter(), 0, blk, "flushed"), fserror.InvalidArgument)
	must(t, a.Close(again.GetWriter(), 7))
	clk.Advance(namenode.DefaultURLLife + time.Minute)
	collect(0, 1)
	if left := n.BlockFiles(t, blk.GetTerm(), blk.GetSeq()); len(left) > 0 {
		t.Fatalf("the orphan is still there: %v", left)
	}
	wantContent(t, b, "/f", "flushed")
	wantSound(t, b)
}

// A block of an earlier reign, uploaded and not committed, can be committed
// while its URL is good, and not any more once it was found to be an orphan.
func TestScenario22CommitAfterARestart(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, smallBlocks)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	w := a.Create("/f")
	early, err := a.PutBlock(w, []byte("early"))
	must(t, err)
	late, err := a.PutBlock(w, []byte("late"))
	must(t, err)
	n.Restart(t)
	must(t, a.Commit(w, 0, early, ""))
	clk.Advance(namenode.DefaultURLLife + 2*time.Minute)
	if got, err := b.Admin().Collect(t.Context()); err != nil || got.Orphans != 1 {
		t.Fatalf("collect: %+v, %v; want one orphan", got, err)
	}
	wantKind(t, a.Commit(w, 5, late, ""), fserror.InvalidArgument)
	must(t, a.Close(w, 5))
	wantContent(t, b, "/f", "early")
}

// Nobody calls: the monitor alone closes an empty file, and one with a block
// that was never committed.
func TestScenario23MonitorAlone(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, env.Limits(shortSoft, shortHard))
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	empty, block := a.Create("/empty"), a.Create("/block")
	must(t, a.Flush(block, 0, "flushed"))
	blk, err := a.PutBlock(block, []byte("flushed and more"))
	must(t, err)
	clk.Advance(shortHard + time.Millisecond)
	waitClosed(t, b, "/empty")
	waitClosed(t, b, "/block")
	wantContent(t, b, "/empty", "")
	wantContent(t, b, "/block", "flushed")
	wantLeased(t, b, "A")
	wantLost(t, a.Commit(block, 0, blk, "flushed"), "", "recovered")
	wantLost(t, a.Flush(empty, 0, "late"), "", "recovered")
	wantLost(t, a.Close(empty, 0), "", "recovered")
}

// The hard limit passes under a live writer whose renewals get lost: the file
// is closed at its flushed length, and his next write, flush and close each
// fail. His other calls still work.
func TestScenario24RenewalsCut(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, env.Limits(shortSoft, shortHard)) // renewals each 200 ms of the real clock
	a, wire := n.Wired(t, env.Named("A"))
	b := n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "flushed")
	write(t, w, " not")
	// Its stream is cut off too when a renewal on it gets no answer.
	wire.Lose("Renew", "RenewLease", "Session")
	clk.Advance(shortHard + time.Millisecond)
	waitClosed(t, b, "/f")
	_ = waitLost(t, w)
	_, err := w.Write([]byte("x"))
	wantLost(t, err, "", "")
	wantLost(t, w.Flush(t.Context()), "", "")
	wantLost(t, w.Close(), "", "")
	wantContent(t, a, "/f", "flushed")
	wire.Set(nil)
	w2 := appendTo(t, a, "/f")
	flush(t, w2, ", again")
	must(t, w2.Close())
	wantContent(t, b, "/f", "flushed, again")
}

// A client whose renewals do not get through, but whose stream comes back again
// and again: he gives his file up by his own clock, so the namenode must not
// hold it for him. To connect is not to renew.
func TestScenario24ReconnectsRenewNothing(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	defer a.Connect()()
	w := a.Create("/f")
	must(t, a.Flush(w, 0, "A's"))
	for range 3 {
		clk.Advance(30 * time.Second)
		defer a.Connect()()
	}
	wb := appendTo(t, b, "/f") // 90 s without a renewal or a call of the writer
	wantLost(t, a.Flush(w, 3, "late"), "B", "taken over")
	must(t, wb.Close())
	wantContent(t, b, "/f", "A's")
}

// A recovery lands between flush and close: the close fails, a second close
// does no harm, and nothing flushed is missing.
func TestScenario25RecoverBeforeClose(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	for _, unflushed := range []string{"", " unflushed"} {
		path := "/f" + unflushed
		w := create(t, a, path)
		flush(t, w, "flushed")
		write(t, w, unflushed)
		_, err := b.Recover(t.Context(), path, true)
		must(t, err)
		wantLost(t, w.Close(), "", "recovered")
		wantKind(t, w.Close(), fserror.Closed)
		wantContent(t, b, path, "flushed")
		wb := appendTo(t, b, path)
		wantKind(t, w.Close(), fserror.Closed)
		flush(t, wb, " B's")
		must(t, wb.Close())
		wantContent(t, b, path, "flushed B's")
	}
}

// The tails' budget is used up: a flush by the wire gets RETRY; the library
// makes a block instead; other writers' blocks, removing and closing continue, and
// what is removed makes room.
func TestScenario26TailBudget(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, func(c *namenode.Config) { c.TailBudget, c.MaxTail = 32<<10, 16<<10 })
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	var full []*pb.WriterId
	for _, p := range []string{"/t1", "/t2"} { // open files: nobody may seal them
		w := a.Create(p)
		must(t, a.Flush(w, 0, pattern(16<<10)))
		full = append(full, w)
	}
	third := a.Create("/t3")
	wantKind(t, a.Flush(third, 0, "x"), fserror.Retry)
	wantKind(t, a.Flush(full[0], 16<<10, "x"), fserror.TooLarge) // of its own
	_, err := a.NN.Create(t.Context(), &pb.CreateRequest{
		Call: a.Call(), Caller: a.Who, At: pb.At("/t4"), Close: true, Data: []byte("x"), DataCrc32C: blockstore.CRC([]byte("x")),
	})
	wantKind(t, err, fserror.Retry)

	w := create(t, b, "/b")
	flush(t, w, "as a block")
	if i := stat(t, b, "/b"); i.Blocks != 1 || i.TailLength != 0 || i.Length != 10 {
		t.Fatalf("the library's flush made %d blocks and a tail of %d bytes, want one block", i.Blocks, i.TailLength)
	}
	write(t, w, ", closed")
	must(t, w.Close())
	wantContent(t, b, "/b", "as a block, closed")
	must(t, b.WriteFile(t.Context(), "/whole", []byte("whole")))
	wantContent(t, b, "/whole", "whole")
	must(t, a.Close(full[0], 16<<10))

	must(t, b.Remove(t.Context(), "/t2"))
	must(t, a.Flush(third, 0, "x"))
	must(t, a.Close(third, 1))
	wantContent(t, b, "/t3", "x")
}

// Recover without force of a file whose holder lives: HELD, with the time left.
func TestScenario28RecoverWithoutForce(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "A's")
	clk.Advance(20 * time.Second)
	_, err := b.Recover(t.Context(), "/f", false)
	e := asHeld(t, err, "A")
	if left := e.TakeableIn; left < 40*time.Second || left > 40*time.Second+time.Millisecond {
		t.Fatalf("%v: takeable in %s, want 40s", err, left)
	}
	if e.Holder.Idle != 20*time.Second {
		t.Fatalf("%v: idle for %s, want 20s", err, e.Holder.Idle)
	}
	flush(t, w, " file")
	clk.Advance(e.TakeableIn) // renewed meanwhile, so it does not count
	_, err = b.Recover(t.Context(), "/f", false)
	wantHeld(t, err, "A")
	must(t, w.Close())
	wantContent(t, b, "/f", "A's file")
}

// In safe mode nothing expires and nothing can be taken; the limits count from
// its end.
func TestScenario30SafeMode(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	w := a.Create("/f")
	must(t, a.Flush(w, 0, "A's"))
	clk.Advance(pastSoft)
	safe := func(what client.SafeModeAction, want bool) {
		t.Helper()
		if s, err := b.Admin().SafeMode(t.Context(), what); err != nil || s.On != want {
			t.Fatalf("safe mode: %+v, %v; want on: %v", s, err, want)
		}
	}
	safe(client.SafeModeEnter, true)
	clk.Advance(10 * pastHard)
	other := n.Raw(t, "C")
	_, err := other.Append("/f")
	wantKind(t, err, fserror.Retry)
	_, err = other.NN.Recover(t.Context(), &pb.RecoverRequest{Call: other.Call(), Caller: other.Who, At: pb.Follow("/f"), Force: true})
	wantKind(t, err, fserror.Retry)
	wantKind(t, a.Flush(w, 3, " late"), fserror.Retry)
	if o := stat(t, b, "/f").Open; o == nil || o.SoftExpired || o.TakeableIn < namenode.DefaultSoftLimit {
		t.Fatalf("in safe mode the file is %+v; want it held for the whole soft limit at least", o)
	}
	n.Restart(t) // a restart does not end it
	safe(client.SafeModeGet, true)
	clk.Advance(10 * pastHard)

	safe(client.SafeModeLeave, false)
	wantContent(t, b, "/f", "A's")
	clk.Advance(namenode.DefaultSoftLimit)
	_, err = b.Append(t.Context(), "/f")
	wantHeld(t, err, "A")
	clk.Advance(time.Millisecond)
	wb := appendTo(t, b, "/f")
	write(t, wb, ", B's")
	must(t, wb.Close())
	wantContent(t, b, "/f", "A's, B's")
}

// The monitor, too, closes nothing in safe mode, however long it lasts, and
// does when it is over and the hard limit has passed again.
func TestScenario30MonitorInSafeMode(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, env.Limits(100*time.Millisecond, shortSoft))
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	a.Create("/f")
	_, err := b.Admin().SafeMode(t.Context(), client.SafeModeEnter)
	must(t, err)
	clk.Advance(5 * shortSoft)
	// Waits a second, in which the monitor looks often, for the file to be closed.
	out, err := a.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: a.Who, At: pb.Follow("/f"), WaitBeyond: 1, WaitMs: 1000})
	if err != nil || out.GetAttr().GetOpen() == nil {
		t.Fatalf("the file was closed in safe mode: %v, %v", out.GetAttr(), err)
	}
	_, err = b.Admin().SafeMode(t.Context(), client.SafeModeLeave)
	must(t, err)
	clk.Advance(shortSoft + time.Millisecond)
	waitClosed(t, b, "/f")
}

// A take-over that is under way when the newcomer's context ends either
// happened or did not: whoever has the file afterwards is the one it says.
func TestScenario16TakeOverGivenUp(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a := n.Client(t, env.Named("A"))
	b, wire := n.Wired(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "A")
	clk.Advance(pastSoft)
	ctx, cancel := context.WithCancel(t.Context())
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "CancelOpen" { // nor does the namenode know what B wants
			return env.ErrLost
		}
		err := send()
		if method == "Append" {
			cancel() // the namenode did it, B will never know
			return env.ErrLost
		}
		return err
	})
	if _, err := b.Append(ctx, "/f"); !errors.Is(err, fserror.Canceled) {
		t.Fatalf("append with a cancelled context: %v", err)
	}
	wantOpen(t, a, "/f", "B")
	wantLost(t, w.Close(), "B", "taken over")
	// B lists its open files in its renewals, without this one: it lapses like
	// any other.
	clk.Advance(pastSoft)
	must(t, appendTo(t, a, "/f").Close())
	wire.Set(nil)
	wantContent(t, a, "/f", "A")
}
