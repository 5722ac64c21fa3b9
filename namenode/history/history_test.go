package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

const keep = 1000 * time.Hour

func config(fs vfs.FS) Config {
	return Config{FS: fs, Dir: "/data/history", ID: [16]byte{1}, Log: slog.New(slog.DiscardHandler), Keep: keep, Bytes: 64 << 20}
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// world is a namespace that random records change, and what a naive observer notes of who
// held what.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	tree    *namespace.Tree
	records []namespace.Entry
	want    []Span
	held    map[namespace.InodeID]Span // of files; Path is the name
	granted map[namespace.LeaseID]Span
	ms      int64
	term    uint64
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), tree: namespace.New(), ms: 1_700_000_000_000, //nolint:gosec // chance by a seed
		held: map[namespace.InodeID]Span{}, granted: map[namespace.LeaseID]Span{},
	}
	w.tree.Events(true)
	w.activate()
	return w
}

func (w *world) apply(by *namespace.Owner, op namespace.Op) namespace.Result {
	w.t.Helper()
	last, _ := w.tree.Last()
	w.ms += 1 + w.rng.Int64N(1000)
	e := namespace.Entry{TxID: last + 1, Time: w.ms, By: by, Op: op}
	r, err := w.tree.Apply(e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.records = append(w.records, e)
	return r
}

func (w *world) activate() {
	w.term++
	w.apply(nil, &namespace.OpActivate{Term: w.term, NamespaceID: [16]byte{1}, User: "root", Group: "wheel", Nonce: [16]byte{byte(w.term), byte(w.rng.Uint32())}})
}

func (w *world) holder() namespace.Holder {
	n := w.rng.IntN(5)
	return namespace.Holder{User: fmt.Sprint("u", n), Client: fmt.Sprint("client-", n), Session: namespace.SessionID{byte(n), 1}, Host: "h", PID: int64(n)}
}

// ended notes the end of what is held.
func (w *world) ended(s Span, n uint32, why string, by *namespace.Owner) {
	last, ms := w.tree.Last()
	s.TxID, s.N, s.To, s.Why, s.By = last, n, ms, why, by
	w.want = append(w.want, s)
}

func (w *world) opened(id namespace.InodeID, path string, h namespace.Holder) {
	last, ms := w.tree.Last()
	w.held[id] = Span{Inode: id, Epoch: last, Dir: 1, Path: path, Holder: &h, From: ms}
}

// any is a file that is open, if there is one.
func (w *world) any() (id namespace.InodeID, s Span) {
	for _, i := range slices.Sorted(func(yield func(namespace.InodeID) bool) {
		for i := range w.held {
			if !yield(i) {
				return
			}
		}
	}) {
		if id, s = i, w.held[i]; w.rng.IntN(3) == 0 {
			break
		}
	}
	return id, s
}

// step makes a random record.
func (w *world) step() {
	by := &namespace.Owner{User: "op", Client: "cli", Host: "desk"}
	id, s := w.any()
	last, _ := w.tree.Last()
	switch n := w.rng.IntN(12); {
	case n < 4 || id == 0:
		h, name := w.holder(), fmt.Sprint("f", last)
		r := w.apply(nil, &namespace.OpCreate{Parent: 1, Name: name, Mode: 0o644, User: h.User, Group: "g", Holder: h, Token: namespace.Token{1}})
		w.opened(r.Inode, "/"+name, h)
	case n < 7:
		w.apply(nil, &namespace.OpClose{Inode: id})
		w.ended(s, 0, "closed", nil)
		delete(w.held, id)
	case n == 7:
		h := w.holder()
		w.apply(nil, &namespace.OpOpen{Inode: id, Holder: h, Token: namespace.Token{2}})
		w.ended(s, 0, "taken over", &namespace.Owner{User: h.User, Client: h.Client, Host: h.Host})
		w.opened(id, s.Path, h)
	case n == 8 && w.rng.IntN(2) == 0:
		w.apply(by, &namespace.OpRecover{Inode: id, Reason: "forced"})
		w.ended(s, 0, "forced", by)
		delete(w.held, id)
	case n == 8:
		w.apply(nil, &namespace.OpRecover{Inode: id, Reason: "hard limit"})
		w.ended(s, 0, "hard limit", nil)
		delete(w.held, id)
	case n == 9:
		w.apply(by, &namespace.OpDelete{Parent: 1, Name: s.Path[1:], Inode: id})
		w.ended(s, 0, "deleted", by)
		delete(w.held, id)
	case n == 10:
		lease := namespace.LeaseID(last)
		r := w.apply(nil, &namespace.OpGrantNamed{OpGrant: namespace.OpGrant{ID: lease, TTL: 1000, Owner: *by}, Name: fmt.Sprint("name-", last)})
		w.granted[lease] = Span{Lease: lease, Name: r.Granted.Name, Holder: &namespace.Holder{User: "op", Client: "cli", Host: "desk"}, From: w.ms}
		w.apply(nil, &namespace.OpAttach{ID: lease, Inode: id})
	default:
		if len(w.granted) == 0 {
			w.activate()
			return
		}
		for lease, g := range w.granted {
			if len(w.granted) > 1 && w.rng.IntN(2) == 0 {
				continue
			}
			open := []namespace.InodeID{} // attached and open, in the order of numbers
			for _, f := range w.tree.LeaseFiles(lease, 0, 1000) {
				if _, is := w.held[f]; is {
					open = append(open, f)
				}
			}
			w.apply(by, &namespace.OpEnd{ID: lease, Reason: "revoked"})
			for n, f := range open {
				w.ended(w.held[f], uint32(n), LeaseRevoked, by) //nolint:gosec // a few
				delete(w.held, f)
			}
			w.ended(g, uint32(len(open)), "revoked", by) //nolint:gosec // a few
			delete(w.granted, lease)
			break
		}
	}
}

// start is a start from an image of that record: the log, and the tree with all records.
func (w *world) start(l *Log, image uint64) {
	w.t.Helper()
	t := namespace.New()
	for _, e := range w.records[:image] {
		if _, err := t.Apply(e); err != nil {
			w.t.Fatal(err)
		}
	}
	t.Events(true)
	l.Begin(t)
	w.feed(l, t, w.records[image:])
	l.Loaded(t)
}

func (w *world) feed(l *Log, t *namespace.Tree, records []namespace.Entry) {
	w.t.Helper()
	for _, e := range records {
		r, err := t.Apply(e)
		if err != nil {
			w.t.Fatal(err)
		}
		l.Applied(&e, &r)
	}
}

// same compares spans by what they say.
func same(a, b Span) bool {
	if a.TxID != b.TxID || a.N != b.N {
		return false
	}
	text := func(s Span) string {
		h := namespace.Holder{}
		if s.Holder != nil {
			h = *s.Holder
		}
		by := namespace.Owner{}
		if s.By != nil {
			by = *s.By
		}
		s.Holder, s.By, s.by = nil, nil, nil
		return fmt.Sprintf("%+v %+v %+v", s, h, by)
	}
	return text(a) == text(b)
}

// all reads the whole history in pages.
func all(t testing.TB, l *Log, q Query) (spans []Span, from int64) {
	t.Helper()
	for {
		p, err := l.Find(q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Spans) > q.Limit {
			t.Fatalf("%d spans of %d", len(p.Spans), q.Limit)
		}
		spans, from = append(spans, p.Spans...), p.From
		if p.Next == (Place{}) {
			slices.Reverse(spans)
			return spans, from
		}
		if q.Before != (Place{}) && !p.Next.before(q.Before) {
			t.Fatalf("from %v on to %v", q.Before, p.Next)
		}
		q.Before = p.Next
	}
}

func anybody(*namespace.Holder) bool { return true }

// check holds the history, which is of all records up to one, against the naive one. It
// returns the number of gaps.
func (w *world) check(l *Log, upTo uint64) (gaps int) {
	w.t.Helper()
	got, from := all(w.t, l, Query{Holder: anybody, Limit: 1 + w.rng.IntN(50)})
	var lost []Span
	at := Place{}
	i := 0
	for _, s := range got {
		if s.place().before(at) {
			w.t.Fatalf("%+v is out of order", s)
		}
		at = s.place()
		if s.Gap {
			gaps++
			lost = append(lost, s)
			continue
		}
		for i < len(w.want) && !same(w.want[i], s) {
			i++
		}
		if i == len(w.want) || s.TxID > upTo {
			w.t.Fatalf("it tells %+v, holder %+v, by %+v, which is not so, or not durable (%d)", s, s.Holder, s.By, upTo)
		}
		i++
	}
	has := map[Place]bool{}
	for _, s := range got {
		has[s.place()] = true
	}
	for _, s := range w.want {
		known := !slices.ContainsFunc(lost, func(g Span) bool { return s.TxID > g.Epoch && s.TxID <= g.TxID })
		if s.TxID <= upTo && s.To > from && known != has[s.place()] {
			w.t.Fatalf("%+v: told %t, known %t; kept from %d, gaps %+v", s, has[s.place()], known, from, lost)
		}
	}
	return gaps
}

// TestModel: over starts, crashes, and files that are removed for being too many, the history
// tells what a naive observer notes, or that it does not know.
func TestModel(t *testing.T) {
	gaps, bounded := 0, 0
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		fs := crashfs.New(seed)
		cfg := config(fs)
		if seed%3 == 0 {
			cfg.Bytes = 20 << 10
		}
		l := open(t, cfg)
		w.start(l, 0)
		live, image := namespace.New(), uint64(0)
		live.Events(true)
		w.feed(&Log{}, live, w.records)
		for range 30 {
			before := len(w.records)
			for range w.rng.IntN(40) {
				w.step()
			}
			w.feed(l, live, w.records[before:])
			durable := uint64(before + w.rng.IntN(len(w.records)-before+1)) //nolint:gosec // a length
			if err := l.write(l.take(durable)); err != nil {
				t.Fatal(err)
			}
			w.check(l, durable)
			switch w.rng.IntN(4) {
			case 0: // the process dies: the next start replays from an image
				fs = fs.Crash(crashfs.Kill)
			case 1: // the machine does: what was not durable in the journal never was
				fs = fs.Crash(crashfs.Torn)
			default:
				continue
			}
			cfg.FS = fs
			if w.rng.IntN(2) == 0 {
				image += uint64(w.rng.Int64N(int64(uint64(len(w.records)) - image + 1))) //nolint:gosec // a length
			}
			l = open(t, cfg)
			w.start(l, image)
			last := uint64(len(w.records))
			if err := l.write(l.take(last)); err != nil {
				t.Fatal(err)
			}
			gaps += w.check(l, last)
			if size := l.files.size(); size > cfg.Bytes+(64<<10) {
				t.Fatalf("%d bytes of %d", size, cfg.Bytes)
			} else if len(l.files.all) > 0 && l.files.all[0].from.txid > 1 {
				bounded++
			}
		}
		l.files.close()
		if n := fs.Handles(); n > 0 {
			t.Fatalf("%d files are open", n)
		}
	}
	if gaps == 0 || bounded == 0 {
		t.Errorf("gaps %d, bounded %d: it is not tested", gaps, bounded)
	}
}

