package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// These are cases of other projects' lease tests that no test here covered;
// docs/CONFORMANCE.md says which.

// A file is open for write, is renamed, and another is made under its old name:
// two files, two writers, over a restart too, and whoever of them closes first.
func TestNameOfAnOpenFileIsUsedAgain(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	first := create(t, a, "/d/f")
	flush(t, first, "first")
	must(t, b.Rename(t.Context(), "/d/f", "/d/moved", false))
	second := create(t, b, "/d/f")
	flush(t, second, "second")
	n.Restart(t)
	wantLeased(t, b, "A", "/d/moved")
	wantLeased(t, b, "B", "/d/f")
	_, err := b.Append(t.Context(), "/d/moved")
	wantHeld(t, err, "A")
	_, err = a.Append(t.Context(), "/d/f")
	wantHeld(t, err, "B")
	flush(t, first, ", and more")
	must(t, second.Close())
	flush(t, first, " of it")
	must(t, first.Close())
	wantContent(t, a, "/d/moved", "first, and more of it")
	wantContent(t, a, "/d/f", "second")
	wantSound(t, a)
}

// Files that end a byte before, at and behind the end of a block or of a
// checksummed chunk are appended to again and again, also without a byte, and are
// what was written; a restart changes nothing.
func TestAppendsAtTheEdgesOfBlocks(t *testing.T) {
	t.Parallel()
	const chunk = 64 << 10
	n, _ := frozen(t, smallBlocks)
	a := n.Client(t, env.Named("A"))
	must(t, a.Mkdir(t.Context(), "/d", 0o755))
	text := pattern(3 * smallBlock)
	wants := map[string]int{}
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, smallBlock - 1, smallBlock, smallBlock + 1} {
		path, end := fmt.Sprintf("/d/%d", size), size
		must(t, a.WriteFile(t.Context(), path, []byte(text[:size])))
		for _, more := range []int{0, 1, 0, chunk - 1, smallBlock, 1} {
			w := appendTo(t, a, path)
			if more > 0 {
				write(t, w, text[end:end+more])
				end += more
			}
			must(t, w.Close())
			if got := stat(t, a, path).Length; got != int64(end) {
				t.Fatalf("%s has %d bytes, want %d", path, got, end)
			}
		}
		wants[path] = end
	}
	for range 2 {
		for path, end := range wants {
			wantContent(t, a, path, text[:end])
		}
		wantSound(t, a)
		n.Restart(t)
	}
}

// A file is cut to fewer and fewer bytes, at, before and behind the ends of its
// blocks, and each time written on; a restart changes nothing. To cut takes
// permission to write.
func TestTruncateAtTheEdgesOfBlocks(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"), asUser("ann"))
	must(t, n.Client(t).Mkdir(ctx, "/d", 0o777))
	must(t, n.Client(t).Chmod(ctx, "/d", 0o777))
	text := pattern(3*smallBlock + 1000)
	must(t, a.WriteFile(ctx, "/d/f", []byte(text)))
	want := text
	for _, length := range []int{
		len(text), len(text) - 1, 3*smallBlock + 1, 3 * smallBlock, 3*smallBlock - 1,
		2 * smallBlock, smallBlock + 1, smallBlock, smallBlock - 1, 1, 0,
	} {
		must(t, a.Truncate(ctx, "/d/f", int64(length)))
		want = want[:min(length, len(want))]
		wantContent(t, a, "/d/f", want)
		w := appendTo(t, a, "/d/f")
		write(t, w, "+")
		must(t, w.Close())
		want += "+"
		wantContent(t, a, "/d/f", want)
	}
	must(t, a.Truncate(ctx, "/d/f", 0))
	must(t, a.WriteFile(ctx, "/d/g", []byte(text)))
	must(t, a.Truncate(ctx, "/d/g", smallBlock+7))
	must(t, a.Chmod(ctx, "/d/g", 0o644))
	b := n.Client(t, env.Named("B"), asUser("bob"))
	wantKind(t, b.Truncate(ctx, "/d/g", 1), fserror.Permission)
	n.Restart(t)
	wantContent(t, a, "/d/f", "")
	wantContent(t, a, "/d/g", text[:smallBlock+7])
	wantSound(t, n.Client(t))
}

// Many files, with whole and with short last blocks, become one; those they were
// are gone, and a restart changes nothing. To join takes permission to write both.
func TestConcatOfManyFiles(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"), asUser("ann"))
	must(t, n.Client(t).Mkdir(ctx, "/d", 0o777))
	must(t, n.Client(t).Chmod(ctx, "/d", 0o777))
	text, want := pattern(2*smallBlock+10), ""
	var paths []string
	for i, size := range []int{smallBlock, 2 * smallBlock, 5, smallBlock - 1, 0, smallBlock + 1, 2*smallBlock + 10, 1, smallBlock, 3} {
		path := fmt.Sprintf("/d/%d", i)
		must(t, a.WriteFile(ctx, path, []byte(text[:size])))
		paths, want = append(paths, path), want+text[:size]
	}
	b := n.Client(t, env.Named("B"), asUser("bob"))
	wantKind(t, b.Concat(ctx, paths[0], paths[1:]...), fserror.Permission)
	must(t, a.Concat(ctx, paths[0], paths[1:]...))
	for range 2 {
		wantContent(t, a, paths[0], want)
		for _, path := range paths[1:] {
			gone(t, a, path)
		}
		wantSound(t, n.Client(t))
		n.Restart(t)
	}
}

