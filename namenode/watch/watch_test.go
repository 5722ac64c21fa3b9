package watch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/fserror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put adds a change and makes it visible.
func put(h *Hub, txid uint64, events ...Event) {
	h.Add(events, txid)
	publish(h, txid)
}

// publish makes all up to txid visible and wakes all that are due.
func publish(h *Hub, txid uint64) {
	h.Publish(txid)
	h.Wake(math.MaxInt, 1)
}

func file(path string) Event { return Event{Type: Create, Inode: 7, Path: path} }

func watch(t testing.TB, h *Hub, from uint64, f Filter) *Watcher {
	t.Helper()
	w, _, err := h.Watch(from, f)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// poll is Next without waiting: the paths of a batch.
func poll(t testing.TB, w *Watcher) (paths []string, upTo uint64, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	events, upTo, err := w.Next(ctx)
	for _, e := range events {
		paths = append(paths, fmt.Sprintf("%d %s", e.TxID, e.Path))
	}
	return paths, upTo, err
}

func wantNext(t testing.TB, w *Watcher, upTo uint64, paths ...string) {
	t.Helper()
	got, to, err := poll(t, w)
	if len(paths) == 0 && !errors.Is(err, context.Canceled) || len(paths) > 0 && err != nil {
		t.Fatalf("got %v up to %d, %v", got, to, err)
	}
	if to != upTo || !slices.Equal(got, paths) {
		t.Fatalf("got %v up to %d, want %v up to %d", got, to, paths, upTo)
	}
}

func wantOld(t testing.TB, err error, from, oldest uint64) {
	t.Helper()
	var old *TooOldError
	if !errors.As(err, &old) || *old != (TooOldError{From: from, Oldest: oldest}) {
		t.Fatalf("got %v, want too old: %d, oldest %d", err, from, oldest)
	}
}

func TestFilter(t *testing.T) {
	deep := strings.Repeat("/x", 1000)
	for _, c := range []struct {
		f    Filter
		e    Event
		want bool
	}{
		{Filter{Path: "/a"}, Event{Type: Attr, Path: "/a"}, true},
		{Filter{Path: "/a"}, Event{Type: Attr, Path: "/a/b"}, true},
		{Filter{Path: "/a"}, Event{Type: Attr, Path: "/a/b/c"}, false},
		{Filter{Path: "/a", Recursive: true}, Event{Type: Attr, Path: "/a/b/c"}, true},
		{Filter{Path: "/a", Recursive: true}, Event{Type: Attr, Path: "/a" + deep}, true},
		// Not prefixes of text, but of components.
		{Filter{Path: "/a", Recursive: true}, Event{Type: Attr, Path: "/ab"}, false},
		{Filter{Path: "/a", Recursive: true}, Event{Type: Attr, Path: "/ab/c"}, false},
		{Filter{Path: "/ab"}, Event{Type: Delete, Path: "/a"}, false},
		{Filter{Path: "/a", Recursive: true}, Event{Type: Attr, Path: "/"}, false},
		// What is above: only if the names below change with it.
		{Filter{Path: "/a/b/c"}, Event{Type: Attr, Path: "/a"}, false},
		{Filter{Path: "/a/b/c"}, Event{Type: Create, Path: "/a"}, false},
		{Filter{Path: "/a/b/c"}, Event{Type: Delete, Path: "/a"}, true},
		{Filter{Path: "/a/b/c"}, Event{Type: Delete, Path: "/a/b"}, true},
		{Filter{Path: "/a/b/c"}, Event{Type: Delete, Path: "/a/x"}, false},
		{Filter{Path: "/a/b/c"}, Event{Type: Rename, Path: "/a", NewPath: "/z"}, true},
		{Filter{Path: "/a/b/c"}, Event{Type: Rename, Path: "/z", NewPath: "/a"}, true},
		{Filter{Path: "/a" + deep}, Event{Type: Rename, Path: "/z", NewPath: "/a"}, true},
		{Filter{Path: "/a"}, Event{Type: Rename, Path: "/z/z", NewPath: "/a/b"}, true},
		{Filter{Path: "/a"}, Event{Type: Rename, Path: "/a/b", NewPath: "/z/z"}, true},
		{Filter{Path: "/a"}, Event{Type: Rename, Path: "/z/z", NewPath: "/ab"}, false},
		// The root.
		{Filter{Path: "/"}, Event{Type: Attr, Path: "/"}, true},
		{Filter{Path: "/"}, Event{Type: Attr, Path: "/a"}, true},
		{Filter{Path: "/"}, Event{Type: Attr, Path: "/a/b"}, false},
		{Filter{Path: "/", Recursive: true}, Event{Type: Attr, Path: "/a/b"}, true},
		{Filter{Path: "/", Recursive: true}, Event{Type: Attr, Path: "/"}, true},
		// By inode: whatever its name.
		{Filter{Inode: 7}, Event{Type: Lease, Inode: 7, Path: "/a"}, true},
		{Filter{Inode: 7}, Event{Type: Rename, Inode: 7, Path: "/a", NewPath: "/b"}, true},
		{Filter{Inode: 7}, Event{Type: Length, Inode: 7}, true},
		{Filter{Inode: 7}, Event{Type: Delete, Inode: 8, Path: "/a"}, false},
		// No name.
		{Filter{Path: "/", Recursive: true}, Event{Type: Delete, Inode: 7}, false},
	} {
		for _, idle := range []bool{true, false} { // found by the index, or by reading
			h := New(Config{}, 0)
			var w *Watcher
			if idle {
				w = watch(t, h, 0, c.f)
			}
			put(h, 1, c.e)
			if !idle {
				w = watch(t, h, 1, c.f)
			}
			got, _, err := poll(t, w)
			if (len(got) == 1 && err == nil) != c.want {
				t.Errorf("%+v of %+v (idle: %v): got %v, %v", c.f, c.e, idle, got, err)
			}
			sound(t, h)
		}
	}
}

func TestFilterInvalid(t *testing.T) {
	h := New(Config{}, 0)
	for _, c := range []struct {
		f    Filter
		kind fserror.Kind
	}{
		{Filter{}, fserror.InvalidArgument},
		{Filter{Path: "/a", Inode: 1}, fserror.InvalidArgument},
		{Filter{Path: "a"}, fserror.InvalidPath},
		{Filter{Path: "/a/"}, fserror.InvalidPath},
		{Filter{Path: "/" + strings.Repeat("x", 256)}, fserror.NameTooLong},
	} {
		if _, _, err := h.Watch(0, c.f); fserror.KindOf(err) != c.kind {
			t.Errorf("%+v: %v", c.f, err)
		}
	}
	if s := h.Stats(); s.Watchers != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNotVisible: what is added is seen only when it is published.
func TestNotVisible(t *testing.T) {
	h := New(Config{}, 10)
	w := watch(t, h, 0, Filter{Path: "/"})
	e := []Event{file("/a")}
	h.Add(e, 11)
	h.Add([]Event{file("/b")}, 12)
	h.Add([]Event{file("/c")}, 12) // the same change
	if e[0].TxID != 0 {
		t.Error("the caller's event was changed")
	}
	wantNext(t, w, 10)
	h.Publish(11)
	if at := w.UpTo(); at != 10 {
		t.Errorf("up to %d with something unread", at)
	}
	wantNext(t, w, 11, "11 /a")
	h.Publish(11)
	h.Publish(3)
	wantNext(t, w, 11)
	h.Publish(20)
	if at := w.UpTo(); at != 11 {
		t.Errorf("up to %d with something unread", at)
	}
	wantNext(t, w, 20, "12 /b", "12 /c")
	if h.Newest() != 20 || h.Oldest() != 11 {
		t.Errorf("newest %d, oldest %d", h.Newest(), h.Oldest())
	}
}

// TestFrom: where watches begin.
func TestFrom(t *testing.T) {
	h := New(Config{}, 10)
	for tx := uint64(11); tx <= 15; tx++ {
		put(h, tx, file(fmt.Sprintf("/f%d", tx)))
	}
	h.Add([]Event{file("/f16")}, 16)
	root := Filter{Path: "/"}
	if _, _, err := h.Watch(10, root); err == nil {
		t.Fatal("watch from a txid that New said is not known")
	} else {
		wantOld(t, err, 10, 11)
	}
	w, start, err := h.Watch(0, root)
	if err != nil || start != 16 {
		t.Fatal(start, err)
	}
	w11, w14, w16, w18 := watch(t, h, 11, root), watch(t, h, 14, root), watch(t, h, 16, root), watch(t, h, 18, root)
	wantNext(t, w, 15)
	wantNext(t, w11, 15, "11 /f11", "12 /f12", "13 /f13", "14 /f14", "15 /f15")
	wantNext(t, w14, 15, "14 /f14", "15 /f15")
	wantNext(t, w16, 15)
	wantNext(t, w18, 17) // a place to resume at: still 18
	for tx := uint64(17); tx <= 19; tx++ {
		h.Add([]Event{file(fmt.Sprintf("/f%d", tx))}, tx)
	}
	h.Publish(17)
	wantNext(t, w, 17, "16 /f16", "17 /f17")
	wantNext(t, w16, 17, "16 /f16", "17 /f17")
	wantNext(t, w18, 17)
	h.Publish(19)
	wantNext(t, w18, 19, "18 /f18", "19 /f19")
}

// TestResume: from the end of each batch a new watch gets exactly the rest.
func TestResume(t *testing.T) {
	h := New(Config{}, 0)
	const n = 5*MaxBatch + 17
	for tx := uint64(1); tx <= n; tx++ {
		h.Add([]Event{file("/a/x"), file("/b"), file("/a/y")}, tx)
	}
	h.Publish(n)
	at, want := uint64(0), uint64(1)
	for at < n {
		w := watch(t, h, at+1, Filter{Path: "/a"})
		events, upTo, err := w.Next(t.Context())
		if err != nil || len(events) > MaxBatch || upTo <= at {
			t.Fatal(len(events), upTo, err)
		}
		for i, e := range events {
			if e.TxID != want || e.Path != []string{"/a/x", "/a/y"}[i%2] {
				t.Fatalf("event %d is %+v, want txid %d", i, e, want)
			}
			want += uint64(i % 2)
		}
		if at = upTo; at != w.UpTo() || at != want-1 {
			t.Fatalf("batch says %d, UpTo %d, last was %d", at, w.UpTo(), want-1)
		}
		w.Close()
	}
	if at != n {
		t.Fatal(at)
	}
}

// TestWholeTxIDs: batches end between txids, also where they are full.
func TestWholeTxIDs(t *testing.T) {
	h := New(Config{}, 0)
	sizes := []int{MaxBatch - 1, 2, MaxBatch, 1, 3*MaxBatch + 1, 5, 6}
	for i, n := range sizes {
		events := slices.Repeat([]Event{file("/b"), file("/a")}, n)
		put(h, uint64(i+1), events...) //nolint:gosec // small
	}
	put(h, 20)
	w := watch(t, h, 1, Filter{Path: "/a"})
	for _, want := range []struct {
		n    int
		upTo uint64
	}{{MaxBatch - 1, 1}, {2, 2}, {MaxBatch, 3}, {1, 4}, {3*MaxBatch + 1, 5}, {11, 20}} {
		events, upTo, err := w.Next(t.Context())
		if err != nil || len(events) != want.n || upTo != want.upTo {
			t.Fatalf("got %d events up to %d, %v; want %+v", len(events), upTo, err, want)
		}
	}
	wantNext(t, w, 20)
}

// TestLastOne: a full batch that leaves a single event unread.
func TestLastOne(t *testing.T) {
	h := New(Config{}, 0)
	put(h, 1, slices.Repeat([]Event{file("/a")}, MaxBatch)...)
	w := watch(t, h, 1, Filter{Path: "/"})
	put(h, 2, file("/b"))
	if events, upTo, err := w.Next(t.Context()); len(events) != MaxBatch || upTo != 1 || err != nil {
		t.Fatal(len(events), upTo, err)
	}
	wantNext(t, w, 2, "2 /b")
}

// TestBatchBytes: long names make short batches.
func TestBatchBytes(t *testing.T) {
	h := New(Config{}, 0)
	long := file("/a/" + strings.Repeat("x/", 8000) + "x")
	for tx := uint64(1); tx <= 300; tx++ {
		put(h, tx, long)
	}
	w := watch(t, h, 1, Filter{Path: "/a", Recursive: true})
	n := 0
	for n < 300 {
		events, _, err := w.Next(t.Context())
		if err != nil || int64(len(events))*(&Kept{Event: long}).size() > MaxBatchBytes {
			t.Fatal(len(events), err)
		}
		n += len(events)
	}
}

// TestBatchesOfMany: what one batch of each watcher keeps is bounded for all of them
// together. Each has leastBatch all the same, and one of few has MaxBatchBytes.
func TestBatchesOfMany(t *testing.T) {
	const many = 2 * allBatches / MaxBatchBytes // half the room that one has alone
	h := New(Config{}, 0)
	e := file("/a/" + strings.Repeat("x", 200))
	for tx := uint64(1); tx <= 1000; tx++ {
		put(h, tx, e)
	}
	kept := func(w *Watcher) (bytes int64) {
		events, _, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			bytes += e.size()
		}
		return bytes
	}
	each := (&Kept{Event: e}).size()
	if got := kept(watch(t, h, 1, Filter{Path: "/a"})); got <= MaxBatchBytes-each || got > MaxBatchBytes {
		t.Errorf("one watcher has a batch of %d bytes; want up to %d", got, MaxBatchBytes)
	}
	ws := make([]*Watcher, many)
	for i := range ws {
		ws[i] = watch(t, h, 1, Filter{Path: "/a"})
	}
	all := int64(0)
	for _, w := range ws {
		got := kept(w)
		if got < leastBatch-each {
			t.Fatalf("a watcher has a batch of %d bytes; want %d at least", got, leastBatch)
		}
		all += got
	}
	if all > allBatches {
		t.Errorf("%d watchers have batches of %d bytes together; want %d at most", many, all, allBatches)
	}
}

// TestOverrun: who is behind by one txid is told, who is not is not.
func TestOverrun(t *testing.T) {
	h := New(Config{MaxEvents: 4}, 0)
	root := Filter{Path: "/"}
	put(h, 1, file("/a"), file("/b"))
	put(h, 2, file("/c"))
	first, second, idle := watch(t, h, 1, root), watch(t, h, 2, root), watch(t, h, 0, root)
	elsewhere := watch(t, h, 0, Filter{Path: "/other"})
	put(h, 3, file("/d"))
	if h.Oldest() != 1 {
		t.Fatal(h.Oldest())
	}
	put(h, 4, file("/e")) // drops both events of 1
	if s := h.Stats(); s.Events != 3 || s.Oldest != 2 || s.Newest != 4 || s.Watchers != 4 || s.Dropped != 0 {
		t.Fatalf("%+v", s)
	}
	_, upTo, err := poll(t, first)
	wantOld(t, err, 1, 2)
	if upTo != 0 || first.UpTo() != 0 {
		t.Error(upTo, first.UpTo())
	}
	_, _, err = poll(t, first) // for good
	wantOld(t, err, 1, 2)
	wantNext(t, second, 4, "2 /c", "3 /d", "4 /e")
	put(h, 5, file("/f"))
	put(h, 6, file("/g"))
	wantNext(t, idle, 6, "3 /d", "4 /e", "5 /f", "6 /g")
	put(h, 7, file("/h"))
	wantNext(t, second, 7, "5 /f", "6 /g", "7 /h")
	for tx := uint64(8); tx < 1000; tx++ {
		put(h, tx, file("/i"))
	}
	wantNext(t, elsewhere, 999) // nothing of its own was dropped
	_, _, err = poll(t, idle)
	wantOld(t, err, 7, 996)
	if s := h.Stats(); s.Watchers != 2 || s.Dropped != 2 || s.Events != 4 {
		t.Fatalf("%+v", s)
	}
	if s := len(h.ring.chunks); s > 2 {
		t.Errorf("%d chunks for 4 events", s)
	}
	first.Close()
	idle.Close()
	if s := h.Stats(); s.Watchers != 2 || s.Dropped != 2 {
		t.Fatalf("%+v", s)
	}
	sound(t, h)
}

// TestOverrunUnseen: events dropped before anybody saw them are told, and are a
// gap for those that have read everything.
func TestOverrunUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{MaxEvents: 2}, 0)
		w, later, before := watch(t, h, 0, Filter{Path: "/a"}), watch(t, h, 4, Filter{Path: "/a"}), watch(t, h, 3, Filter{Path: "/a"})
		ch, done := h.Wait(7)
		defer done()
		told := make(chan error)
		go func() {
			_, _, err := w.Next(t.Context())
			told <- err
		}()
		synctest.Wait()
		for tx := uint64(1); tx <= 5; tx++ {
			h.Add([]Event{file("/b")}, tx)
		}
		if h.Newest() != 0 || h.Oldest() != 4 {
			t.Fatal(h.Newest(), h.Oldest())
		}
		fresh, start, err := h.Watch(0, Filter{Path: "/b"})
		if err != nil || start != 4 {
			t.Fatal(start, err)
		}
		synctest.Wait()
		select {
		case err := <-told:
			t.Fatal("Add woke a watcher:", err)
		default:
		}
		h.Publish(1)
		wantOld(t, <-told, 1, 4)
		<-ch
		h.Publish(4)
		_, _, err = poll(t, before)
		wantOld(t, err, 3, 4)
		wantNext(t, fresh, 4, "4 /b")
		wantNext(t, later, 4)
		put(h, 6, file("/a"))
		wantNext(t, later, 6, "6 /a")
		sound(t, h)
	})
}

