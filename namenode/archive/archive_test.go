package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/record"
)

// rig is an archive, and the history that it archives.
type rig struct {
	t   *testing.T
	clk clock.Fake
	*flaky
	*history
	*Archive
	term     uint64
	conflict error         // of two copies that use the store
	slow     time.Duration // what a base takes
	beside   bool          // Config.Beside, and what it logs
	log      bytes.Buffer
}

// flaky is a store that can be away.
type flaky struct {
	blockstore.Objects
	away, lose bool
	noBases    bool // it takes all else
	puts       int
	refused    string // what cannot be read
}

func (f *flaky) GetNamed(ctx context.Context, name string, off, length int64) (io.ReadCloser, error) {
	if name == f.refused {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "refused")
	}
	return f.Objects.GetNamed(ctx, name, off, length)
}

func (f *flaky) PutNamed(ctx context.Context, name string, body io.ReaderAt, length int64, crc uint32) error {
	f.puts++
	if f.away || f.noBases && strings.HasPrefix(name, BasePrefix) {
		return fserror.New(fserror.Unavailable, "", "", "away")
	}
	err := f.Objects.PutNamed(ctx, name, body, length, crc)
	if err == nil && f.lose {
		f.lose, err = false, fserror.New(fserror.Unavailable, "", "", "the answer is lost")
	}
	return err
}

// history is a journal, and the tree that it makes.
type history struct {
	journal.Journal
	clk  *clock.Fake
	late time.Duration // how far the time of records is behind that of day
	recs []journal.Record
	gone int // records that are purged
	tree *namespace.Tree
}

func (h *history) Durable() uint64 { return uint64(len(h.recs)) } //nolint:gosec // a count

func (h *history) Replay(_ context.Context, from uint64, fn func(journal.Record) error) (uint64, error) {
	if from <= uint64(h.gone) { //nolint:gosec // a count
		return 0, journal.Purged(from, uint64(h.gone)+1) //nolint:gosec // a count
	}
	for _, r := range h.recs[from-1:] {
		if err := fn(r); err != nil {
			return 0, err
		}
	}
	return h.Durable(), nil
}

func (h *history) now() int64 { return h.clk.Wall().Add(-h.late).UnixMilli() }

// add adds a record.
func (h *history) add(t *testing.T, op namespace.Op) {
	t.Helper()
	r := journal.Record{TxID: h.Durable() + 1, Time: h.now()}
	r.Type, r.Body = record.Encode(nil, namespace.CallID{}, op)
	if _, _, err := images.Apply(h.tree, r); err != nil {
		t.Fatal(err)
	}
	h.recs = append(h.recs, r)
}

// grow adds records; what tells this history from others is in them.
func (h *history) grow(t *testing.T, n int, what byte) {
	t.Helper()
	for range n {
		h.add(t, &namespace.OpMkdir{Parent: namespace.RootID, Names: []string{fmt.Sprintf("%d-%d", what, h.Durable())}, Mode: 0o755, User: "root", Group: "root"})
	}
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, flaky: &flaky{Objects: openStore(t)}}
	r.clk.ShiftWall(50 * 365 * 24 * time.Hour)
	r.history = &history{clk: &r.clk, tree: namespace.New()}
	r.reign(1)
	return r
}

func (r *rig) folder() images.Folder {
	return images.Folder{FS: vfs.OS(), Dir: r.t.TempDir(), Log: slog.New(slog.DiscardHandler)}
}

// activate adds the record with which a reign begins.
func (r *rig) activate(term uint64) {
	r.t.Helper()
	r.add(r.t, &namespace.OpActivate{Term: term, NamespaceID: testID, User: "root", Group: "root", Nonce: [16]byte{byte(term)}})
}

