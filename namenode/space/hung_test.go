package space

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
)

// hung is a store that never tells how much room it has, as a folder of a file system that hangs.
type hung struct {
	blockstore.Store
	asked chan struct{}
}

func (h hung) Usage(context.Context) (free, total int64, err error) {
	close(h.asked)
	select {}
}

// fullDisk has no room.
type fullDisk struct{ vfs.FS }

func (fullDisk) Usage(string) (free, total int64, err error) { return 0, 1 << 30, nil }

// noBlocks counts measurements.
type noBlocks struct{ expired int }

func (*noBlocks) Hurry(int64, int64) {}
func (b *noBlocks) Expire()          { b.expired++ }

// TestHungStore: a store that hangs keeps no reign from beginning, hides no shortage of disk, and is
// asked no second time.
func TestHungStore(t *testing.T) {
	d, err := datadir.Open(fullDisk{vfs.OS()}, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.WriteVersion(); err != nil { // else it is not known whether the disk can be written
		t.Fatal(err)
	}
	h, b := hung{asked: make(chan struct{})}, new(noBlocks)
	s := New(Config{Log: slog.New(slog.DiscardHandler), Dir: d, Store: h, Blocks: b, Reserve: 1 << 20, Memory: 1 << 40})
	began := make(chan struct{})
	go func() { s.MeasureFirst(t.Context()); close(began) }()
	select {
	case <-h.asked:
	case <-began:
		t.Fatal("the store is not asked")
	}
	select {
	case <-began:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the store")
	}
	if err := s.Measure(t.Context()); err == nil || !strings.Contains(err.Error(), "has not said yet") {
		t.Errorf("of a store that has said nothing: %v", err)
	}
	if free, total := s.Room(t.Context()); free != 0 || total != 0 { // as status asks
		t.Errorf("%d bytes of %d", free, total)
	}
	if s.Refuse() == nil || b.expired != 2 {
		t.Errorf("the disk is full, and the shortage is %q; blocks were looked at %d times", s.Short(), b.expired)
	}
}

// fails is a store that says how much room it has, or fails.
type fails struct {
	blockstore.Store
	err error
}

func (f *fails) Usage(context.Context) (free, total int64, err error) {
	if f.err != nil {
		return 0, 0, f.err
	}
	return 0, 1 << 30, nil
}

// TestFailingStore: what a full store fails to say does not end the shortage.
func TestFailingStore(t *testing.T) {
	d, err := datadir.Open(vfs.OS(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.WriteVersion(); err != nil {
		t.Fatal(err)
	}
	store := new(fails)
	s := New(Config{Log: slog.New(slog.DiscardHandler), Dir: d, Store: store, Blocks: new(noBlocks), Memory: 1 << 40})
	if err := s.Measure(t.Context()); err != nil || s.Refuse() == nil {
		t.Fatalf("a full store: %v, the shortage is %q", err, s.Short())
	}
	store.err = errors.New("input/output error")
	if err := s.Measure(t.Context()); !errors.Is(err, store.err) || s.Refuse() == nil {
		t.Errorf("a full store that fails: %v, the shortage is %q", err, s.Short())
	}
}

// failing is a disk without room that fails.
type failing struct {
	fullDisk
	err error
}

func (f *failing) OpenWrite(name string) (vfs.File, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.fullDisk.OpenWrite(name)
}

// TestFailingDisk: a disk that fails to say how much room it has hides no shortage of the store, and
// ends no shortage of its own.
func TestFailingDisk(t *testing.T) {
	disk := &failing{fullDisk: fullDisk{vfs.OS()}, err: errors.New("too many open files")}
	d, err := datadir.Open(disk, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.WriteVersion(); err != nil {
		t.Fatal(err)
	}
	b := new(noBlocks)
	s := New(Config{Log: slog.New(slog.DiscardHandler), Dir: d, Blocks: b, Reserve: 1 << 20, Memory: 1 << 40})
	s.asking.Store(true) // what the store has said stays
	s.store.Store(&usage{total: 1 << 30})
	if err := s.Measure(t.Context()); !errors.Is(err, disk.err) || !strings.Contains(s.Short(), "store is full") || b.expired != 1 {
		t.Errorf("%v, the shortage is %q, blocks were looked at %d times", err, s.Short(), b.expired)
	}
	failed := disk.err
	disk.err = nil
	if err := s.Measure(t.Context()); err != nil || !strings.Contains(s.Short(), "disk is full") {
		t.Errorf("%v, the shortage is %q", err, s.Short())
	}
	lost := errors.New("input/output error")
	disk.err = failed
	s.store.Store(&usage{total: 1 << 30, err: lost})
	if err := s.Measure(t.Context()); !errors.Is(err, failed) || !errors.Is(err, lost) || !strings.Contains(s.Short(), "disk is full") {
		t.Errorf("%v, the shortage is %q", err, s.Short())
	}
}
