package owner

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// bucket is a store of named objects only, in memory.
type bucket struct {
	empty
	objects map[string]string
	lose    bool // the answers to puts are lost
}

func (b *bucket) PutNamed(_ context.Context, name string, body io.ReaderAt, length int64, _ uint32) error {
	if _, is := b.objects[name]; is {
		return fserror.New(fserror.Exists, "put", "", "taken")
	}
	raw, err := io.ReadAll(io.NewSectionReader(body, 0, length))
	if err != nil {
		return err
	}
	b.objects[name] = string(raw)
	if b.lose {
		return fserror.New(fserror.Unavailable, "put", "", "no answer")
	}
	return nil
}

func (b *bucket) GetNamed(_ context.Context, name string, _, _ int64) (io.ReadCloser, error) {
	text, is := b.objects[name]
	if !is {
		return nil, fserror.New(fserror.NotFound, "get", "", "none")
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func (b *bucket) ListNamed(_ context.Context, prefix, after string, _ int) (infos []blockstore.NamedInfo, err error) {
	for _, name := range slices.Sorted(maps.Keys(b.objects)) {
		if strings.HasPrefix(name, prefix) && name > after {
			infos = append(infos, blockstore.NamedInfo{Name: name})
		}
	}
	return infos, nil
}

func (b *bucket) DeleteNamed(_ context.Context, names ...string) error {
	for _, name := range names {
		delete(b.objects, name)
	}
	return nil
}

// copies returns a reign that has told the store of itself, as often as it continues.
func copies(t *testing.T, n int, clk clock.Clock, b *bucket) []*Owner {
	t.Helper()
	e := engine.New(engine.Config{Clock: clk, Log: slog.New(slog.DiscardHandler)})
	e.Open(namespace.New(), nil)
	all := make([]*Owner, n)
	for i := range all {
		all[i] = New(Config{
			Clock: clk, Log: slog.New(slog.DiscardHandler), Engine: e, Store: b, Objects: b,
			Incarnation: func(string) marker.Incarnation { return marker.Incarnation{} },
		})
		all[i].mine.Store(&marker.Incarnation{})
		all[i].Begin(7, "nonce")
		if err := all[i].Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func removes(t *testing.T, o *Owner) bool {
	t.Helper()
	done := false
	err := o.While(t.Context(), func(context.Context) error { done = true; return nil })
	if err != nil && !errors.Is(err, ErrHeldBack) {
		t.Fatal(err)
	}
	return done
}

// TestCopyInMemory: a process and its copy have one reign in common, term and nonce included. Each finds
// the other out, also if it only looks, and if it continues long after it was made.
func TestCopyInMemory(t *testing.T) {
	for name, c := range map[string]struct {
		first, second int // who looks, before both want to remove something
		rounds        int // of the first
	}{
		"one after the other":       {0, 1, 1},
		"the copy first":            {1, 0, 1},
		"one that continues lately": {0, 1, 9},
	} {
		t.Run(name, func(t *testing.T) {
			clk, b := &clock.Fake{}, &bucket{objects: map[string]string{}}
			both := copies(t, 2, clk, b)
			if !removes(t, both[0]) || !removes(t, both[1]) {
				t.Fatal("nothing was amiss yet")
			}
			for range c.rounds {
				clk.Advance(linkEvery)
				if err := both[c.first].Check(t.Context()); err != nil || both[c.first].Conflict() != "" {
					t.Fatal(err, both[c.first].Conflict())
				}
			}
			if removes(t, both[c.second]) || removes(t, both[c.first]) {
				t.Error("a block of the other may be removed")
			}
			if why := both[0].Conflict(); !strings.Contains(why, "in two processes") || why != both[1].Conflict() {
				t.Error(why)
			}
		})
	}
}

// TestChain: a reign that is alone finds no conflict, whatever becomes of answers, and leaves one link.
func TestChain(t *testing.T) {
	clk, b := &clock.Fake{}, &bucket{objects: map[string]string{}}
	o := copies(t, 1, clk, b)[0]
	for i := range 12 {
		clk.Advance(linkEvery)
		b.lose = i%3 == 0
		if err := o.Check(t.Context()); (err != nil) != b.lose {
			t.Error(i, err)
		}
	}
	if !removes(t, o) {
		t.Error(o.Conflict())
	}
	links := 0
	for name := range b.objects {
		if _, n, ok := linkOf(strings.TrimPrefix(name, o.reignName(""))); ok {
			links++
			if n != o.chain.number {
				t.Error(name, "is left")
			}
		}
	}
	if links != 1 || o.chain.number < 8 {
		t.Errorf("%d links; the last is %d", links, o.chain.number)
	}
}
