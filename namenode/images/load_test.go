package images

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// goes is a store that has no images when it is asked first, and does not answer then.
type goes struct {
	Store
	asked int
}

func (g *goes) List(context.Context) ([]Image, error) {
	if g.asked++; g.asked > 1 {
		return nil, fserror.New(fserror.Unavailable, "", "", "away")
	}
	return nil, nil
}

// purged is a journal that begins later.
type purged struct{ journal.Journal }

func (purged) Replay(_ context.Context, from uint64, _ func(journal.Record) error) (uint64, error) {
	return 0, journal.Purged(from, from+10)
}

// TestOvertakenWhileTheStoreGoes: a namenode whose records were purged while it loaded, and which cannot
// ask the store for the images that were published meanwhile, does not say that there are none.
func TestOvertakenWhileTheStoreGoes(t *testing.T) {
	k := New(Config{
		Store: &goes{}, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Shared: &Shared{Path: "/x"},
		Begin: func(*namespace.Tree) {},
		Open:  func(context.Context, uint64) (journal.Journal, error) { return purged{}, nil },
	})
	if _, err := k.Load(t.Context()); !errors.Is(err, fserror.Unavailable) {
		t.Errorf("it ends with %v", err)
	}
}