// TestCrashSweep: after a crash in any operation on the disk the history begins where it was,
// and what it tells is true.
func TestCrashSweep(t *testing.T) {
	run := func(fs *crashfs.FS) (w *world, err error) {
		w = newWorld(t, 7)
		cfg := config(fs)
		cfg.Bytes = 8 << 10
		l, err := Open(cfg)
		if err != nil {
			return w, err
		}
		tree := namespace.New()
		tree.Events(true)
		l.Begin(tree)
		fed := 0
		for range 60 {
			for range 20 {
				w.step()
			}
			w.feed(l, tree, w.records[fed:])
			fed = len(w.records)
			l.image = uint64(fed)                                //nolint:gosec // a length: it is synced
			if err := l.write(l.take(uint64(fed))); err != nil { //nolint:gosec // a length
				return w, err
			}
		}
		l.files.close()
		return w, nil
	}
	base := crashfs.New()
	if _, err := run(base); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= base.Ops(); n += 3 {
		for _, mode := range []crashfs.Mode{crashfs.Strict, crashfs.Torn, crashfs.Kill} {
			fs := crashfs.New(uint64(n)) //nolint:gosec // a count
			fs.CrashAt(n)
			w, err := run(fs)
			if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatal(err)
			}
			last := uint64(len(w.records))
			cfg := config(fs.Crash(mode))
			cfg.Bytes = 8 << 10
			l := open(t, cfg)
			w.start(l, last*3/4)
			if err := l.write(l.take(last)); err != nil {
				t.Fatal(err)
			}
			w.check(l, last)
		}
	}
	if base.Ops() < 100 {
		t.Errorf("only %d operations", base.Ops())
	}
}

