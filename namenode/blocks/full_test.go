package blocks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// bucket is a store that does not tell how much room it has.
type bucket struct {
	blockstore.Store
	blockstore.Objects
	answer error
}

func (b *bucket) Usage(context.Context) (free, total int64, err error) { return 0, 0, nil }

func (b *bucket) PutNamed(context.Context, string, io.ReaderAt, int64, uint32) error {
	return b.answer
}

// TestStoreIsFull: a bucket is short of room for a minute after it has refused an object for
// want of it, and garbage is looked for at once; whatever else it answers says nothing of that.
func TestStoreIsFull(t *testing.T) {
	b := &bucket{}
	var clk clock.Fake
	clk.Advance(time.Hour)
	bs := New(Config{Clock: &clk, Store: b})
	put := func(answer error) (due, short bool) {
		t.Helper()
		b.answer = answer
		if err := bs.Noting(b).PutNamed(t.Context(), "archive-1", bytes.NewReader(nil), 0, 0); !errors.Is(err, answer) {
			t.Errorf("%v, not %v", err, answer)
		}
		select {
		case <-bs.Due:
			due = true
		default:
		}
		short, err := bs.RoomShort(t.Context())
		if err != nil {
			t.Error(err)
		}
		return due, short
	}
	for _, answer := range []error{nil, fserror.New(fserror.Unavailable, "", "", "away"), fserror.New(fserror.Exists, "", "", "there")} {
		if due, short := put(answer); due || short {
			t.Errorf("%v: %t, %t", answer, due, short)
		}
	}
	if due, short := put(fserror.New(fserror.NoSpace, "", "", "full")); !due || !short {
		t.Errorf("full: %t, %t", due, short)
	}
	clk.Advance(time.Minute)
	if due, short := put(nil); due || short {
		t.Errorf("a minute later: %t, %t", due, short)
	}
}