// TestHugeChange: one with more events than are kept is a gap as a whole.
func TestHugeChange(t *testing.T) {
	h := New(Config{MaxEvents: 3}, 0)
	w := watch(t, h, 0, Filter{Path: "/"})
	put(h, 1, file("/a"))
	wantNext(t, w, 1, "1 /a")
	h.Add(slices.Repeat([]Event{file("/a")}, 4), 2)
	h.Add([]Event{file("/b")}, 2)
	put(h, 3, file("/c"))
	_, _, err := poll(t, w)
	wantOld(t, err, 2, 3)
	wantNext(t, watch(t, h, 3, Filter{Path: "/"}), 3, "3 /c")
}

func TestMaxBytes(t *testing.T) {
	const name = 1000
	e := file("/" + strings.Repeat("x", name-1))
	one := int64(unsafe.Sizeof(Kept{})) + encodedRoom + 2*name
	h := New(Config{MaxBytes: 10*one + one/2}, 0)
	for tx := uint64(1); tx <= 100; tx++ {
		put(h, tx, e)
	}
	if s := h.Stats(); s.Events != 10 || s.Bytes != 10*one || s.Oldest != 91 {
		t.Fatalf("%+v", s)
	}
}

// TestOutOfOrder: a change that comes too late is a gap for everybody.
func TestOutOfOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong uint64
	}{{"published", 5}, {"passed", 6}, {"long ago", 1}} {
		t.Run(c.name, func(t *testing.T) {
			h := New(Config{}, 0)
			root := Filter{Path: "/"}
			put(h, 5, file("/a"))
			behind, idle := watch(t, h, 5, root), watch(t, h, 0, root)
			h.Add([]Event{file("/b")}, 7)
			h.Add([]Event{file("/c")}, c.wrong)
			put(h, 8, file("/d"))
			put(h, 9, file("/e"))
			_, _, err := poll(t, behind)
			wantOld(t, err, 5, 9)
			_, _, err = poll(t, idle)
			wantOld(t, err, 6, 9)
			wantNext(t, watch(t, h, 9, root), 9, "9 /e")
			sound(t, h)
		})
	}
}