// TestAnotherHistory: what a namespace that was restored since had noted is not told.
func TestAnotherHistory(t *testing.T) {
	fs := crashfs.New()
	for name, test := range map[string]struct {
		seed  uint64 // of the namespace that is there now
		steps int
	}{"another reign": {2, 400}, "it is behind": {1, 3}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			for range 100 {
				w.step()
			}
			l := open(t, config(fs))
			w.start(l, 0)
			if err := l.write(l.take(uint64(len(w.records)))); err != nil {
				t.Fatal(err)
			}
			l.files.close()
			now := newWorld(t, test.seed)
			for range test.steps {
				now.step()
			}
			l = open(t, config(fs))
			now.start(l, 1)
			if spans, _ := all(t, l, Query{Holder: anybody, Limit: 10}); len(spans) > 0 {
				t.Fatalf("it tells %+v", spans)
			}
			l.files.close()
			_ = l.files.removeAll()
		})
	}
}

// TestAwayForManyReigns: who was away for more reigns than a tree knows, as in a crash loop, tells what it
// had noted.
func TestAwayForManyReigns(t *testing.T) {
	fs := crashfs.New()
	w := newWorld(t, 1)
	for range 100 {
		w.step()
	}
	l := open(t, config(fs))
	w.start(l, 0)
	if err := l.write(l.take(uint64(len(w.records)))); err != nil {
		t.Fatal(err)
	}
	noted, _ := all(t, l, Query{Holder: anybody, Limit: 1000})
	l.files.close()
	for range tables.MaxReigns + 1 {
		w.activate()
	}
	l = open(t, config(fs))
	w.start(l, uint64(len(w.records)))
	defer l.files.close()
	if spans, _ := all(t, l, Query{Holder: anybody, Limit: 1000}); len(noted) == 0 || len(spans) < len(noted) {
		t.Errorf("%d are told, of %d that were noted", len(spans), len(noted))
	}
}

