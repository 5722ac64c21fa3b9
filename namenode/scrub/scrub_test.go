package scrub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
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
	fetch func(namespace.Block) error // nil: all is good

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
	r := &rig{t: t, fs: crashfs.New(), tree: tree, every: 24 * time.Hour}
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

func (r *rig) start() (s *Scrub, stop func()) {
	s = New(Config{
		FS: r.fs, File: "scrub", Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Every: r.every,
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
		r.passes(48 * time.Hour)
		if n := len(r.reads); n < 2*len(want) || n > 4*len(want) {
			t.Errorf("%d blocks were read in three days, the namespace has %d", n, len(want))
		}
		if r.images < 2 {
			t.Errorf("images were read %d times in three days", r.images)
		}
		stop()
	})
}

// TestStoreIsAway: while the store does not answer nothing is found and nothing is passed over.
func TestStoreIsAway(t *testing.T) {
	r := newRig(t)
	want := r.blocks()
	away := true
	r.fetch = func(namespace.Block) error {
		if away {
			return fserror.New(fserror.Unavailable, "", "", "the store is away")
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		s, stop := r.start()
		r.passes(time.Hour)
		if n := len(r.reads); n < 30 || n > 61 || s.Stats().Found != 0 {
			t.Errorf("in an hour it asked %d times; %+v", n, s.Stats())
		}
		away, r.reads = false, nil
		r.passes(24 * time.Hour)
		if !slices.Equal(r.reads[:min(len(want), len(r.reads))], want) {
			t.Errorf("it read\n%v, not\n%v", r.reads, want)
		}
		stop()
	})
}

// TestFindings: what is damaged, gone or cannot be read is found, kept over a restart, and
// taken back once it is read again and good.
func TestFindings(t *testing.T) {
	r := newRig(t)
	all := r.blocks()
	bad := map[blockstore.Key]error{
		all[0].Key: fserror.New(fserror.Damaged, "", "", "a bit has turned"),
		all[1].Key: errors.New("input/output error"),
	}
	r.fetch = func(b namespace.Block) error { return bad[b.Key] }
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		_, stop := r.start()
		r.passes(25 * time.Hour)
		stop()
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