// TestIdleNotScanned: what is not its own does not touch an idle watcher, and
// what is puts it right there.
func TestIdleNotScanned(t *testing.T) {
	h := New(Config{MaxEvents: 10}, 0)
	w := watch(t, h, 0, Filter{Path: "/a/b"})
	for tx := uint64(1); tx <= 1000; tx++ {
		put(h, tx, file("/a/c"), file("/x"))
	}
	if len(w.notice) != 0 || !w.idle || w.pos != 0 || w.UpTo() != 1000 {
		t.Fatalf("at %d, %d notices", w.pos, len(w.notice))
	}
	h.Add([]Event{file("/x")}, 1001)
	h.Add([]Event{file("/x"), file("/a/b")}, 1002)
	publish(h, 1002)
	if len(w.notice) != 1 || w.pos != 2002 || w.UpTo() != 1001 {
		t.Fatalf("at %d up to %d, %d notices", w.pos, w.UpTo(), len(w.notice))
	}
	wantNext(t, w, 1002, "1002 /a/b")
}

// TestNextWaits: only for what matches.
func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, 0)
		w := watch(t, h, 0, Filter{Inode: 3})
		got := make(chan string, 10)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(got)
			for {
				events, upTo, err := w.Next(ctx)
				if err != nil {
					got <- fmt.Sprint(upTo, err)
					return
				}
				got <- fmt.Sprint(upTo, len(events))
			}
		}()
		quiet := func() {
			t.Helper()
			synctest.Wait()
			if len(got) > 0 {
				t.Fatal("woken:", <-got)
			}
		}
		quiet()
		put(h, 1, Event{Inode: 2, Path: "/a"})
		quiet()
		h.Add([]Event{{Inode: 3, Path: "/b"}}, 2)
		quiet()
		publish(h, 2)
		if s := <-got; s != "2 1" {
			t.Fatal(s)
		}
		put(h, 3)
		quiet()
		cancel()
		if s := <-got; s != "3 context canceled" {
			t.Fatal(s)
		}
		// A context's end is not the watch's.
		put(h, 4, Event{Inode: 3, Path: "/c"})
		wantNext(t, w, 4, "4 /c")
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, 0)
		root := Filter{Path: "/"}
		w, other, unread := watch(t, h, 0, root), watch(t, h, 0, Filter{Inode: 1}), watch(t, h, 0, root)
		errs := make(chan error, 2)
		next := func(w *Watcher) {
			_, _, err := w.Next(t.Context())
			errs <- err
		}
		go next(w)
		synctest.Wait()
		w.Close()
		w.Close()
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if s := h.Stats(); s.Watchers != 2 || s.Dropped != 0 {
			t.Fatalf("%+v", s)
		}
		put(h, 1, Event{Type: Create, Inode: 2, Path: "/a"})
		go next(other)
		ch, done := h.Wait(9)
		synctest.Wait()
		h.Close()
		h.Close()
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if _, upTo, err := poll(t, unread); !errors.Is(err, ErrClosed) || upTo != 0 {
			t.Fatal(upTo, err)
		}
		<-ch
		done()
		if _, _, err := h.Watch(0, root); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		again, done := h.Wait(9)
		done()
		put(h, 2, Event{Type: Create, Inode: 9, Path: "/b"})
		select {
		case <-again:
			t.Fatal("a wait after Close ended")
		default:
		}
		unread.Close()
		if s := h.Stats(); s.Watchers != 0 || h.paths != 0 || len(h.inodes) != 0 || len(h.root.children) != 0 {
			t.Fatalf("%+v", s)
		}
		sound(t, h)
	})
}

