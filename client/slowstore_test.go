package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// readerOf is a Reader of a client whose store is do, and a block to be read.
func readerOf(timeout time.Duration, do trip) (*Reader, *span) {
	cfg := Config{Timeout: timeout, HTTPClient: &http.Client{Transport: do}}
	f := &FS{cfg: cfg, blobs: newBlobs(&cfg)}
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
			f.blockSize = defaultBlockSize
			_, stuck := newStuck(f)
			fs := start(t, f, stuck, func(c *Config) { c.Timeout = timeout })
			w := mustCreate(t, fs, "/a")
			began := time.Now()
			if _, err := w.Write(noise(defaultBlockSize)); err != nil {
				t.Fatal(err)
			}
			wantKind(t, w.Close(), fserror.Unavailable)
			if took := time.Since(began); took > timeout+time.Second {
				t.Errorf("%s instead of %s", took, timeout)
			}
		})
	}
}

// trickle is a body that comes byte by byte.
type trickle struct {
	ctx   context.Context //nolint:containedctx // of the request
	pause time.Duration
}

func (b trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.pause):
		p[0] = 0
		return 1, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (trickle) Close() error { return nil }

// A transfer that trickles is broken off like one that moves nothing, in either
// direction.
func TestTrickleIsBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = stallTime - time.Second
		b := &blobs{stall: stallTime, client: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: trickle{r.Context(), pause}}, nil
			}
			for piece := make([]byte, 1); r.Context().Err() == nil; <-time.After(pause) {
				if _, err := r.Body.Read(piece); err != nil {
					break
				}
			}
			return nil, r.Context().Err()
		})}}
		began := time.Now()
		err := b.download(t.Context(), stallTime, "http://store/", nil, 0, 1<<20, make([]byte, 1<<20))
		if took := time.Since(began); err == nil || took > stallTime {
			t.Errorf("download: %s, %v", took, err)
		}
		began = time.Now()
		err = b.upload(t.Context(), 2*stallTime, "http://store/", nil, make([]byte, 1<<20))
		if took := time.Since(began); err == nil || took > 3*stallTime {
			t.Errorf("upload: %s, %v", took, err)
		}
	})
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

// No error shows the signature of a URL, whatever goes wrong with it.
func TestErrorsHideSignedURLs(t *testing.T) {
	for what, url := range map[string]string{
		"nobody listens": "http://127.0.0.1:1/b/1?sig=secret",
		"no host":        "http:///b/1?sig=secret",
		"no URL":         "http://store:port/b/1?sig=secret",
		"no scheme":      "store/b/1?sig=secret",
	} {
		cfg := Config{Timeout: time.Second}
		b := newBlobs(&cfg)
		for op, err := range map[string]error{
			"upload":   b.upload(t.Context(), time.Second, url, nil, []byte("x")),
			"download": b.download(t.Context(), time.Second, url, nil, 0, 1, make([]byte, 1)),
		} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "secret") {
				t.Errorf("%s, %s: %v", what, op, err)
			}
		}
		b.close()
	}
}

// A backup of blocks of all lengths pools buffers of few sizes.
func TestBuffersHaveFewSizes(t *testing.T) {
	sizes := map[int64]bool{}
	for n := int64(1); n <= blockstore.MaxObjectSize; n += 4093 {
		c := roundCapacity(n)
		if sizes[c] = true; c < n || c > max(2*n, blockstore.StoredLength(2*blockstore.ChunkSize)) {
			t.Fatalf("%d bytes get a buffer of %d", n, c)
		}
	}
	if len(sizes) > 32 {
		t.Errorf("%d sizes", len(sizes))
	}
}