// reign begins one, with a record.
func (r *rig) reign(term uint64) {
	r.t.Helper()
	r.activate(term)
	h := r.history
	r.term = term
	r.Archive = New(Config{
		Clock: &r.clk, Log: slog.New(slog.NewTextHandler(&r.log, nil)), Objects: r.flaky, Beside: r.beside, ID: testID, Keep: func() time.Duration { return 8 * time.Hour },
		Local: r.folder(),
		Snapshot: func(context.Context) (*namespace.Tree, error) {
			defer r.clk.Advance(r.slow)
			return h.tree.Clone(), nil
		}, Now: h.now,
		Check:  func(context.Context) error { return nil },
		Term:   func() (uint64, error) { return r.term, r.conflict },
		Remove: func(ctx context.Context, remove func(context.Context) error) error { return remove(ctx) },
	})
	r.begin(h)
	if err := r.find(r.t.Context(), term); err != nil {
		r.t.Fatal(err)
	}
}

// all archives all there is.
func (r *rig) all() {
	r.t.Helper()
	for more, err := true, error(nil); more; {
		if more, err = r.turn(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// at is the tree of this history at a moment.
func (r *rig) at(txid uint64) *namespace.Tree {
	r.t.Helper()
	t := namespace.New()
	for _, rec := range r.recs[:txid] {
		if _, _, err := images.Apply(t, rec); err != nil {
			r.t.Fatal(err)
		}
	}
	return t
}

// has makes sure that the archive has these moments as they are in this history.
func (r *rig) has(txids ...uint64) {
	r.t.Helper()
	for _, txid := range txids {
		want := r.at(txid)
		got, err := r.catalog().Tree(r.t.Context(), At{TxID: txid})
		if err != nil {
			r.t.Errorf("moment %d: %v", txid, err)
			continue
		}
		var a, b bytes.Buffer
		if err := errors.Join(got.WriteImage(&a), want.WriteImage(&b)); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			r.t.Errorf("moment %d is another one (%v)", txid, err)
		}
	}
}

// hasNot makes sure that the archive says why it does not have these moments.
func (r *rig) hasNot(why string, txids ...uint64) {
	r.t.Helper()
	for _, txid := range txids {
		if _, err := r.catalog().Tree(r.t.Context(), At{TxID: txid}); !errors.Is(err, fserror.NotFound) || !strings.Contains(err.Error(), why) {
			r.t.Errorf("moment %d: %v", txid, err)
		}
	}
}

func (r *rig) catalog() *Catalog {
	r.t.Helper()
	c, err := Open(r.t.Context(), r.flaky, testID, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// TestStoreAway: while the store takes nothing the lag grows, and the journal is asked to
// keep what is missing; then all is archived. An answer that was lost does no harm.
func TestStoreAway(t *testing.T) {
	r := newRig(t)
	r.grow(t, 4, 1)
	r.all()
	if st := r.Stats(); st.TxID != 5 || st.Lag != 0 || r.Needs() != 5 {
		t.Errorf("%+v", st)
	}
	r.away = true
	r.clk.Advance(time.Second)
	r.grow(t, 5, 1)
	r.clk.Advance(time.Minute)
	if _, err := r.step(t.Context()); !errors.Is(err, fserror.Unavailable) {
		t.Fatal(err)
	}
	if st := r.Stats(); st.TxID != 5 || st.Records != 5 || st.Lag != time.Minute+time.Second || r.Needs() != 5 {
		t.Errorf("%+v", st)
	}
	r.away, r.lose = false, true
	if _, err := r.step(t.Context()); err == nil {
		t.Fatal("no answer was lost")
	}
	r.grow(t, 2, 1) // what is tried again has more
	r.all()
	if st := r.Stats(); st.TxID != 12 || st.Lag != 0 || st.Holes != 0 {
		t.Errorf("%+v", st)
	}
	r.has(1, 2, 5, 6, 10, 11, 12)
	r.hasNot("is not archived", 13)
	// The same object again, of a try whose answer was lost.
	s, object := sealed(9, records...)
	for range 2 {
		if err := r.put(t.Context(), s, object); err != nil {
			t.Error(err)
		}
	}
	if err := r.put(t.Context(), s, append(object, 0)); !errors.Is(err, fserror.Exists) {
		t.Errorf("another object of that name: %v", err)
	}
}

// TestLagOfAReign: a reign that has not archived anything yet tells no lag that is shorter than the
// age of what is not archived, although the journal's time is behind, or the first base takes long.
func TestLagOfAReign(t *testing.T) {
	r := newRig(t)
	r.slow = time.Minute // of a base
	r.reign(2)
	if st := r.Stats(); st.TxID != 0 || st.Records != 2 || st.Lag != r.slow {
		t.Errorf("behind a base that took a minute: %+v", st)
	}
	r.all()
	r.clk.Advance(time.Second)
	r.grow(t, 1, 1)
	r.late = 3 * time.Second
	r.clk.Advance(3 * time.Second)
	r.reign(3)
	if st := r.Stats(); st.TxID != 2 || st.Records != 2 || st.Lag != time.Minute+4*time.Second { // the second reign's own record is of before the base
		t.Errorf("while the journal's time is 3 s behind: %+v", st)
	}
}

// TestLagBeforeItIsKnown: until a reign has found out where the archive ends it promises nothing: the archive
// has a problem, and the lag in the metrics is beyond what any alarm waits for.
func TestLagBeforeItIsKnown(t *testing.T) {
	r := newRig(t)
	metric := func() (lag float64) {
		r.Measure(func(name string, value float64, _ string) {
			if name == "archive_lag_seconds" {
				lag = value
			}
		})
		return lag
	}
	r.all()
	r.grow(t, 1, 1)
	r.clk.Advance(10 * time.Minute)
	if lag := metric(); lag != 600 {
		t.Errorf("the lag is %v s", lag)
	}
	r.begin(r.history)
	r.clk.Advance(time.Second)
	if st := r.Stats(); st.Known || st.TxID != 0 || !strings.Contains(st.Problem, "not known yet") || !math.IsInf(metric(), 1) {
		t.Errorf("before it is known: %+v, %v s", st, metric())
	}
	if err := r.find(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); !st.Known || st.TxID != 1 || st.Problem != "" || metric() != 601 {
		t.Errorf("once it is known: %+v, %v s", st, metric())
	}
}

// TestHole: what is purged before it was archived is a hole, which a base closes at once,
// while the namenode runs as well as over a restart.
func TestHole(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "over a restart": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.grow(t, 4, 1)
			r.all()
			r.grow(t, 9, 1)
			r.gone = 12
			if restart {
				r.reign(100)
			} else {
				r.grow(t, 1, 1)
			}
			r.all()
			r.grow(t, 5, 1)
			r.all()
			if st := r.Stats(); st.TxID != 20 || st.Holes != 1 {
				t.Errorf("%+v", st)
			}
			r.has(1, 5, 15, 16, 20)
			r.hasNot("hole", 6, 10, 14)
		})
	}
}

// TestOtherHistory: a namenode whose journal is an older copy archives its own history from
// where the two differ, whatever the other one still puts.
func TestOtherHistory(t *testing.T) {
	r := newRig(t)
	r.grow(t, 9, 1)
	r.all()
	other := *r.history
	other.tree, other.recs = r.at(10), append([]journal.Record(nil), r.recs...)
	first := r.Archive
	r.grow(t, 10, 1)
	r.all() // to 20
	r.clk.Advance(2 * time.Hour)
	r.grow(t, 2, 1)
	r.all() // to 22, and a base
	r.history = &other
	r.grow(t, 4, 2)
	r.reign(50)
	if st := r.Stats(); st.TxID != 10 {
		t.Fatalf("the histories agree up to 10: %+v", st)
	}
	r.all() // to 15
	if _, err := first.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.has(1, 9, 10, 11, 15)
	r.hasNot("is not archived", 16, 20, 22)
	r.grow(t, 15, 2)
	r.all()
	r.has(20, 22, 30)
	for range 20 { // until nothing of the first history is needed
		r.clk.Advance(time.Hour)
		r.grow(t, 1, 2)
		r.all()
	}
	for _, b := range r.catalog().stored {
		if b.TxID == 22 {
			t.Error("a base of the other history is left")
		}
	}
}

// TestPurgedBeyondTheFork: a history that may archive only when its journal does not reach back
// any more to where another one parts from it does not continue that one's records.
func TestPurgedBeyondTheFork(t *testing.T) {
	for name, c := range map[string]struct {
		others int  // records of the other one
		pruned bool // those before its last object
	}{
		"the other one is shorter":        {5, false},
		"the other one is longer":         {25, false},
		"one object of the other is left": {5, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.clk.Advance(2 * time.Hour)
			r.grow(t, 9, 1)
			r.all() // to 10, and a base
			r.grow(t, 5, 1)
			mine := *r.history // to 15
			mine.tree, mine.recs = r.at(15), append([]journal.Record(nil), r.recs...)
			r.grow(t, c.others, 1)
			r.all() // of the other one
			if c.pruned {
				if err := r.DeleteNamed(t.Context(), r.catalog().all[0].Name()); err != nil {
					t.Fatal(err)
				}
			}
			other := r.history
			r.history = &mine
			r.grow(t, 9, 2)
			r.gone = 17
			r.reign(50) // 25, with a base
			r.all()
			r.grow(t, 5, 2)
			r.all()
			if st := r.Stats(); st.TxID != 30 || st.Holes != 1 {
				t.Errorf("%+v", st)
			}
			r.has(25, 26, 29, 30)
			r.newestIs(30)
			r.history = other
			r.has(10, 11, 15, 16, 20)
			if c.others < 9 {
				r.hasNot("hole", 21, 24)
			}
			r.damage(r.catalog().bases[0].Name)
			r.hasNot("hole", 25, 26, 30)
		})
	}
}