// Many flush a file while another closes it: each is told that its bytes are safe,
// or that the file is closed.
func TestFlushesWhileClosing(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a := n.Client(t, env.Named("A"))
	for round := range 10 {
		path := fmt.Sprintf("/f%d", round)
		w := create(t, a, path)
		begun := make(chan struct{}, 10)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if err := w.Flush(t.Context()); err != nil {
						if !errors.Is(err, fserror.Closed) {
							t.Errorf("a flush beside the close: %v", err)
						}
						return
					}
					if i == 0 {
						begun <- struct{}{}
					}
				}
			})
		}
		for range 10 {
			<-begun
		}
		write(t, w, "what is written")
		must(t, w.Close())
		wg.Wait()
		wantContent(t, a, path, "what is written")
		wantOpen(t, a, path, "")
	}
}

// A flush whose caller gives up loses nothing: the next one confirms the same
// bytes, and so does the close.
func TestFlushThatIsGivenUp(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a := n.Client(t, env.Named("A"))
	w := create(t, a, "/f")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	want := ""
	for _, piece := range []string{"one", " two", " three"} {
		write(t, w, piece)
		want += piece
		if err := w.Flush(over); err != nil { // it may have been done
			wantKind(t, err, fserror.Canceled)
		}
		must(t, w.Flush(t.Context()))
		if got := w.Durable(); got != int64(len(want)) {
			t.Fatalf("%d bytes are durable, want %d", got, len(want))
		}
		wantContent(t, a, "/f", want)
	}
	write(t, w, " four")
	_ = w.Flush(over)
	must(t, w.Close())
	wantContent(t, a, "/f", want+" four")
}

// The leases of many clients, over empty files and files with bytes, end at once:
// all are closed as they are, and can be written.
func TestManyLeasesLapseAtOnce(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	b := n.Client(t, env.Named("B"))
	var paths []string
	for i := range 20 {
		raw := n.Raw(t, fmt.Sprintf("dead%d", i))
		for j := range 3 {
			path := fmt.Sprintf("/d/%d-%d", i, j)
			w := raw.Create(path)
			if j == 1 {
				must(t, raw.Flush(w, 0, "flushed"))
			}
			paths = append(paths, path)
		}
	}
	clk.Advance(pastHard)
	for i, path := range paths {
		waitClosed(t, b, path)
		wantContent(t, b, path, []string{"", "flushed", ""}[i%3])
		w := appendTo(t, b, path)
		must(t, w.Close())
	}
	if all := leases(t, b, ""); len(all) > 1 { // B's own, just ended or not
		t.Fatalf("%d leases are left", len(all))
	}
	wantSound(t, b)
}

// A file that moved from one lease to another belongs to the latter, and one that
// was detached to none, also after a restart; what a revocation took stays away.
func TestSwitchedLeasesOverARestart(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	one, two := grant(t, a, time.Hour), grant(t, a, time.Hour)
	must(t, a.Mkdir(ctx, "/d", 0o755))
	for _, name := range []string{"kept", "switched", "back", "detached"} {
		must(t, a.WriteFile(ctx, "/d/"+name, []byte(name), client.WithLease(one)))
	}
	must(t, a.Leases().Attach(ctx, two, "/d/switched"))
	must(t, a.Leases().Attach(ctx, two, "/d/back"))
	must(t, a.Leases().Attach(ctx, one, "/d/back"))
	must(t, a.Leases().Detach(ctx, "/d/detached"))
	n.Restart(t)
	for name, id := range map[string]client.LeaseID{"kept": one, "switched": two, "back": one, "detached": 0} {
		wantAttached(t, a, "/d/"+name, id)
	}
	must(t, a.Leases().Revoke(ctx, one))
	for range 2 {
		gone(t, a, "/d/kept")
		gone(t, a, "/d/back")
		wantContent(t, a, "/d/switched", "switched")
		wantContent(t, a, "/d/detached", "detached")
		n.Restart(t)
	}
	must(t, a.Leases().Revoke(ctx, two))
	gone(t, a, "/d/switched")
	wantContent(t, a, "/d/detached", "detached")
	wantSound(t, a)
}

// A closed client refuses lease calls at once, and its kept leases end for it, but not
// for others.
func TestLeasesOfAClosedClient(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	id := grant(t, a, time.Hour)
	kept, err := a.Leases().KeepAlive(ctx, id)
	must(t, err)
	must(t, a.Close())
	select {
	case <-kept.Context().Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("a closed client keeps a lease alive")
	}
	_, err = a.Leases().Grant(ctx, time.Hour, 0)
	wantKind(t, err, fserror.Closed)
	err = a.Leases().Revoke(ctx, id)
	wantKind(t, err, fserror.Closed)
	_, err = a.Leases().KeepAlive(ctx, id)
	wantKind(t, err, fserror.Closed)
	wantTTL(t, b, id, time.Hour, time.Hour)
}

