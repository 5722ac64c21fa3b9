package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// matches is what Filter says, over whole components and in plain words.
func matches(f Filter, e Event) bool {
	if f.Inode != 0 {
		return e.Inode == f.Inode
	}
	names := []string{e.Path}
	if e.Type == Rename {
		names = append(names, e.NewPath)
	}
	for _, n := range names {
		switch {
		case n == f.Path,
			n != "/" && path.Dir(n) == f.Path,
			f.Recursive && isBelow(n, f.Path),
			(e.Type == Delete || e.Type == Rename) && isBelow(f.Path, n):
			return true
		}
	}
	return false
}

func isBelow(n, dir string) bool {
	for n != "/" {
		if n = path.Dir(n); n == dir {
			return true
		}
	}
	return false
}

// The model keeps all events ever added, and for each watcher what it has read.
type model struct {
	maxEvents int
	all       []Event
	kept      int // the index in all of the first one kept
	dropped   uint64
	last      uint64 // added
	newest    uint64 // published
}

func (m *model) add(events []Event, txid uint64) {
	m.last = txid
	for _, e := range events {
		e.TxID = txid
		m.all = append(m.all, e)
	}
	for len(m.all)-m.kept > m.maxEvents {
		m.dropped = m.all[m.kept].TxID
		for m.kept < len(m.all) && m.all[m.kept].TxID == m.dropped {
			m.kept++
		}
	}
}

// expect is what a watcher that has read all up to upTo gets now.
func (m *model) expect(f Filter, upTo uint64) (batch []Event) {
	for _, e := range m.all {
		if e.TxID > upTo && e.TxID <= m.newest && matches(f, e) {
			batch = append(batch, e)
		}
	}
	return batch
}

var names = []string{"a", "ab", "b", "a.b"}

func drawPath(t *rapid.T, label string) string {
	n := rapid.SampledFrom([]int{0, 1, 1, 2, 2, 3, 4}).Draw(t, label+" depth")
	if n == 0 {
		return "/"
	}
	var b strings.Builder
	for range n {
		b.WriteString("/" + rapid.SampledFrom(names).Draw(t, label))
	}
	return b.String()
}

func drawEvent(t *rapid.T) Event {
	e := Event{
		Type:  Type(rapid.IntRange(int(Create), int(Lease)).Draw(t, "type")), //nolint:gosec // small
		Inode: rapid.Uint64Range(1, 6).Draw(t, "inode"),
		Path:  drawPath(t, "path"),
	}
	if e.Type == Rename {
		e.NewPath = drawPath(t, "new path")
	}
	return e
}

func drawFilter(t *rapid.T) Filter {
	if rapid.IntRange(0, 4).Draw(t, "by inode") == 0 {
		return Filter{Inode: rapid.Uint64Range(1, 6).Draw(t, "inode")}
	}
	return Filter{Path: drawPath(t, "watched"), Recursive: rapid.Bool().Draw(t, "recursive")}
}

// events are those of a batch.
func events(batch []*Kept) (out []Event) {
	for _, k := range batch {
		out = append(out, k.Event)
	}
	return out
}

type modelWatcher struct {
	w    *Watcher
	f    Filter
	upTo uint64 // of its start, or of the last batch
}

