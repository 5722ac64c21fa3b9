package scrub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// rig is a Scrub over the tree of a frozen image, and what it has read.
type rig struct {
	t     *testing.T
	fs    *crashfs.FS
	tree  *namespace.Tree
	every time.Duration
	rate  int64
	fetch func(namespace.Block) error // nil: all is good
	log   slog.Handler

	store blockstore.Objects // of several; nil: it is alone
	name  string             // of its file
	term  uint64

	mu     sync.Mutex // held by the test, but while time passes
	reads  []namespace.Block
	images int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	f, err := os.Open("../../testdata/frozen/image-11")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	tree, err := namespace.ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fs: crashfs.New(), tree: tree, every: 24 * time.Hour, log: slog.DiscardHandler, name: "scrub"}
	r.mu.Lock()
	return r
}

func (r *rig) blocks() (all []namespace.Block) {
	r.tree.Referenced(0, func(_ namespace.InodeID, b namespace.Block) bool {
		all = append(all, b)
		return true
	})
	if len(all) < 2 {
		r.t.Fatalf("the image has %d blocks", len(all))
	}
	return all
}

// start has it scrub, in a reign of its own.
func (r *rig) start() (s *Scrub, stop func()) {
	r.term++
	term := r.term
	s = New(Config{
		FS: r.fs, File: r.name, Clock: clock.System{}, Log: slog.New(r.log), Every: r.every, Rate: r.rate,
		Several: r.store != nil, Objects: r.store, Term: func() uint64 { return term },
		Remove:   func(ctx context.Context, remove func(context.Context) error) error { return remove(ctx) },
		Snapshot: func(context.Context) (*namespace.Tree, error) { return r.tree, nil },
		Has:      r.tree.HasBlock,
		Fetch: func(_ context.Context, b namespace.Block) ([]byte, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reads = append(r.reads, b)
			if r.fetch != nil {
				if err := r.fetch(b); err != nil {
					return nil, err
				}
			}
			return make([]byte, b.Stored), nil
		},
		Images: func(context.Context) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.images++
			return nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	return s, func() {
		r.mu.Unlock()
		defer r.mu.Lock()
		cancel()
		<-done
	}
}

// passes lets so much time pass.
func (r *rig) passes(d time.Duration) {
	r.mu.Unlock()
	defer r.mu.Lock()
	<-time.After(d)
	synctest.Wait()
}

// TestPass: each block is read once in a period, spread over it, and a pass that a restart
// interrupts is resumed.
func TestPass(t *testing.T) {
	r := newRig(t)
	want := r.blocks()
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		_, stop := r.start()
		r.passes(time.Hour)
		early := len(r.reads)
		stop()
		if early == 0 || early == len(want) {
			t.Errorf("%d of %d blocks were read in the first hour", early, len(want))
		}
		for range 4 { // restarts
			_, stop = r.start()
			r.passes(4 * time.Hour)
			stop()
		}
		s, stop := r.start()
		r.passes(4 * time.Hour)
		if !slices.Equal(r.reads, want) {
			t.Errorf("a day's pass read\n%v, not\n%v", r.reads, want)
		}
		if st := s.Stats(); st.Whole == 0 || st.Began != 0 || st.Found != 0 || !st.On {
			t.Errorf("%+v", st)
		}
		r.passes(9 * 24 * time.Hour)
		if n := len(r.reads); n < 9*len(want) || n > 10*len(want) { // the tenth day is not quite over
			t.Errorf("%d blocks were read in ten days, the namespace has %d", n, len(want))
		}
		if r.images < 2 {
			t.Errorf("images were read %d times in ten days", r.images)
		}
		stop()
	})
}

// goesAway has the store not answer while what it returns is true, which it is.
func (r *rig) goesAway() (away *bool) {
	away = new(bool)
	*away = true
	r.fetch = func(namespace.Block) error {
		if *away {
			return fserror.New(fserror.Unavailable, "", "", "the store is away")
		}
		return nil
	}
	return away
}

