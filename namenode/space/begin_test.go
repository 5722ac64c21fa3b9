package space

import (
	"context"
	"log/slog"
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

// TestBegin: a store that hangs keeps no reign from beginning.
func TestBegin(t *testing.T) {
	d, err := datadir.Open(vfs.OS(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.WriteVersion(); err != nil { // else it is not known whether the disk can be written
		t.Fatal(err)
	}
	h := hung{asked: make(chan struct{})}
	s := New(Config{Log: slog.New(slog.DiscardHandler), Dir: d, Store: h})
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
		t.Error("it waits for the store")
	}
}