// TestModel takes single steps and compares everything with the model.
func TestModel(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		after := rapid.Uint64Range(0, 5).Draw(t, "after")
		m := &model{maxEvents: rapid.IntRange(1, 40).Draw(t, "max"), dropped: after, last: after, newest: after}
		h := New(Config{MaxEvents: m.maxEvents}, after)
		var ws []*modelWatcher
		var told uint64
		pick := func(t *rapid.T) *modelWatcher {
			if len(ws) == 0 {
				t.Skip("no watcher")
			}
			return rapid.SampledFrom(ws).Draw(t, "watcher")
		}
		gone := func(x *modelWatcher) {
			ws = slices.DeleteFunc(ws, func(y *modelWatcher) bool { return x == y })
		}
		// next reads one batch without waiting. In the model a watcher needs what
		// it has not read, from UpTo on, which only the hub moves while there
		// is nothing to read: but never past something that it should return.
		next := func(t *rapid.T, x *modelWatcher) {
			at := x.w.UpTo()
			if at < x.upTo {
				t.Fatalf("UpTo went back from %d to %d", x.upTo, at)
			}
			if lost := m.expect(x.f, x.upTo); len(lost) > 0 && lost[0].TxID <= at {
				t.Fatalf("UpTo %d is past %+v, which was not returned", at, lost[0])
			}
			want := m.expect(x.f, at)
			batch, upTo, err := x.w.Next(ended)
			got := events(batch)
			var old *TooOldError
			switch {
			case m.dropped > at:
				// Publish may have told it before, when less was dropped.
				if !errors.As(err, &old) || old.From != at+1 || old.Oldest <= old.From || old.Oldest > m.dropped+1 || upTo != at {
					t.Fatalf("dropped up to %d, watcher at %d: got %v at %d", m.dropped, at, err, upTo)
				}
				told++
				gone(x)
			case len(want) == 0:
				if !errors.Is(err, context.Canceled) || upTo < at || upTo != max(x.upTo, m.newest) {
					t.Fatalf("nothing to read at %d, newest %d: got %v up to %d, %v", at, m.newest, got, upTo, err)
				}
				x.upTo = upTo
			default:
				if err != nil || !slices.Equal(got, want) || upTo != m.newest {
					t.Fatalf("at %d: got %v up to %d, %v; want %v up to %d", at, got, upTo, err, want, m.newest)
				}
				x.upTo = upTo
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				txid := m.last + rapid.Uint64Range(1, 3).Draw(t, "step")
				events := rapid.SliceOfN(rapid.Custom(drawEvent), 0, 4).Draw(t, "events")
				m.add(events, txid)
				h.Add(events, txid)
			},
			"publish": func(t *rapid.T) {
				m.newest = rapid.Uint64Range(m.newest, m.last).Draw(t, "durable")
				h.Publish(m.newest)
			},
			"wake": func(t *rapid.T) {
				h.Wake(rapid.IntRange(1, 3).Draw(t, "most"), 500)
			},
			"watch": func(t *rapid.T) {
				from := rapid.Uint64Range(0, m.last+3).Draw(t, "from")
				f := drawFilter(t)
				w, start, err := h.Watch(from, f)
				want := from
				if from == 0 {
					want = max(m.newest, m.dropped) + 1
				}
				var old *TooOldError
				switch {
				case want <= m.dropped:
					if !errors.As(err, &old) || *old != (TooOldError{From: from, Oldest: m.dropped + 1}) {
						t.Fatal(err)
					}
				case err != nil || start != want:
					t.Fatalf("start %d, %v; want %d", start, err, want)
				default:
					ws = append(ws, &modelWatcher{w: w, f: f, upTo: start - 1})
				}
			},
			"next":  func(t *rapid.T) { next(t, pick(t)) },
			"next2": func(t *rapid.T) { next(t, pick(t)) },
			"resume": func(t *rapid.T) {
				x := pick(t)
				at := x.w.UpTo()
				x.w.Close()
				gone(x)
				if w, _, err := h.Watch(at+1, x.f); err == nil {
					ws = append(ws, &modelWatcher{w: w, f: x.f, upTo: at})
				} else if at >= m.dropped {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				s := h.Stats()
				if s.Events != len(m.all)-m.kept || s.Oldest != m.dropped+1 || s.Newest != m.newest || s.Watchers > len(ws) || s.Dropped < told {
					t.Fatalf("%+v; told %d, model %d events, %d dropped, %d newest", s, told, len(m.all)-m.kept, m.dropped, m.newest)
				}
				sound(t, h)
			},
		})
	})
}