// TestRun: what ended is found once it is durable; a disk that cannot be written for a while
// delays nothing but the history.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		fs := crashfs.New()
		l := open(t, config(fs))
		tree := namespace.New()
		tree.Events(true)
		l.Begin(tree)
		l.Loaded(tree)
		durable := uint64(0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var lock = make(chan struct{}, 1)
		go func() {
			ended <- l.Run(ctx, func() uint64 {
				lock <- struct{}{}
				defer func() { <-lock }()
				return durable
			})
		}()
		set := func(txid uint64) {
			lock <- struct{}{}
			durable = txid
			<-lock
		}
		for len(w.want) < 10 {
			w.step()
		}
		w.feed(l, tree, w.records)
		last := uint64(len(w.records))
		half := w.want[4].TxID
		set(half)
		if problem, err := l.Await(t.Context(), half); problem != "" || err != nil {
			t.Fatal(problem, err)
		}
		w.check(l, half)
		if spans, _ := all(t, l, Query{Holder: anybody, Limit: 3}); len(spans) != 5 {
			t.Fatalf("%d spans", len(spans))
		}
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := l.Await(short, last); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("it is told before it is durable:", err)
		}
		fs.FailWrite("*.history", syscall.EIO)
		set(last)
		if problem, err := l.Await(t.Context(), last); problem == "" || err != nil {
			t.Fatalf("%q, %v", problem, err)
		}
		if !l.Stats().Failing {
			t.Error("it does not say that it fails")
		}
		fs.Heal()
		time.Sleep(2 * again) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if problem, err := l.Await(t.Context(), last); problem != "" || err != nil {
			t.Fatalf("%q, %v", problem, err)
		}
		if gaps := w.check(l, last); gaps > 0 {
			t.Error("there is a gap")
		}
		// Nothing ends, and records come: it says so from time to time, so that a start with
		// a later image sees no gap.
		before := len(w.records)
		for range 10 {
			w.activate()
		}
		w.feed(l, tree, w.records[before:])
		set(uint64(len(w.records)))
		time.Sleep(2 * markEvery) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if n := fs.Handles(); n > 0 {
			t.Errorf("%d files are open when nothing is written", n)
		}
		l2 := open(t, config(fs.Clone()))
		w.start(l2, uint64(len(w.records)))
		if gaps := w.check(l2, last); gaps > 0 {
			t.Error("there is a gap where nothing ended")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// TestFullMemory: what is too much to wait for the disk is a gap.
func TestFullMemory(t *testing.T) {
	w := newWorld(t, 5)
	l := open(t, config(crashfs.New()))
	l.running = true
	tree := namespace.New()
	tree.Events(true)
	l.Begin(tree)
	fed := 0
	for l.Stats().Lost < 3 {
		l.bytes += maxWaiting / 100 // as if each were large
		for range 10 {
			w.step()
		}
		w.feed(l, tree, w.records[fed:])
		fed = len(w.records)
	}
	last := uint64(len(w.records))
	if err := l.write(l.take(last)); err != nil {
		t.Fatal(err)
	}
	if gaps := w.check(l, last); gaps == 0 {
		t.Error("there is no gap")
	}
}

// TestReserve: what is kept free of the disk is not taken.
func TestReserve(t *testing.T) {
	w := newWorld(t, 6)
	for len(w.want) < 5 {
		w.step()
	}
	fs := crashfs.New()
	cfg := config(fs)
	cfg.Reserve = math.MaxInt64
	l := open(t, cfg)
	w.start(l, 0)
	if err := l.write(l.take(uint64(len(w.records)))); err == nil {
		t.Error("it is written")
	}
}

// TestKeptByAge: what ended longer ago than is kept is not told, and its files go; the rest is told, after a start, too.
func TestKeptByAge(t *testing.T) {
	w := newWorld(t, 9)
	cfg := config(crashfs.New())
	cfg.Bytes = 4 << 20       // files of 64 KiB
	cfg.Keep = 10 * time.Hour // longer than all that follows takes by the journal, but for the pause
	l := open(t, cfg)
	tree := namespace.New()
	tree.Events(true)
	l.Begin(tree)
	fed := 0
	write := func(ends int) {
		t.Helper()
		for all := len(w.want) + ends; len(w.want) < all; {
			w.step()
		}
		w.feed(l, tree, w.records[fed:])
		fed = len(w.records)
		if err := l.write(l.take(uint64(fed))); err != nil { //nolint:gosec // a length
			t.Fatal(err)
		}
	}
	files := func() int {
		t.Helper()
		names, err := cfg.FS.List(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	for files() < 3 {
		write(100)
	}
	old := len(w.want)
	if spans, _ := all(t, l, Query{Holder: anybody, Limit: 50}); len(spans) != old {
		t.Fatalf("%d ends are told before the pause, of %d", len(spans), old)
	}
	w.ms += 2 * cfg.Keep.Milliseconds()
	write(10)
	if n := files(); n != 1 {
		t.Errorf("%d files are left", n)
	}
	for _, when := range []string{"then", "after a start"} {
		spans, from := all(t, l, Query{Holder: anybody, Limit: 3})
		if want := w.ms - cfg.Keep.Milliseconds(); len(spans) != len(w.want)-old || from != want {
			t.Errorf("%s: %d ends are told, want %d; kept from %d, want %d", when, len(spans), len(w.want)-old, from, want)
		}
		if gaps := w.check(l, uint64(fed)); gaps > 0 { //nolint:gosec // a length
			t.Errorf("%s: %d gaps", when, gaps)
		}
		l.files.close()
		l = open(t, cfg)
		w.start(l, uint64(fed)) //nolint:gosec // a length
	}
}

// TestDamage: a flipped bit is a gap, not an untruth, and not an end.
func TestDamage(t *testing.T) {
	w := newWorld(t, 8)
	for range 3000 {
		w.step()
	}
	last := uint64(len(w.records))
	whole := crashfs.New()
	cfg := config(whole)
	cfg.Bytes = 8 << 20 // files of 128 KiB
	l := open(t, cfg)
	tree := namespace.New()
	tree.Events(true)
	l.Begin(tree)
	for i := 0; i < len(w.records); i += 100 {
		w.feed(l, tree, w.records[i:min(i+100, len(w.records))])
		if err := l.write(l.take(last)); err != nil {
			t.Fatal(err)
		}
	}
	l.files.close()
	names, err := whole.List(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		size, err := whole.Stat(cfg.Dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < size.Size(); at += 1 + size.Size()/20 {
			fs := whole.Clone()
			out, err := fs.OpenWrite(cfg.Dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1)
			if _, err := out.ReadAt(b, at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x10
			if _, err := out.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
			_ = out.Close()
			cfg.FS = fs
			l := open(t, cfg)
			w.start(l, last)
			if err := l.write(l.take(last)); err != nil {
				t.Fatal(err)
			}
			w.check(l, last)
		}
	}
}

// TestOff: without a history it is said that there is none.
func TestOff(t *testing.T) {
	var l *Log
	l.Begin(nil)
	l.Loaded(nil)
	l.Applied(nil, nil)
	if err := l.Run(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := l.Find(Query{}); !errors.Is(err, fserror.Unsupported) {
		t.Error(err)
	}
	if _, err := l.Await(t.Context(), 1); !errors.Is(err, fserror.Unsupported) {
		t.Error(err)
	}
}

func FuzzFrame(f *testing.F) {
	h := &namespace.Holder{User: "u", Client: "c", Host: "h", PID: 3}
	f.Add(appendFrame(nil, &frame{from: point{txid: 1, ms: 5}, to: point{txid: 9, ms: 70, term: 2}, spans: []Span{
		{TxID: 3, Inode: 7, Epoch: 2, Dir: 1, Path: "/a", Holder: h, From: 1, To: 6, Why: "closed"},
		{TxID: 3, N: 1, Lease: 4, Name: "n", Holder: h, From: 1, To: 6, Why: "expired", By: &namespace.Owner{User: "o"}},
	}})[frameHead:])
	f.Fuzz(func(_ *testing.T, payload []byte) { readFrame(payload) })
}

// BenchmarkEnd is what a close costs: under the lock, and for the goroutine that writes.
func BenchmarkEnd(b *testing.B) {
	l, err := Open(config(crashfs.New()))
	if err != nil {
		b.Fatal(err)
	}
	l.Begin(namespace.New())
	l.running = true
	h := &namespace.Holder{User: "alice", Client: "ingest-1", Host: "host-1", PID: 812}
	r := namespace.Result{
		Closed: []namespace.ClosedFile{{Inode: 7, Epoch: 1, Reason: namespace.ReasonClosed, Holder: h, Since: 1}},
		Events: []namespace.Event{{Type: namespace.EventClose, Inode: 7, Dir: 3, Path: "/data/tables/t07/part/file-000012"}},
	}
	op := &namespace.OpClose{Inode: 7}
	create := &namespace.OpCreate{}
	b.ReportAllocs()
	txid := uint64(1)
	var buf []byte
	for b.Loop() {
		l.Applied(&namespace.Entry{TxID: txid, Op: create}, &namespace.Result{})
		l.Applied(&namespace.Entry{TxID: txid + 1, Op: op}, &r)
		if txid += 2; len(l.waiting) == frameSpans {
			t := l.take(txid)
			frames, _ := split(point{}, t)
			buf = appendFrame(buf[:0], &frames[0])
			clear(t.spans)
			l.spare = t.spans[:0]
		}
	}
	b.ReportMetric(float64(len(buf))/frameSpans, "B/end")
}