// TestOthersAreOneLine: after a way back, the log has one line of all that the other history
// has archived, however much that is.
func TestOthersAreOneLine(t *testing.T) {
	r := newRig(t)
	r.grow(t, 9, 1)
	r.all()
	other := *r.history
	other.tree, other.recs = r.at(10), append([]journal.Record(nil), r.recs...)
	const objects = 100
	for range objects {
		r.grow(t, 1, 1)
		r.all()
	}
	r.history = &other
	r.grow(t, objects+10, 2)
	r.log.Reset()
	r.reign(50)
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	if n := strings.Count(r.log.String(), "another history"); n != 1 || !strings.Contains(lines[0], fmt.Sprintf("objects=%d", objects)) {
		t.Errorf("%d lines are of another history, of %d:\n%s", n, len(lines), lines[0])
	}
}

// TestBeside: a namenode whose archive is lost with its journal says so, once.
func TestBeside(t *testing.T) {
	for _, beside := range []bool{true, false} {
		r := newRig(t)
		r.beside = beside
		r.reign(2)
		r.Archive.term = 0 // as Run begins
		for range 2 {
			r.grow(t, 1, 1)
			r.all()
			r.Archive.term = 0
		}
		if told := strings.Count(r.log.String(), "the archive is on the same disk as the journal"); told > 1 || told == 1 != beside {
			t.Errorf("beside %t: it is told %d times", beside, told)
		}
	}
}