// sound checks what must hold of a hub between calls.
func sound(t interface{ Fatalf(string, ...any) }, h *Hub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	paths, users := 0, map[*node]int{}
	due := map[*Watcher]bool{}
	for _, w := range h.queue {
		if due[w] || !w.due {
			t.Fatalf("watcher of %+v is in the queue twice, or not due", w.filter)
		}
		due[w] = true
	}
	var bytes int64
	for seq := h.ring.first; seq < h.ring.end; seq++ {
		bytes += h.ring.at(seq).size()
	}
	if bytes != h.ring.bytes {
		t.Fatalf("ring counts %d bytes, has %d", h.ring.bytes, bytes)
	}
	if bytes > h.ring.maxBytes || h.ring.end-h.ring.first > h.ring.maxEvents {
		t.Fatalf("ring over its limits: %d events, %d bytes", h.ring.end-h.ring.first, bytes)
	}
	for w := range h.watchers {
		if w.node != nil {
			paths++
			users[w.node]++
		}
		if w.idle != (w.slot < len(w.at.idle) && w.at.idle[w.slot] == w) {
			t.Fatalf("watcher of %+v is idle: %v, but the index says otherwise", w.filter, w.idle)
		}
		if w.due != due[w] {
			t.Fatalf("watcher of %+v is due: %v, but the queue says otherwise", w.filter, w.due)
		}
		if !w.idle && w.pos >= h.seen {
			t.Fatalf("watcher of %+v is at %d of %d but not idle", w.filter, w.pos, h.seen)
		}
	}
	if paths != h.paths {
		t.Fatalf("%d watchers of paths, counted %d", paths, h.paths)
	}
	var walk func(n *node)
	walk = func(n *node) {
		if n.users != users[n] {
			t.Fatalf("node %q has %d users, counted %d", n.name, users[n], n.users)
		}
		if n.parent != nil && n.users == 0 && len(n.children) == 0 {
			t.Fatalf("node %q is of no use", n.name)
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(&h.root)
}

// TestMatchIndex: the index wakes exactly whom the filter matches.
func TestMatchIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, f := drawEvent(t), drawFilter(t)
		want := matches(f, e)
		if f.match(&e) != want {
			t.Fatalf("%+v of %+v: match says %v", f, e, !want)
		}
		h := New(Config{}, 0)
		w, _, err := h.Watch(0, f)
		if err != nil {
			t.Fatal(err)
		}
		h.Add([]Event{e}, 1)
		h.Publish(1)
		if w.idle == want {
			t.Fatalf("%+v of %+v: index says %v", f, e, !want)
		}
	})
}

// TestConcurrent has fifty watchers read while events are added and published.
// Each one ends its watch now and then and resumes it.
func TestConcurrent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { concurrent(t, 1<<20) })
}

// TestConcurrentOverrun: the same with a ring that is much too small. Who is
// told begins again, and lacks exactly what it was told.
func TestConcurrentOverrun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { concurrent(t, rapid.IntRange(1, 300).Draw(t, "max")) })
}

type reader struct {
	f     Filter
	from  uint64
	seed  uint64
	got   []Event
	gaps  [][2]uint64 // txids from ≤ t < to that it was told it lacks
	first uint64
}