// TestStoreIsAway: while the store does not answer nothing is found and nothing is passed over.
func TestStoreIsAway(t *testing.T) {
	r := newRig(t)
	want := r.blocks()
	away := r.goesAway()
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		r.passes(time.Hour)
		if n := len(r.reads); n < 30 || n > 61+20 || s.Stats().Found != 0 { // 20 times for another block
			t.Errorf("in an hour it asked %d times; %+v", n, s.Stats())
		}
		*away, r.reads = false, nil
		r.passes(24 * time.Hour)
		if !slices.Equal(r.reads[:min(len(want), len(r.reads))], want) {
			t.Errorf("it read\n%v, not\n%v", r.reads, want)
		}
		stop()
	})
}

// inodeOf is the file that has a block.
func inodeOf(tree *namespace.Tree, b namespace.Block) (id namespace.InodeID) {
	tree.Referenced(0, func(of namespace.InodeID, has namespace.Block) bool {
		id = of
		return has != b
	})
	return id
}

// TestFindings: what is damaged, gone or cannot be read is found, logged, kept over a restart, and
// taken back once it is read again and good.
func TestFindings(t *testing.T) {
	r := newRig(t)
	all := r.blocks()
	bad := map[blockstore.Key]error{
		all[0].Key: fserror.New(fserror.Damaged, "", "", "a bit has turned"),
		all[1].Key: errors.New("input/output error"),
	}
	r.fetch = func(b namespace.Block) error { return bad[b.Key] }
	var log bytes.Buffer
	r.log = slog.NewTextHandler(&log, nil)
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		_, stop := r.start()
		r.passes(25 * time.Hour)
		stop()
		for _, b := range all {
			n := strings.Count(log.String(), `msg="a block of a file is damaged or gone; a backup may have it"`+" reason=\"damaged block\" inode="+fmt.Sprint(uint64(inodeOf(r.tree, b)))+" block="+b.Key.String()+" ")
			if want := bad[b.Key] != nil; want != (n == 1) || n > 1 {
				t.Errorf("block %s is logged %d times:\n%s", b.Key, n, log.String())
			}
		}
		for _, cause := range bad {
			if !strings.Contains(log.String(), cause.Error()) {
				t.Errorf("the log does not say %q:\n%s", cause, log.String())
			}
		}
		s, stop := r.start()
		got := s.Findings()
		if len(got) != 2 || got[0].Block != all[0] || got[1].Block != all[1] || s.Stats().Found != 2 {
			t.Errorf("found %+v", got)
		}
		clear(bad)
		r.passes(2 * recheckEvery)
		if got := s.Findings(); len(got) != 0 {
			t.Errorf("they are good now, and it says %+v", got)
		}
		stop()
	})
}

// TestFileIsDamaged: a file that cannot be understood begins a pass; one that says that the last
// pass ended in the future, as a wrong clock would write, does not put the next one off.
func TestFileIsDamaged(t *testing.T) {
	for _, text := range []string{"", "{", "\x00\x00", fmt.Sprintf(`{"last_whole_pass_unix_ms": %d}`, int64(1)<<50)} {
		r := newRig(t)
		want := r.blocks()
		f, err := r.fs.Create("scrub")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		synctest.Test(t, func(t *testing.T) {
			r.t = t
			_, stop := r.start()
			r.passes(24 * time.Hour)
			stop()
			if len(r.reads) < len(want) {
				t.Errorf("%q: %d of %d blocks were read", text, len(r.reads), len(want))
			}
		})
	}
}

// TestMostFound: a store that has lost everything takes no more memory than MostFound says.
func TestMostFound(t *testing.T) {
	r := newRig(t)
	s := New(Config{FS: r.fs, File: "scrub", Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Has: func(blockstore.Key) bool { return true }})
	for i := range MostFound + 10 {
		s.found(item{block: namespace.Block{Key: blockstore.Key{Term: 1, Seq: uint64(i)}}}, errors.New("gone")) //nolint:gosec // an index
	}
	if got := s.Stats().Found; got != MostFound+10 || len(s.Findings()) != MostFound {
		t.Errorf("%d found, %d kept", got, len(s.Findings()))
	}
	if New(Config{Every: -1}) != nil {
		t.Error("nothing is to be scrubbed, and it would be")
	}
}

