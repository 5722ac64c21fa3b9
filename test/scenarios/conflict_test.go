package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// A writes a file; B's create of it, without overwrite, is refused with A's
// name, and A notices nothing.
func TestScenario10CreateOfAFileBeingWritten(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "one ")
	clk.Advance(59 * time.Second) // inside the soft limit
	_, err := b.Create(t.Context(), "/f")
	if e := asHeld(t, err, "A"); e.TakeableIn <= 0 || e.TakeableIn > time.Second+time.Millisecond {
		t.Fatalf("%v: takeable in %s, want the second that is left", err, e.TakeableIn)
	}
	wantHeld(t, b.WriteFile(t.Context(), "/f", []byte("B's")), "A")
	flush(t, w, "two")
	must(t, w.Close())
	wantContent(t, b, "/f", "one two")
	_, err = b.Create(t.Context(), "/f")
	wantKind(t, err, fserror.Exists)
}

// With overwrite B is refused too. With steal B has the file: A's next call is
// told so, and nothing of A's is in it.
func TestScenario11OverwriteAndSteal(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "A's flushed ")
	_, err := b.Create(t.Context(), "/f", client.WithOverwrite())
	wantHeld(t, err, "A")
	flush(t, w, "bytes") // A is not touched by that

	write(t, w, "A's unflushed")
	wb := create(t, b, "/f", client.WithOverwrite(), client.WithSteal())
	flush(t, wb, "B's")
	wantLost(t, w.Flush(t.Context()), "B", "")
	wantLost(t, waitLost(t, w), "B", "")
	_, err = w.Write([]byte("more"))
	wantLost(t, err, "B", "")
	wantLost(t, w.Close(), "B", "")
	wantContent(t, a, "/f", "B's")
	must(t, wb.Close())
	wantContent(t, a, "/f", "B's")
	if wb.Token() <= w.Token() {
		t.Fatalf("B's epoch %d is not above A's, %d", wb.Token(), w.Token())
	}
}

// A file that is written whole replaces none that another opens at the last moment and
// writes to, by the rule of Create with overwrite: not while its holder may be alive.
func TestWholeFileSparesWhoOpensLast(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, wire := n.Wired(t, env.Named("A"))
	b, bwire := n.Wired(t, env.Named("B"))
	must(t, b.WriteFile(t.Context(), "/f", []byte("old")))
	var w *client.Writer
	open := func() (err error) {
		if w, err = b.Append(t.Context(), "/f"); err == nil {
			if _, err = w.Write([]byte(" and acknowledged")); err == nil {
				err = w.Flush(t.Context())
			}
		}
		return err
	}
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "Rename" && w == nil {
			if err := open(); err != nil {
				t.Error(err)
			}
		}
		return send()
	})
	_, err := a.WriteFrom(t.Context(), "/f", strings.NewReader("new"), client.WithOverwrite())
	wantHeld(t, err, "B")
	if !strings.HasPrefix(err.Error(), "create /f: ") {
		t.Errorf("not an error of /f: %v", err)
	}
	wantContent(t, a, "/f", "old and acknowledged")
	flush(t, w, ", and more")
	entries, err := a.ReadDir(t.Context(), "/")
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}

	bwire.Cut()
	clk.Advance(pastSoft)
	_, err = a.WriteFrom(t.Context(), "/f", strings.NewReader("new"), client.WithOverwrite())
	must(t, err)
	wantContent(t, a, "/f", "new")
}

// A appends and has written nothing yet: B's append is refused all the same.
func TestScenario12AppendToAFileOpenButIdle(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	must(t, a.WriteFile(t.Context(), "/f", []byte("old ")))
	w := appendTo(t, a, "/f")
	clk.Advance(time.Minute) // exactly the soft limit is not past it
	_, err := b.Append(t.Context(), "/f")
	wantHeld(t, err, "A")
	flush(t, w, "new")
	must(t, w.Close())
	wb := appendTo(t, b, "/f")
	if wb.TookOver() || wb.Length() != 7 {
		t.Fatalf("B's append: took over %v, length %d; want false, 7", wb.TookOver(), wb.Length())
	}
	must(t, wb.Close())
	wantContent(t, b, "/f", "old new")
}