func concurrent(t *rapid.T, maxEvents int) {
	const watchers = 50
	pool := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 30).Draw(t, "events")
	txs := rapid.IntRange(1, 1500).Draw(t, "txs")
	seed := rapid.Uint64().Draw(t, "seed")
	readers := make([]*reader, watchers)
	h := New(Config{MaxEvents: maxEvents}, 0)
	for i := range readers {
		readers[i] = &reader{f: drawFilter(t), seed: seed + uint64(i)} //nolint:gosec // small
		if i%3 == 0 {
			readers[i].from = rapid.Uint64Range(0, uint64(txs)).Draw(t, "from") //nolint:gosec // small
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	var all []Event
	changes := make([][]Event, txs+1)
	for tx := 1; tx <= txs; tx++ {
		for range rnd.IntN(4) {
			e := pool[rnd.IntN(len(pool))]
			e.Length = int64(len(all))
			changes[tx] = append(changes[tx], e)
			e.TxID = uint64(tx) //nolint:gosec // small
			all = append(all, e)
		}
	}

	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // rapid's own T has one that ends later
	defer cancel()
	var reading, writing sync.WaitGroup
	errs := make(chan error, watchers)
	for _, r := range readers {
		w, start, err := h.Watch(r.from, r.f)
		if err != nil {
			t.Fatal(err)
		}
		r.first = start
		reading.Go(func() { errs <- r.run(ctx, h, w, start) })
	}
	added := make(chan uint64, 8)
	writing.Go(func() {
		defer close(added)
		for tx := 1; tx <= txs; tx++ {
			h.Add(changes[tx], uint64(tx)) //nolint:gosec // small
			if rnd.IntN(3) == 0 || tx == txs {
				added <- uint64(tx) //nolint:gosec // small
			}
		}
	})
	for tx := range added {
		h.Publish(tx)
		for woken := 1; woken > 0; {
			woken = h.Wake(10, watchers)
		}
	}
	writing.Wait()
	cancel()
	reading.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range readers {
		want := slices.DeleteFunc(slices.Clone(all), func(e Event) bool {
			return e.TxID < r.first || !matches(r.f, e) ||
				slices.ContainsFunc(r.gaps, func(g [2]uint64) bool { return g[0] <= e.TxID && e.TxID < g[1] })
		})
		if !slices.Equal(r.got, want) {
			t.Fatalf("watch of %+v from %d, gaps %v: got %d events, want %d", r.f, r.first, r.gaps, len(r.got), len(want))
		}
		if maxEvents >= len(all) && len(r.gaps) > 0 {
			t.Fatalf("gaps %v in a ring with room", r.gaps)
		}
	}
	sound(t, h)
	if s := h.Stats(); s.Watchers != 0 {
		t.Fatalf("%+v", s)
	}
}

// run reads until ctx has ended and nothing is left.
func (r *reader) run(ctx context.Context, h *Hub, w *Watcher, start uint64) error {
	rnd := rand.New(rand.NewPCG(r.seed, 2))
	upTo := start - 1
	for {
		batch, to, err := w.Next(ctx)
		var old *TooOldError
		switch {
		case errors.As(err, &old):
			if old.From != to+1 || to < upTo || old.Oldest <= old.From {
				return fmt.Errorf("read up to %d, then %d: %w", upTo, to, old)
			}
			from := old.From
			for err != nil { // more may be dropped meanwhile
				start = old.Oldest
				if w, _, err = h.Watch(start, r.f); err != nil && !errors.As(err, &old) {
					return err
				}
			}
			r.gaps = append(r.gaps, [2]uint64{from, start})
			upTo = start - 1
			continue
		case errors.Is(err, context.Canceled):
			if newest := h.Newest(); w.UpTo() != max(newest, start-1) {
				return fmt.Errorf("read all up to %d, not %d", w.UpTo(), newest)
			}
			w.Close()
			return nil
		case err != nil:
			return err
		case to < upTo:
			return fmt.Errorf("went back from %d to %d", upTo, to)
		}
		for _, e := range batch {
			if e.TxID <= upTo || e.TxID > to {
				return fmt.Errorf("batch after %d up to %d has %+v", upTo, to, e)
			}
		}
		r.got = append(r.got, events(batch)...)
		upTo = to
		if rnd.IntN(20) == 0 {
			w.Close()
			if w, _, err = h.Watch(upTo+1, r.f); errors.As(err, &old) {
				r.gaps = append(r.gaps, [2]uint64{upTo + 1, old.Oldest})
				for err != nil {
					start = old.Oldest
					if w, _, err = h.Watch(start, r.f); err != nil && !errors.As(err, &old) {
						return err
					}
				}
				r.gaps[len(r.gaps)-1][1] = start
				upTo = start - 1
			} else if err != nil {
				return err
			} else {
				start = upTo + 1
			}
		}
	}
}