// objects is a store in memory.
type objects struct {
	blockstore.Objects
	mu   sync.Mutex
	all  map[string][]byte
	away bool
}

func (o *objects) here() (unlock func(), err error) {
	o.mu.Lock()
	if o.away {
		err = fserror.New(fserror.Unavailable, "", "", "the store is away")
	}
	return o.mu.Unlock, err
}

func (o *objects) PutNamed(_ context.Context, name string, body io.ReaderAt, length int64, _ uint32) error {
	unlock, err := o.here()
	defer unlock()
	if err != nil {
		return err
	}
	o.all[name] = make([]byte, length)
	_, err = body.ReadAt(o.all[name], 0)
	return err
}

func (o *objects) GetNamed(_ context.Context, name string, _, _ int64) (io.ReadCloser, error) {
	unlock, err := o.here()
	defer unlock()
	return io.NopCloser(bytes.NewReader(o.all[name])), err
}

func (o *objects) ListNamed(_ context.Context, prefix, _ string, _ int) (infos []blockstore.NamedInfo, err error) {
	unlock, err := o.here()
	defer unlock()
	for _, name := range slices.Sorted(maps.Keys(o.all)) {
		if strings.HasPrefix(name, prefix) {
			infos = append(infos, blockstore.NamedInfo{Name: name})
		}
	}
	return infos, err
}

func (o *objects) DeleteNamed(_ context.Context, names ...string) error {
	unlock, err := o.here()
	defer unlock()
	for _, name := range names {
		delete(o.all, name)
	}
	return err
}

// TestNextActive: what one of several namenodes has found the next active one knows at once, and
// also that it was mended; and it continues the pass of the one before.
func TestNextActive(t *testing.T) {
	r := newRig(t)
	all := r.blocks()
	store := &objects{all: map[string][]byte{"scrub-of-nobody": []byte("{")}}
	r.store = store
	bad := map[blockstore.Key]error{}
	r.fetch = func(b namespace.Block) error { return bad[b.Key] }
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		knows := func(s *Scrub, who string, want ...namespace.Block) {
			t.Helper()
			var got []namespace.Block
			for _, f := range s.Findings() {
				got = append(got, f.Block)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s knows of %v, not of %v", who, got, want)
			}
		}
		bad[all[0].Key] = fserror.New(fserror.Damaged, "", "", "a bit has turned")
		r.name = "of a"
		a, stop := r.start()
		r.passes(2 * time.Hour)
		knows(a, "the first one", all[0])
		was := a.Stats()
		stop()

		r.name = "of b"
		b, stop := r.start()
		r.passes(time.Second)
		knows(b, "its successor", all[0])
		if st := b.Stats(); st.Began == 0 || st.Began != was.Began || st.Read != was.Read {
			t.Errorf("the pass of the first one was at %+v, and its successor is at %+v", was, st)
		}
		r.passes(23 * time.Hour)
		store.mu.Lock()
		store.away = true
		store.mu.Unlock()
		clear(bad)
		r.passes(2 * recheckEvery)
		knows(b, "its successor, once it is mended,")
		store.mu.Lock()
		store.away = false
		store.mu.Unlock()
		r.passes(2 * longestWait)
		if len(store.all) != 1 {
			t.Errorf("there are %d objects", len(store.all))
		}
		stop()

		r.name = "of a" // whose file has it still
		a, stop = r.start()
		r.passes(2 * afterStart)
		knows(a, "the first one, after it was mended,")
		stop()
	})
}