func TestWait(t *testing.T) {
	h := New(Config{}, 0)
	open := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return false
		default:
			return true
		}
	}
	a, doneA := h.Wait(1)
	b, doneB := h.Wait(1)
	c, doneC := h.Wait(2)
	h.Add([]Event{{Type: Length, Inode: 1}}, 1)
	if !open(a) {
		t.Fatal("told of what is not visible")
	}
	h.Publish(1)
	if open(a) || open(b) || !open(c) {
		t.Fatal(open(a), open(b), open(c))
	}
	again, doneAgain := h.Wait(1)
	doneA() // of the one before
	doneB()
	if !open(again) || len(h.waits) != 2 {
		t.Fatal(open(again), len(h.waits))
	}
	shared, doneShared := h.Wait(1)
	doneAgain()
	doneAgain()
	put(h, 2, Event{Type: Length, Inode: 1})
	if open(shared) {
		t.Fatal("done twice took the other's wait")
	}
	doneShared()
	doneC()
	if len(h.waits) != 0 {
		t.Fatal(len(h.waits))
	}
}

// TestAddAllocates only chunks; Publish with idle watchers nothing.
func TestAddAllocates(t *testing.T) {
	h := New(Config{MaxEvents: 1000}, 0)
	for i := range 10 {
		watch(t, h, 0, Filter{Path: fmt.Sprintf("/a/%d", i), Recursive: i%2 == 0})
	}
	e := []Event{file("/a/b/c")}
	tx := uint64(0)
	if n := testing.AllocsPerRun(100_000, func() {
		tx++
		put(h, tx, e...)
	}); n > 0 {
		t.Error(n, "allocations an event")
	}
}