// TestBaseDecides: where a history continued without an archive, its image tells: nothing that
// another history archived is put behind it.
func TestBaseDecides(t *testing.T) {
	r := newRig(t)
	r.grow(t, 9, 1)
	r.all()
	other := *r.history
	other.tree, other.recs = r.at(10), append([]journal.Record(nil), r.recs...)
	r.grow(t, 10, 1)
	r.all() // to 20
	r.clk.Advance(2 * time.Hour)
	r.grow(t, 2, 1)
	r.all() // to 22, and a base
	r.history = &other
	r.grow(t, 4, 2)
	r.activate(50) // 15
	if _, _, err := (&images.Objects{Objects: r.flaky, Local: r.folder()}).Write(t.Context(), r.tree); err != nil {
		t.Fatal(err)
	}
	r.has(1, 10, 15)
	r.hasNot("is not archived", 16, 20, 22)
	r.newestIs(15)
}

// TestDamagedInTheStore: what cannot be read any more costs the moments behind it, up to the next base,
// and nothing else; a base that is damaged costs none.
func TestDamagedInTheStore(t *testing.T) {
	r := newRig(t)
	for range 3 { // objects up to 5, 9 and 13
		r.grow(t, 4, 1)
		r.all()
	}
	middle := r.catalog().spans[1].Name()
	r.damage(middle)
	r.has(1, 5)
	for _, txid := range []uint64{6, 9, 13} {
		if _, err := r.catalog().Tree(t.Context(), At{TxID: txid}); !errors.Is(err, fserror.Damaged) || !strings.Contains(err.Error(), middle) || !strings.Contains(err.Error(), "before it is record 5 of") {
			t.Errorf("moment %d: %v", txid, err)
		}
	}
	r.newestIs(5)
	if err := r.DeleteNamed(t.Context(), middle); err != nil {
		t.Fatal(err)
	}
	r.has(1, 5)
	r.hasNot("hole", 6, 9, 13)
	r.newestIs(5)

	r.clk.Advance(2 * time.Hour)
	r.grow(t, 2, 1)
	r.all() // 15, and a base
	r.clk.Advance(2 * time.Hour)
	r.grow(t, 2, 1)
	r.all() // 17, and a base
	r.grow(t, 2, 1)
	r.all() // 19
	r.damage(r.catalog().stored[0].Name)
	r.has(15, 16, 17, 18, 19)
	r.newestIs(19)

	// What is damaged at the end is archived again after a restart.
	spans := r.catalog().spans
	r.damage(spans[len(spans)-1].Name())
	r.newestIs(17)
	r.reign(2)
	r.all()
	r.has(15, 17, 18, 19, 20)
}