// A session is refused its own open file, before and after its soft limit.
func TestScenario13OwnOpenFile(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	refused := func(when string) {
		t.Helper()
		if _, err := a.Append(t.Context(), "/f"); !errors.Is(err, fserror.Held) {
			t.Fatalf("append of its own open file, %s its soft limit: %v, want HELD", when, err)
		}
		if _, err := a.Create(t.Context(), "/f", client.WithOverwrite()); !errors.Is(err, fserror.Held) {
			t.Fatalf("create over its own open file, %s its soft limit: %v, want HELD", when, err)
		}
		if _, err := a.Create(t.Context(), "/f"); !errors.Is(err, fserror.Held) {
			t.Fatalf("create of its own open file, %s its soft limit: %v, want HELD", when, err)
		}
	}
	refused("before")
	clk.Advance(pastSoft)
	refused("after")
	flush(t, w, "still A's")
	must(t, w.Close())
	wantContent(t, b, "/f", "still A's")
}

// A new session of the same user and client name gets what it asks for, and
// nothing else, at once if the old session's stream is gone; while that lives
// it is refused.
func TestScenario13NewSessionOfTheSameClient(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	old, wire := n.Wired(t, env.Named("A"))
	again := n.Client(t, env.Named("A"))
	w, other := create(t, old, "/f"), create(t, old, "/other")
	flush(t, w, "old ")
	write(t, w, "unflushed")
	flush(t, other, "other")

	_, err := again.Append(t.Context(), "/f")
	wantHeld(t, err, "A")
	_, err = again.CloseFile(t.Context(), "/f")
	wantHeld(t, err, "A")

	wire.Cut()
	before := clk.Mono()
	w2 := appendTo(t, again, "/f", client.WithWait(time.Minute)) // until the namenode notices
	if clk.Mono() != before || !w2.TookOver() {
		t.Fatal("the new session did not take the file over by its name")
	}
	flush(t, w2, "new")
	if got := stat(t, again, "/other").Open; got == nil || got.Session != old.Info().Session {
		t.Fatalf("/other is held by %+v: the new session was given more than it asked for", got)
	}
	if length, err := again.CloseFile(t.Context(), "/other"); err != nil || length != 5 {
		t.Fatalf("close of what the old session left: length %d, %v; want 5", length, err)
	}
	wantOpen(t, again, "/other", "")

	wire.Mend()
	wantLost(t, late(t, w), "A", "")
	wantLost(t, late(t, other), "", "")
	must(t, w2.Close())
	wantContent(t, again, "/f", "old new")
}

// The same client name under another user is another client.
func TestScenario13SameNameOfAnotherUser(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a := n.Raw(t, "A")
	a.Create("/f") // A has no stream: a session of root's A could take it
	stranger := n.Client(t, env.Named("A"), func(c *client.Config) { c.User = "eve" })
	root := n.Client(t, env.Named("B"))
	must(t, root.Chmod(t.Context(), "/f", 0o666))
	_, err := stranger.Append(t.Context(), "/f")
	wantHeld(t, err, "A")
	_, err = stranger.CloseFile(t.Context(), "/f")
	wantHeld(t, err, "A")
	clk.Advance(pastSoft)
	w := appendTo(t, stranger, "/f")
	must(t, w.Close())
}

// A session that comes back with its name after it missed a renewal does not
// wait for its own soft limit, though the old stream seems to be up.
func TestScenario13OldSessionMissedARenewal(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	old := n.Raw(t, "A")
	defer old.Connect()()
	wOld := old.Create("/f")
	must(t, old.Flush(wOld, 0, "old "))
	again := n.Client(t, env.Named("A"))
	clk.Advance(45 * time.Second) // one and a half periods: not missed yet
	_, err := again.Append(t.Context(), "/f")
	wantHeld(t, err, "A")
	clk.Advance(time.Millisecond)
	w := appendTo(t, again, "/f")
	flush(t, w, "new")
	wantLost(t, old.Flush(wOld, 4, "late"), "A", "taken over")
	must(t, w.Close())
	wantContent(t, again, "/f", "old new")
}

