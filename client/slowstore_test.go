package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// readerOf is a Reader of a client whose store is do, and a block to be read.
func readerOf(timeout time.Duration, do trip) (*Reader, *span) {
	cfg := Config{Timeout: timeout, HTTPClient: &http.Client{Transport: do}}
	f := &FS{cfg: cfg, blobs: blockio.NewTransport(cfg.HTTPClient, cfg.TLS, cfg.Timeout)}
	r := &Reader{fs: f, path: "/a", tables: map[blockstore.Key]blockstore.Table{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	object, crc := blockstore.Seal(noise(100_000))
	return r, &span{key: keyOf(1, 1), used: 100_000, data: 100_000, stored: int64(len(object)), crc: crc, url: "http://store:9870/b?sig=secret"}
}

// A read from a store that is stuck ends within the time of a call.
func TestReadFromAStuckStoreEndsInTime(t *testing.T) {
	for _, timeout := range []time.Duration{5 * time.Second, time.Minute, 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r, s := readerOf(timeout, func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			defer r.cancel()
			began := time.Now()
			err := r.get(t.Context(), s, 0, make([]byte, s.stored))
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
		r, s := readerOf(time.Minute, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}, nil
		})
		err := r.get(t.Context(), s, 0, make([]byte, s.stored))
		r.cancel()
		wantKind(t, err, fserror.Damaged)
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want that it is %s", err, what)
		}
	}
}
