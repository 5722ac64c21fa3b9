package blocks

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/iotest"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// holds is a store that has the same bytes under each key.
type holds struct {
	blockstore.Store
	object []byte
}

func (h holds) Get(context.Context, blockstore.Key, int64, int64) (io.ReadCloser, error) {
	if len(h.object) == 0 {
		return nil, fserror.New(fserror.InvalidArgument, "get", "", "no range from 0 on")
	}
	return io.NopCloser(bytes.NewReader(h.object)), nil
}

// An object of another length than was written is damaged.
func TestFetchChecksTheLength(t *testing.T) {
	object, crc := blockstore.Seal([]byte("a block"))
	b := namespace.Block{Stored: uint32(len(object)), CRC: crc} //nolint:gosec // a few bytes
	for _, c := range []struct {
		name   string
		object []byte
		good   bool
	}{
		{"whole", object, true},
		{"shorter", object[:len(object)-1], false},
		{"empty", nil, false},
		{"longer", append(bytes.Clone(object), 0), false},
	} {
		bs := &Blocks{Config: Config{Store: holds{object: c.object}}}
		got, err := bs.Fetch(t.Context(), b)
		if c.good && (err != nil || !bytes.Equal(got, object)) || !c.good && fserror.KindOf(err) != fserror.Damaged {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// breaks is a store whose connection breaks off each time.
type breaks struct{ blockstore.Store }

func (breaks) Get(context.Context, blockstore.Key, int64, int64) (io.ReadCloser, error) {
	err := &fserror.Error{Kind: fserror.Unavailable, Message: "broken off at byte 10", Err: io.ErrUnexpectedEOF}
	return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(err))), nil
}

// TestFetchThatBreaksOff: a connection that ends early says nothing of the block.
func TestFetchThatBreaksOff(t *testing.T) {
	bs := &Blocks{Config: Config{Store: breaks{}}}
	if _, err := bs.Fetch(t.Context(), namespace.Block{Stored: 100}); fserror.KindOf(err) != fserror.Unavailable {
		t.Errorf("%v, want %v", err, fserror.Unavailable)
	}
}