// TestNewerBase: a base that a newer release wrote is not passed over for an older one, whose
// moments would be taken for the newest.
func TestNewerBase(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.grow(t, 4, 1)
		r.all()
		r.clk.Advance(2 * time.Hour)
	}
	r.grow(t, 1, 1)
	r.all()
	var newer bytes.Buffer
	if err := codec.NewImageWriter(&newer, 99).Finish(); err != nil {
		t.Fatal(err)
	}
	r.replace(r.catalog().bases[0].Name, newer.Bytes())
	if _, err := r.catalog().Tree(t.Context(), At{}); images.Newer(err) == nil {
		t.Errorf("the newest moment: %v", err)
	}
}

// damage puts something else in the place of an object.
func (r *rig) damage(name string) { r.t.Helper(); r.replace(name, []byte("something else")) }

func (r *rig) replace(name string, with []byte) {
	r.t.Helper()
	if err := errors.Join(r.DeleteNamed(r.t.Context(), name), blockstore.PutBytes(r.t.Context(), r.flaky, name, with)); err != nil {
		r.t.Fatal(err)
	}
}

// newestIs makes sure that the newest tree that can be had is that one of this history.
func (r *rig) newestIs(txid uint64) {
	r.t.Helper()
	t, err := r.catalog().Tree(r.t.Context(), At{})
	if err != nil {
		r.t.Error(err)
		return
	}
	var a, b bytes.Buffer
	last, _ := t.Last()
	if err := errors.Join(t.WriteImage(&a), r.at(txid).WriteImage(&b)); err != nil || last != txid || !bytes.Equal(a.Bytes(), b.Bytes()) {
		r.t.Errorf("the newest is %d, not %d (%v)", last, txid, err)
	}
}

// TestBaseFails: while the store takes no base, none is written each time, and a hole
// is counted once.
func TestBaseFails(t *testing.T) {
	r := newRig(t)
	r.grow(t, 9, 1)
	r.gone, r.away = 5, true
	before := r.puts
	step := func(tries int) {
		t.Helper()
		if _, err := r.step(t.Context()); !errors.Is(err, fserror.Unavailable) || r.puts-before != tries {
			t.Errorf("%v after %d tries, not %d", err, r.puts-before, tries)
		}
	}
	step(1)
	step(1)
	r.clk.Advance(basePause)
	step(2)
	step(2)
	r.away = false
	r.clk.Advance(basePause)
	r.all()
	r.has(10)
	if st := r.Stats(); st.Holes != 1 || st.TxID != 10 {
		t.Errorf("%+v", st)
	}
}