// A wrote, never flushed, and is past the soft limit: B's append succeeds at
// once, and A's unflushed bytes are not there.
func TestScenario14UnflushedBytesOfALapsedWriter(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	write(t, w, "A's unflushed")
	clk.Advance(pastSoft)
	wb := appendTo(t, b, "/f")
	if !wb.TookOver() || wb.Length() != 0 {
		t.Fatalf("B took over: %v, length %d; want true, 0", wb.TookOver(), wb.Length())
	}
	flush(t, wb, "B's")
	wantLost(t, w.Flush(t.Context()), "B", "taken over")
	wantLost(t, w.Close(), "B", "taken over")
	must(t, wb.Close())
	wantContent(t, a, "/f", "B's")
}

// A flushed half a block and went silent; after the soft limit B appends: A's
// flushed bytes, then B's. So too when A's half block is a block of its own.
func TestScenario15FlushedHalfBlock(t *testing.T) {
	t.Parallel()
	for _, half := range []int{32 << 10, 96 << 10} { // as a tail; as a block
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			t.Parallel()
			n, clk := frozen(t, smallBlocks)
			a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
			mine, theirs := pattern(half), strings.Repeat("B", smallBlock)
			w := create(t, a, "/f")
			flush(t, w, mine)
			write(t, w, "A's unflushed")
			_, err := b.Append(t.Context(), "/f")
			wantHeld(t, err, "A")
			clk.Advance(pastSoft)
			wb := appendTo(t, b, "/f")
			if wb.Length() != int64(half) {
				t.Fatalf("B continues at %d, A flushed %d", wb.Length(), half)
			}
			write(t, wb, theirs)
			must(t, wb.Close())
			wantContent(t, a, "/f", mine+theirs)
			wantLost(t, w.Flush(t.Context()), "", "")
			wantContent(t, a, "/f", mine+theirs)
			wantSound(t, a)
		})
	}
}

// B takes one file over while holding others: each file goes by the rules.
func TestScenario16TakeOverWhileHoldingOthers(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b, c := n.Client(t, env.Named("A")), n.Client(t, env.Named("B")), n.Client(t, env.Named("C"))
	wf, wg := create(t, a, "/f"), create(t, a, "/g")
	flush(t, wf, "A")
	flush(t, wg, "A")
	wh := create(t, b, "/h")
	clk.Advance(pastSoft)
	flush(t, wh, "B") // B lives, A does not
	wb := appendTo(t, b, "/f")
	wantLeased(t, c, "B", "/f", "/h")
	wantLeased(t, c, "A", "/g")
	_, err := c.Append(t.Context(), "/f")
	wantHeld(t, err, "B")
	_, err = c.Append(t.Context(), "/h")
	wantHeld(t, err, "B")
	wc := appendTo(t, c, "/g")
	wantLeased(t, c, "A")
	flush(t, wb, "B")
	flush(t, wc, "C")
	flush(t, wh, "B")
	for _, w := range []*client.Writer{wb, wc, wh} {
		must(t, w.Close())
	}
	wantContent(t, a, "/f", "AB")
	wantContent(t, a, "/g", "AC")
	wantContent(t, a, "/h", "BB")
}

// Append to what is missing or a directory, truncate of an open file.
func TestScenario17OpeningWhatCannotBeOpened(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	must(t, a.Mkdir(t.Context(), "/d", 0o755))
	_, err := a.Append(t.Context(), "/missing")
	wantKind(t, err, fserror.NotFound)
	_, err = a.Append(t.Context(), "/d")
	wantKind(t, err, fserror.IsDirectory)
	_, err = a.Create(t.Context(), "/d", client.WithOverwrite())
	wantKind(t, err, fserror.IsDirectory)
	w := create(t, a, "/d/f")
	flush(t, w, "0123456789")
	wantHeld(t, b.Truncate(t.Context(), "/d/f", 5), "A")
	wantHeld(t, a.Truncate(t.Context(), "/d/f", 5), "A")
	must(t, w.Close())
	wantContent(t, b, "/d/f", "0123456789")
	must(t, b.Truncate(t.Context(), "/d/f", 5))
	wantContent(t, b, "/d/f", "01234")
}