// TestEncodedOnce: whoever reads an event, by whichever filter, gets the same one,
// and it is encoded once.
func TestEncodedOnce(t *testing.T) {
	h := New(Config{}, 0)
	ws := []*Watcher{
		watch(t, h, 0, Filter{Path: "/", Recursive: true}),
		watch(t, h, 1, Filter{Path: "/a"}),
		watch(t, h, 0, Filter{Inode: 7}),
	}
	put(h, 1, file("/a/b"), file("/a/c"))
	count := 0
	encode := func(e *Event) []byte {
		count++
		return []byte(e.Path)
	}
	for _, w := range ws {
		events, _, err := w.Next(t.Context())
		if err != nil || len(events) != 2 {
			t.Fatal(len(events), err)
		}
		for _, e := range events {
			if got := string(e.Encoded(encode)); got != e.Path {
				t.Fatalf("%s is encoded as %s", e.Path, got)
			}
		}
	}
	if count != 2 {
		t.Fatalf("2 events were encoded %d times", count)
	}
}

// TestWake: watchers that are due are woken a few at a time, in order and once,
// and not those that are closed or have looked by themselves.
func TestWake(t *testing.T) {
	h := New(Config{}, 0)
	ws := make([]*Watcher, 10)
	for i := range ws {
		ws[i] = watch(t, h, 0, Filter{Path: "/"})
	}
	woken := func() (n int) {
		for _, w := range ws {
			n += len(w.notice)
		}
		return n
	}
	if h.Publish(1) {
		t.Fatal("due without an event")
	}
	h.Add([]Event{file("/a")}, 2)
	if !h.Publish(2) || woken() != 0 {
		t.Fatalf("Publish woke %d", woken())
	}
	if n := h.Wake(3, 100); n != 3 || woken() != 3 {
		t.Fatal(n, woken())
	}
	wantNext(t, ws[9], 2, "2 /a") // reads by itself, and is due again
	h.Add([]Event{file("/b")}, 3)
	if !h.Publish(3) {
		t.Fatal("not due")
	}
	wantNext(t, ws[8], 3, "2 /a", "3 /b")
	ws[7].Close()
	sound(t, h)
	before := woken()                                     // Close wakes, too
	if n := h.Wake(2, 3); n != 3 || woken() != before+3 { // a third of 9
		t.Fatal(n, woken()-before)
	}
	if n := h.Wake(100, 100); n != 2 || h.Wake(100, 100) != 0 { // ws[6] and ws[9]
		t.Fatal(n)
	}
	sound(t, h)
}