// TestClockAhead: a clock that is ahead when a namenode starts does not age what is kept, in
// that reign and in later ones.
func TestClockAhead(t *testing.T) {
	r := newRig(t)
	for range 8 {
		r.clk.Advance(time.Hour)
		r.grow(t, 2, 1)
		r.all()
	}
	r.clk.ShiftWall(365 * 24 * time.Hour)
	r.reign(2)
	for range 3 {
		r.clk.Advance(time.Hour)
		r.grow(t, 2, 1)
		r.all()
	}
	for range 12 { // short reigns, each with a clock of its own
		r.clk.ShiftWall(30 * 24 * time.Hour)
		r.reign(uint64(3 + len(r.recs)))
		r.pruneAt = 0
		r.grow(t, 1, 1)
		r.all()
	}
	for txid := uint64(8); txid <= r.Durable(); txid++ {
		r.has(txid)
	}
}

// TestGivenToThisCopy: while two copies of the namespace use the store nothing is archived, and
// it is told why. The copy to which the store is given overrules what the other one has
// archived, though that had the higher term.
func TestGivenToThisCopy(t *testing.T) {
	r := newRig(t)
	r.grow(t, 9, 1)
	r.all()
	mine, archive := r.history, r.Archive
	other := *r.history
	other.tree, other.recs = r.at(10), append([]journal.Record(nil), r.recs...)
	r.history = &other
	r.grow(t, 4, 2)
	r.reign(50)
	r.clk.Advance(2 * time.Hour)
	r.grow(t, 3, 2)
	r.all() // with a base

	r.history, r.Archive, r.term = mine, archive, 1
	r.grow(t, 5, 1)
	r.all() // 15, in vain
	r.conflict = fserror.New(fserror.Exists, "", "", "two copies")
	r.grow(t, 5, 1)
	if _, err := r.turn(t.Context()); !errors.Is(err, r.conflict) {
		t.Errorf("%v", err)
	}
	if st := r.Stats(); st.Records != 5 {
		t.Errorf("archived in a conflict: %+v", st)
	}
	r.conflict, r.term = nil, 60
	r.all()
	r.has(1, 10, 11, 15, 16, 20)
	r.newestIs(20)

	r.clk.Advance(2 * time.Hour)
	r.grow(t, 3, 1)
	r.all() // with a base, in that term, too
	if c := r.catalog(); c.bases[0].TxID != 23 || c.bases[0].term != 60 {
		t.Errorf("the newest base that counts is %+v", c.bases[0])
	}
	r.grow(t, 5, 1)
	r.gone = 27
	r.all() // behind a hole there is nothing but a base
	r.has(23, 28)
}

// TestHoleAtTheEnd: a moment in a hole is refused by time as by number, if there is nothing
// but a base behind it.
func TestHoleAtTheEnd(t *testing.T) {
	r := newRig(t)
	r.grow(t, 4, 1)
	r.all()
	r.clk.Advance(time.Minute)
	r.grow(t, 4, 1)
	inside := r.clk.Wall()
	r.clk.Advance(time.Minute)
	r.grow(t, 1, 1)
	r.gone = 9
	r.all() // a base with 10 records
	r.has(5, 10)
	r.hasNot("records 6 to 10 are missing", 7, 9)
	if tree, err := r.catalog().Tree(t.Context(), At{Time: inside}); !errors.Is(err, fserror.NotFound) || !strings.Contains(err.Error(), "hole") {
		t.Errorf("%v, %v", tree, err)
	}
}

// TestUnreadableObject: an object that the store does not give is like a damaged one.
func TestUnreadableObject(t *testing.T) {
	r := newRig(t)
	r.grow(t, 4, 1)
	r.all()
	r.grow(t, 4, 1)
	r.all()
	spans := r.catalog().spans
	r.refused = spans[len(spans)-1].Name()
	r.newestIs(5)
	r.reign(2)
	r.all()
	r.has(5, 9, 10)
}