// TestRateIsKept: no more is read than the rate allows, and a scrub for which that is too little says so.
func TestRateIsKept(t *testing.T) {
	r := newRig(t)
	all := r.blocks()
	stored, most := int64(0), int64(0)
	for _, b := range all {
		stored += int64(b.Stored)
		most = max(most, int64(b.Stored))
	}
	r.rate = 1
	long := time.Duration(stored) * time.Second // of a pass, at the rate
	var log bytes.Buffer
	r.log, r.every = slog.NewTextHandler(&log, nil), long/2
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		r.passes(min(afterStart, r.every))
		for second := range 20 * stored { // twenty passes
			if got := s.Stats().Bytes; got > second+most || got < second-most {
				t.Fatalf("after %d seconds %d bytes were read, at 1 a second", second, got)
			}
			r.passes(time.Second)
		}
		if late := s.Stats().Late; late < long-r.every {
			t.Errorf("a pass takes %s longer than it should, and it says %s", long-r.every, late)
		}
		stop()
		if n := strings.Count(log.String(), "the scrub takes longer than its period"); n != 1 {
			t.Errorf("it is told %d times:\n%s", n, log.String())
		}
		// With a higher rate it is in time, as soon as the late pass is over.
		r.rate *= 20
		s, stop = r.start()
		r.passes(6 * time.Minute)
		if late := s.Stats().Late; late != 0 {
			t.Errorf("it is late by %s", late)
		}
		stop()
	})
}

// TestLatePass: a pass that the store has delayed is told of as late, and is not any later than
// it has to be.
func TestLatePass(t *testing.T) {
	r := newRig(t)
	away := r.goesAway()
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		r.passes(23 * time.Hour)
		if late := s.Stats().Late; late != 0 {
			t.Errorf("after 23 hours of 24 it is late by %s", late)
		}
		r.passes(3 * time.Hour)
		if late := s.Stats().Late; late < time.Hour {
			t.Errorf("after 26 hours of 24 it is late by %s", late)
		}
		*away = false
		r.passes(time.Hour)
		if st := s.Stats(); st.Late != 0 || st.Whole == 0 {
			t.Errorf("%+v", st)
		}
		stop()
	})
}

// TestOftenRestarted: a namenode that is restarted all the time reads the images all the same, and
// again what was found.
func TestOftenRestarted(t *testing.T) {
	r := newRig(t)
	all := r.blocks()
	bad := map[blockstore.Key]error{all[0].Key: fserror.New(fserror.NotFound, "", "", "gone")}
	r.fetch = func(b namespace.Block) error { return bad[b.Key] }
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		_, stop := r.start()
		r.passes(time.Hour)
		stop()
		clear(bad)
		r.images = 0
		s, stop := r.start()
		if len(s.Findings()) != 1 {
			t.Errorf("found %+v", s.Findings())
		}
		for range 4 {
			r.passes(10 * time.Minute)
			stop()
			s, stop = r.start()
		}
		if found := s.Findings(); len(found) != 0 || r.images == 0 {
			t.Errorf("in four times ten minutes images were read %d times; found %+v", r.images, found)
		}
		stop()
	})
}

// TestSuspects: what a listing lacks is read at once, though the pass rests.
func TestSuspects(t *testing.T) {
	r := newRig(t)
	all := r.blocks()
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		r.passes(23 * time.Hour) // it rests
		gone := all[len(all)-1]
		r.fetch = func(b namespace.Block) error {
			if b == gone {
				return fserror.New(fserror.NotFound, "", "", "gone")
			}
			return nil
		}
		for range 2 {
			if !s.Suspect(0, all[0]) || !s.Suspect(1, gone) {
				t.Error("there are too many")
			}
		}
		r.passes(time.Second)
		if found := s.Findings(); len(found) != 1 || found[0].Block != gone {
			t.Errorf("found %+v", found)
		}
		stop()
	})
	s := New(Config{FS: r.fs, File: "scrub", Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)})
	n := 0
	for s.Suspect(0, namespace.Block{Key: blockstore.Key{Term: 9, Seq: uint64(n)}}) { //nolint:gosec // small
		n++
	}
	if n > MostFound {
		t.Errorf("%d are kept", n)
	}
}