// Three clients append 20 small pieces each to one file, waiting for each
// other: every piece is there once and whole. Without waiting some are refused;
// those that were not are there, and nothing else.
func TestScenario18ManyAppendersOfOneFile(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"wait": time.Minute, "no wait": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := env.Start(t)
			var clients []*client.FS
			for _, c := range []string{"A", "B", "C"} {
				clients = append(clients, n.Client(t, env.Named(c)))
			}
			must(t, clients[0].WriteFile(t.Context(), "/f", nil))
			var mu sync.Mutex
			done := map[string]bool{}
			var wg sync.WaitGroup
			for _, fs := range clients {
				wg.Go(func() {
					for i := range 20 {
						piece := fmt.Sprintf("<%s %02d %s>", fs.Info().Client, i, strings.Repeat("x", 50))
						err := appendPiece(t.Context(), fs, "/f", piece, wait)
						if err != nil && (wait > 0 || !errors.Is(err, fserror.Held)) {
							t.Errorf("piece %s: %v", piece, err)
						}
						mu.Lock()
						done[piece] = err == nil
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			got, err := clients[0].ReadFile(t.Context(), "/f")
			must(t, err)
			found := 0
			for rest := string(got); rest != ""; found++ {
				end := strings.IndexByte(rest, '>') + 1
				piece := rest[:end]
				rest = rest[end:]
				if !done[piece] {
					t.Fatalf("the file has %s, torn, twice or refused", brief(piece))
				}
				done[piece] = false
			}
			for piece, missing := range done {
				if missing {
					t.Errorf("piece %s is missing", piece)
				}
			}
			if wait > 0 && found != 60 || found == 0 {
				t.Errorf("%d pieces", found)
			}
		})
	}
}

// Who waits for a file gets it when it is closed, not when he looks next.
func TestScenario18HandOver(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a := n.Client(t, env.Named("A"))
	b, wire := n.Wired(t, env.Named("B"))
	const rounds = 20
	fastest := time.Hour
	for i := range rounds {
		w := appendTo(t, a, "/f", client.WithCreate())
		asked, got := make(chan struct{}), make(chan error, 1)
		var once sync.Once
		wire.Set(func(method string, _ any, send func() error) error {
			if method == "Append" {
				once.Do(func() { close(asked) })
			}
			return send()
		})
		go func() { got <- appendPiece(t.Context(), b, "/f", "<B's piece>", time.Minute) }()
		<-asked
		flush(t, w, fmt.Sprintf("<A %02d>", i)) // a disk's round trip, in which B comes to wait
		must(t, w.Close())
		began := time.Now()
		must(t, <-got)
		fastest = min(fastest, time.Since(began))
	}
	// A waiter by himself looks once a second.
	if fastest > time.Second/2 {
		t.Errorf("of %d hand-overs the fastest took %s: waiters are not woken", rounds, fastest)
	}
	if got, want := stat(t, a, "/f").Length, int64(rounds*(len("<A 00>")+len("<B's piece>"))); got != want {
		t.Errorf("the file has %d bytes, want %d", got, want)
	}
}

func appendPiece(ctx context.Context, fs *client.FS, path, piece string, wait time.Duration) error {
	w, err := fs.Append(ctx, path, client.WithWait(wait))
	if err != nil {
		return err
	}
	// In two writes with a flush between: another's bytes must not come in.
	if _, err := w.Write([]byte(piece[:7])); err != nil {
		return err
	}
	if err := w.Flush(ctx); err != nil {
		return err
	}
	if _, err := w.Write([]byte(piece[7:])); err != nil {
		return err
	}
	return w.Close()
}

// A writes two files in turn and closes one: the same lease lives on for the
// other, and is renewed by what is written there.
func TestScenario19ClosingOneOfTwoFiles(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	wf, wg := create(t, a, "/f"), create(t, a, "/g")
	for i := range 5 {
		flush(t, wf, fmt.Sprint(i))
		flush(t, wg, fmt.Sprint(9-i))
	}
	id := leases(t, b, "A")[0].ID
	must(t, wf.Close())
	wantLeased(t, b, "A", "/g")
	if l := leases(t, b, "A")[0]; l.ID != id {
		t.Fatalf("the lease is %s after a close, it was %s", l.ID, id)
	}
	for range 3 {
		clk.Advance(50 * time.Second)
		flush(t, wg, "+") // renews
	}
	_, err := b.Append(t.Context(), "/g")
	wantHeld(t, err, "A")
	must(t, appendTo(t, b, "/f").Close())
	must(t, wg.Close())
	wantLeased(t, b, "A")
	wantContent(t, b, "/f", "01234")
	wantContent(t, b, "/g", "98765+++")
}
