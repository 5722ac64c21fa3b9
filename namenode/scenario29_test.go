package namenode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// problems is what fsck finds.
func problems(t *testing.T, fs *client.FS) (found []string) {
	t.Helper()
	_, err := fs.Admin().Fsck(t.Context(), "", false, func(p client.FsckProblem) error {
		found = append(found, p.Path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func mustCreate(t *testing.T, fs *client.FS, path, content string) *client.Writer {
	t.Helper()
	w, err := fs.Create(t.Context(), path)
	if err == nil {
		_, err = w.Write([]byte(content))
	}
	if err == nil {
		err = w.Flush(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Files are marked open with no lease entry (damage injected): fsck says so;
// recover, an open by another, a renewal by the writer, and the background
// repair each put the entry back; a live writer loses nothing; the monitor closes
// the files whose writer is gone.
func TestScenario29OpenFileWithoutALease(t *testing.T) {
	t.Parallel()
	files := []string{"/1", "/2", "/3", "/4", "/5"}
	// wantWhole checks that nothing is left to repair.
	wantWhole := func(t *testing.T, fs *client.FS) {
		t.Helper()
		if found := problems(t, fs); len(found) > 0 {
			t.Fatalf("fsck still finds %v", found)
		}
	}
	startAt := func(t *testing.T, hard time.Duration, mods ...func(*namenode.Config)) (n *env.Namenode, a, b *client.FS, writers []*client.Writer) {
		n = env.Start(t, append(mods, env.Limits(min(hard, time.Minute), hard))...)
		a, wire := n.Wired(t, env.Named("A"))
		b = n.Client(t, env.Named("B"))
		wire.Lose("Renew", "RenewLease") // which would repair it
		for _, p := range files {
			writers = append(writers, mustCreate(t, a, p, "flushed"))
		}
		n.ForgetLeases()
		if found := problems(t, b); len(found) != len(files) {
			t.Fatalf("fsck finds %v, want all of %v", found, files)
		}
		wire.Set(nil)
		return n, a, b, writers
	}
	start := func(t *testing.T, hard time.Duration) (n *env.Namenode, a, b *client.FS, writers []*client.Writer) {
		return startAt(t, hard)
	}
	// frozen is start with a short limit, by a clock that is moved.
	const short = 400 * time.Millisecond // writers renew each half of that of the real clock, or sooner
	frozen := func(t *testing.T) (clk *clock.Fake, n *env.Namenode, a, b *client.FS, writers []*client.Writer) {
		clk, with := env.FakeClock()
		n, a, b, writers = startAt(t, short, with)
		return clk, n, a, b, writers
	}

	t.Run("recover", func(t *testing.T) {
		t.Parallel()
		_, _, b, _ := start(t, time.Hour)
		// Nobody knows for how long the holder was silent: he gets his limits.
		if _, err := b.Recover(t.Context(), files[0], false); !errors.Is(err, fserror.Held) {
			t.Fatalf("recover without force: %v, want HELD", err)
		}
		if found := problems(t, b); len(found) != len(files)-1 {
			t.Fatalf("after the recover of one fsck finds %v", found)
		}
		for _, p := range files {
			if res, err := b.Recover(t.Context(), p, true); err != nil || !res.WasOpen || res.Length != 7 {
				t.Fatalf("recover %s: %+v, %v", p, res, err)
			}
		}
		wantWhole(t, b)
	})
	t.Run("open by another", func(t *testing.T) {
		t.Parallel()
		_, _, b, writers := start(t, time.Hour)
		for i, p := range files {
			if _, err := b.Append(t.Context(), p); !errors.Is(err, fserror.Held) {
				t.Fatalf("append of what A has: %v, want HELD", err)
			}
			if err := writers[i].Close(); err != nil {
				t.Fatal(err)
			}
		}
		wantWhole(t, b)
	})
	t.Run("the writer continues", func(t *testing.T) {
		t.Parallel()
		n, a, b, writers := start(t, time.Hour)
		for _, w := range writers[1:] {
			if _, err := w.Write([]byte(", more")); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := writers[0].Close(); err != nil {
			t.Fatal(err)
		}
		n.RepairLeases() // a call looks at its session, not for each of its files
		wantWhole(t, b)
		if got, err := a.ReadFile(t.Context(), files[4]); err != nil || string(got) != "flushed, more" {
			t.Fatalf("%q, %v", got, err)
		}
	})
	t.Run("the writer only renews", func(t *testing.T) {
		t.Parallel()
		clk, _, a, b, writers := frozen(t)
		r, err := b.Open(t.Context(), files[0])
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for range 5 {
			before := a.Stats().Renewals // of which one may be under way
			env.Eventually(t, "a renewal by this clock", func() bool { return a.Stats().Renewals >= before+2 })
			clk.Advance(short * 3 / 4)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, open, err := r.WaitBeyond(ctx, 1<<40) // waits until the file is closed
			cancel()
			if !open && err == nil {
				t.Fatal("a file whose writer lives was closed")
			}
		}
		for _, w := range writers {
			if err := w.Context().Err(); err != nil {
				t.Fatalf("%s: its writer lost it: %v", w.Path(), context.Cause(w.Context()))
			}
		}
		wantWhole(t, b)
		for _, w := range writers {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("repair, then the monitor", func(t *testing.T) {
		t.Parallel()
		clk, n, a, b, writers := frozen(t)
		for _, w := range writers {
			if err := w.Detach(); err != nil { // nobody renews it any more
				t.Fatal(err)
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		n.ForgetLeases()
		n.RepairLeases()
		wantWhole(t, b)
		clk.Advance(2 * short)
		for _, p := range files {
			r, err := b.Open(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if _, open, err := r.WaitBeyond(t.Context(), 1<<40); err != nil || open {
				t.Fatalf("%s: open %v, %v", p, open, err)
			}
			_ = r.Close()
		}
		wantWhole(t, b)
	})
}