// TestMoreDoesNotFall: what is found beyond MostFound is counted until a pass has not found it.
func TestMoreDoesNotFall(t *testing.T) {
	r := newRig(t)
	s := New(Config{FS: r.fs, File: "scrub", Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Every: time.Nanosecond, Has: func(blockstore.Key) bool { return true }})
	is := func(when string, want int) {
		t.Helper()
		if got := s.Stats().Found; got != want {
			t.Errorf("%s: %d found, want %d", when, got, want)
		}
	}
	begin := func() {
		t.Helper()
		if wait := s.rest(); wait != 0 {
			t.Fatalf("it rests for %s", wait)
		}
	}
	begin()
	for i := range MostFound + 10 {
		s.found(item{block: namespace.Block{Key: blockstore.Key{Term: 1, Seq: uint64(i)}}}, errors.New("gone")) //nolint:gosec // an index
	}
	is("a pass", MostFound+10)
	s.end()
	is("it has ended", MostFound+10)
	begin()
	is("the next one begins", MostFound+10)
	s.end()
	is("it has found no more", MostFound)
}

// TestOneBlockIsNotAnsweredFor: a block for which the store has an error for ever is found, and neither the
// pass nor the images wait for it, whether it is in its turn or suspected.
func TestOneBlockIsNotAnsweredFor(t *testing.T) {
	for _, kind := range []fserror.Kind{fserror.Unavailable, fserror.Permission} {
		for _, suspected := range []bool{false, true} {
			r := newRig(t)
			want := r.blocks()
			stuck := want[0]
			if suspected {
				stuck = want[len(want)-1]
			}
			asked := map[namespace.Block]bool{}
			r.fetch = func(b namespace.Block) error {
				asked[b] = true
				if b == stuck {
					return fserror.New(kind, "", "", "the block store has trouble, tried 6 times")
				}
				return nil
			}
			synctest.Test(t, func(t *testing.T) {
				r.t = t
				s, stop := r.start()
				if suspected {
					s.Suspect(1, stuck)
				}
				r.passes(10 * 24 * time.Hour)
				found := s.Findings()
				if len(found) != 1 || found[0].Block != stuck || !strings.Contains(found[0].Problem, "cannot be read") {
					t.Errorf("%v, suspected %t: found %+v", kind, suspected, found)
				}
				if len(asked) != len(want) || r.images < 9 || s.Stats().Whole == 0 {
					t.Errorf("%v, suspected %t: in ten days %d of %d blocks were asked for, images %d times; %+v", kind, suspected, len(asked), len(want), r.images, s.Stats())
				}
				stop()
			})
		}
	}
}

// TestSuspectsHoldUpNoImages: while the store answers for no block, the images are read, whatever is suspected.
func TestSuspectsHoldUpNoImages(t *testing.T) {
	r := newRig(t)
	suspect := r.blocks()[0]
	r.goesAway()
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		s.Suspect(1, suspect)
		r.passes(10 * 24 * time.Hour)
		if s.Stats().Found != 0 || r.images < 9 {
			t.Errorf("in ten days it found %+v, and images were read %d times", s.Findings(), r.images)
		}
		stop()
	})
}

// TestCredentialsAreOver: while the store refuses everything nothing is found, as while it is away.
func TestCredentialsAreOver(t *testing.T) {
	r := newRig(t)
	r.every = time.Hour
	r.fetch = func(namespace.Block) error {
		return fserror.New(fserror.Permission, "", "", "the temporary credentials are over or wrong: get new ones")
	}
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		r.passes(3 * time.Hour)
		if s.Stats().Found != 0 {
			t.Errorf("found %+v", s.Findings())
		}
		r.fetch = nil
		r.passes(2 * time.Hour)
		if s.Stats().Whole == 0 {
			t.Errorf("no pass has ended: %+v", s.Stats())
		}
		stop()
	})
}
