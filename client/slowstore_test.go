package client

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
)

// readBlock reads a block through a Reader of a client whose store is do.
func readBlock(ctx context.Context, timeout time.Duration, do trip) error {
	cfg := Config{Timeout: timeout, HTTPClient: &http.Client{Transport: do}, Logger: slog.New(slog.DiscardHandler)}
	nn, err := namecall.New(ctx, namecall.Config{Namenodes: []string{"nn"}, Timeout: timeout})
	if err != nil {
		return err
	}
	defer nn.Close()
	f := &engine{cfg: cfg, ctx: ctx, nn: nn, blobs: blockio.NewTransport(cfg.HTTPClient, cfg.TLS, nil, cfg.Timeout)}
	r := newReader(ctx, f, "/a", 7)
	defer r.blocks.Close()
	object, crc := blockstore.Seal(noise(100_000))
	l := &blockio.List{To: 100_000, Blocks: []blockio.Block{{
		Key: keyOf(1, 1), Used: 100_000, Data: 100_000, Stored: int64(len(object)), CRC: crc, URL: "http://store:9870/b?sig=secret",
	}}}
	return r.blocks.Whole(ctx, l, &l.Blocks[0], l.To, 0, 0, func([]byte) {})
}

// A read from a store that is stuck ends within the time of a call.
func TestReadFromAStuckStoreEndsInTime(t *testing.T) {
	for _, timeout := range []time.Duration{5 * time.Second, time.Minute, 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := readBlock(t.Context(), timeout, func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			wantKind(t, err, fserror.Unavailable)
			if took := time.Since(began); took > timeout+time.Second {
				t.Errorf("%s instead of %s: %v", took, timeout, err)
			}
		})
	}
}

// A block for a store that takes requests and does not answer, as one without
// descriptors does, fails within the time of a call, and so does Close.
func TestWriteToAStuckStoreEndsInTime(t *testing.T) {
	for _, timeout := range []time.Duration{5 * time.Second, 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.blockSize = blockstore.DefaultBlockSize
			_, stuck := newStuck(f)
			fs := start(t, f, stuck, func(c *Config) { c.Timeout = timeout })
			w := mustCreate(t, fs, "/a")
			began := time.Now()
			if _, err := w.Write(noise(blockstore.DefaultBlockSize)); err != nil {
				t.Fatal(err)
			}
			wantKind(t, w.Close(), fserror.Unavailable)
			if took := time.Since(began); took > timeout+time.Second {
				t.Errorf("%s instead of %s", took, timeout)
			}
		})
	}
}

// An object of another length is named for what it is.
func TestObjectOfAnotherLength(t *testing.T) {
	object, _ := blockstore.Seal(noise(100_000))
	for what, body := range map[string][]byte{"truncated": object[:len(object)-1], "longer": append(bytes.Clone(object), 0)} {
		err := readBlock(t.Context(), time.Minute, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}, nil
		})
		wantKind(t, err, fserror.Damaged)
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want that it is %s", err, what)
		}
	}
}