// TestKeptIsTold: who asks for a moment that cannot be had is told which can.
func TestKeptIsTold(t *testing.T) {
	r := newRig(t)
	r.grow(t, 4, 1)
	r.all()
	began := r.clk.Wall()
	r.hasNot("the newest that can be had is 5 of "+began.UTC().Format(time.RFC3339), 6)
	_, err := r.catalog().Tree(t.Context(), At{Time: began.Add(-time.Hour)})
	want := fmt.Sprintf("that moment is not kept; available: records 1 (before %[1]s) to 5 (%[1]s)", began.UTC().Format(time.RFC3339))
	if !errors.Is(err, fserror.NotFound) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestPrune: what no kept moment needs goes, and every moment of the time to be kept stays.
func TestPrune(t *testing.T) {
	r := newRig(t)
	r.all()
	for range 30 { // hours
		r.clk.Advance(30 * time.Minute)
		r.grow(t, 4, 1)
		r.all()
		r.clk.Advance(30 * time.Minute)
	}
	r.all()
	last := r.Durable()
	var kept []uint64
	for txid := last - 8*4; txid <= last; txid++ {
		kept = append(kept, txid)
	}
	r.has(kept...)
	r.hasNot("not kept", 1, 5, 20)
	if c := r.catalog(); len(c.all) > 14 || len(c.bases) > 14 {
		t.Errorf("%d objects and %d bases are left", len(c.all), len(c.bases))
	}
}

// TestPruneWithoutBases: what no kept moment needs goes also while the store takes no base; it may
// have no room for one.
func TestPruneWithoutBases(t *testing.T) {
	r := newRig(t)
	step := func(hours int) int {
		for range hours {
			r.clk.Advance(time.Hour)
			r.grow(t, 4, 1)
			for more := true; more; {
				more, _ = r.turn(t.Context()) // it says that there is no base
			}
		}
		return len(r.catalog().all)
	}
	if n := step(6); n != 6 {
		t.Fatalf("%d objects", n)
	}
	r.noBases = true
	before := r.catalog().all
	if n := step(30); n > 32 || r.catalog().all[0] == before[0] {
		t.Errorf("%d objects after 36 hours, of which 30 went without a base; the oldest is %s", n, r.catalog().all[0].Name())
	}
	last := r.Durable()
	for hour := range uint64(9) {
		r.has(last - 4*hour)
	}
}

// TestPruneInShortReigns: what no kept moment needs goes also if no reign lasts an hour.
func TestPruneInShortReigns(t *testing.T) {
	r := newRig(t)
	for term := uint64(2); term < 32; term++ {
		for range 5 {
			r.clk.Advance(10 * time.Minute)
			r.grow(t, 4, 1)
			r.all()
		}
		r.reign(term)
	}
	if c := r.catalog(); len(c.all) > 80 || len(c.bases) > 20 {
		t.Errorf("%d objects and %d bases are left of 25 hours, of which 8 are kept", len(c.all), len(c.bases))
	}
}

// TestNoArchive: a namenode that archives nothing has none.
func TestNoArchive(t *testing.T) {
	r := newRig(t)
	a := New(Config{
		Clock: &r.clk, Log: slog.New(slog.DiscardHandler), Objects: r.flaky, ID: testID,
		Keep: func() time.Duration { return 0 }, Check: func(context.Context) error { return nil },
	})
	if err := a.Run(t.Context(), r.history); err != nil || a.Stats().On || a.Needs() != 0 {
		t.Error(err, a.Stats())
	}
	a.Measure(func(name string, _ float64, _ string) { t.Error(name) })
}

// TestNothingAgrees: a history of which the archive has nothing, but has another one, takes
// that one's place as far back as its journal goes.
func TestNothingAgrees(t *testing.T) {
	r := newRig(t)
	other := *r.history
	other.tree, other.recs = r.at(1), append([]journal.Record(nil), r.recs...)
	r.grow(t, 9, 1)
	r.all()
	r.grow(t, 9, 1)
	r.all() // 19
	r.history = &other
	r.grow(t, 5, 2)
	r.reign(50)
	r.grow(t, 3, 2)
	r.all()
	r.has(1, 2, 6, 7, 10)
	r.hasNot("is not archived", 11, 19)
	r.newestIs(10)
}