// Whoever was granted a lease can keep it alive and look at it at once, however
// many are granted beside it.
func TestGrantedLeasesAreThereAtOnce(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	for c := range 4 {
		a, raw := n.Client(t, env.Named(fmt.Sprintf("A%d", c))), n.Raw(t, "raw")
		wg.Go(func() {
			for range 50 {
				g, err := a.Leases().Grant(ctx, time.Minute, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if got := keepAlive(t, raw, g.ID); got[0] != time.Minute {
					t.Errorf("kept alive for %s", got[0])
				}
				ttl, err := a.Leases().TimeToLive(ctx, g.ID, true)
				if err != nil || ttl.Remaining != time.Minute || ttl.FileCount != 0 {
					t.Errorf("%+v, %v", ttl, err)
				}
			}
		})
	}
	wg.Wait()
	if all := leases(t, n.Client(t), ""); len(all) != 200 {
		t.Errorf("%d leases are listed, want 200", len(all))
	}
}

// A lock is tried without waiting, is refused to its own session too, is given
// back once, and has nothing to do with names that begin alike.
func TestLockIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	la, err := a.Lock(ctx, "/l/x", client.LockOptions{})
	must(t, err)
	_, err = b.Lock(ctx, "/l/x", client.LockOptions{})
	wantHeld(t, err, "A")
	_, err = a.Lock(ctx, "/l/x", client.LockOptions{})
	wantKind(t, err, fserror.Held)
	alike, err := b.Lock(ctx, "/l/x1", client.LockOptions{})
	must(t, err)
	must(t, alike.Unlock(ctx))
	must(t, la.Unlock(ctx))
	wantKind(t, la.Unlock(ctx), fserror.Closed)
	lb, err := b.Lock(ctx, "/l/x", client.LockOptions{})
	must(t, err)
	wantKind(t, la.Unlock(ctx), fserror.Closed) // and does not give B's back
	wantOpen(t, a, "/l/x", "B")
	if lb.Token() <= la.Token() || lb.Remaining() <= 0 {
		t.Fatalf("token %d after %d, %s remain", lb.Token(), la.Token(), lb.Remaining())
	}
	must(t, lb.Unlock(ctx))
}

// To end another's lease on a file takes permission to write the file, before and
// after the soft limit, by whichever call.
func TestRecoverTakesPermissionToWrite(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	ctx := t.Context()
	admin := n.Client(t)
	must(t, admin.Mkdir(ctx, "/d", 0o777))
	must(t, admin.Chmod(ctx, "/d", 0o777))
	a := n.Raw(t, "A") // a raw client, whose lease nobody renews
	w := a.Create("/d/f")
	must(t, a.Flush(w, 0, "A's"))
	must(t, admin.Chmod(ctx, "/d/f", 0o644))
	b := n.Client(t, env.Named("B"), asUser("bob"))
	for range 2 {
		_, err := b.Recover(ctx, "/d/f", true)
		wantKind(t, err, fserror.Permission)
		_, err = b.Recover(ctx, "/d/f", false)
		wantKind(t, err, fserror.Permission)
		_, err = b.Append(ctx, "/d/f")
		wantKind(t, err, fserror.Permission)
		_, err = b.Create(ctx, "/d/f", client.WithOverwrite(), client.WithSteal())
		wantKind(t, err, fserror.Permission)
		wantOpen(t, b, "/d/f", "A")
		clk.Advance(pastSoft)
	}
	must(t, admin.Chmod(ctx, "/d/f", 0o666))
	res, err := b.Recover(ctx, "/d/f", false)
	must(t, err)
	if !res.WasOpen || res.Length != int64(len("A's")) {
		t.Fatalf("recovered: %+v", res)
	}
	wantKind(t, a.Flush(w, 3, "late"), fserror.LeaseLost)
	wantContent(t, b, "/d/f", "A's")
}

// Answers from memory are the caller's own: changing one changes no other.
func TestAnswersFromMemoryAreCopies(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	must(t, n.Client(t).WriteFile(ctx, "/f", []byte("content")))
	b, wire := n.Wired(t, env.Named("B"), caching)
	warm(t, b, wire, "/f")
	want, err := b.ReadDir(ctx, "/")
	must(t, err)
	wants := []client.FileInfo{*stat(t, b, "/f"), *want[0]}
	for range 3 {
		warm(t, b, wire, "/f")
		one := stat(t, b, "/f")
		entries, err := b.ReadDir(ctx, "/")
		must(t, err)
		if len(entries) != 1 {
			t.Fatalf("%d entries", len(entries))
		}
		for i, got := range []*client.FileInfo{one, entries[0]} {
			if !reflect.DeepEqual(*got, wants[i]) {
				t.Fatalf("%+v, want %+v", got, wants[i])
			}
			*got = client.FileInfo{Path: "/other", Length: 7777}
		}
		entries[0] = nil
	}
}