// TestReading: those count that were woken in Next, until they have looked, and not those
// that are elsewhere: sending to a client that takes nothing, say.
func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, 0)
		waits, away := watch(t, h, 0, Filter{Path: "/"}), watch(t, h, 0, Filter{Path: "/"})
		read := make(chan error)
		go func() {
			_, _, err := waits.Next(t.Context())
			read <- err
		}()
		synctest.Wait()
		h.Add([]Event{file("/a")}, 1)
		h.Publish(1)
		h.ring.mu.Lock() // it cannot look
		woken, reading := h.Wake(10, 1), h.reading
		h.ring.mu.Unlock()
		if woken != 2 || reading != 1 {
			t.Errorf("%d are woken, %d of them are reading", woken, reading)
		}
		if err := <-read; err != nil || h.Reading() != 0 {
			t.Errorf("%v, and %d are reading", err, h.Reading())
		}
		wantNext(t, away, 1, "1 /a")
		sound(t, h)
	})
}

// TestNextUntil: a watcher that waits is told when the time is over, and nothing is lost.
func TestNextUntil(t *testing.T) {
	h := New(Config{}, 0)
	w := watch(t, h, 0, Filter{Path: "/"})
	over := make(chan time.Time, 1)
	over <- time.Time{}
	if events, upTo, err := w.NextUntil(t.Context(), over); len(events) != 0 || upTo != 0 || err != nil {
		t.Fatal(events, upTo, err)
	}
	put(h, 1, file("/a"))
	over <- time.Time{}
	if events, upTo, err := w.NextUntil(t.Context(), over); len(events) != 1 || upTo != 1 || err != nil {
		t.Fatal(events, upTo, err)
	}
	sound(t, h)
}
