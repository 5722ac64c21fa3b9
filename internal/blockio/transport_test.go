package blockio

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
)

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A block gets through a link on which it takes longer than a stall may.
func TestSlowUploadIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object, got := make([]byte, 4<<20), new(bytes.Buffer)
		slow := func(r io.Reader) error {
			for piece := make([]byte, 64<<10); ; <-time.After(StallTime / 10) { // the bubble's clock
				n, err := r.Read(piece)
				got.Write(piece[:n])
				if err != nil {
					return nil
				}
			}
		}
		b := &Transport{stall: StallTime, client: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			_ = slow(r.Body)
			if err := r.Context().Err(); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}}
		if err := b.Upload(t.Context(), 2*StallTime, "http://store/", nil, object); err != nil || !bytes.Equal(got.Bytes(), object) {
			t.Fatalf("%d bytes, %v", got.Len(), err)
		}
		// As a connection of ours takes it.
		ctx, w := b.watchStall(t.Context(), b.stall)
		defer w.stop()
		body := &body{left: object, stall: w}
		got.Reset()
		if n, err := body.WriteTo(slowPieces{got}); err != nil || n != int64(len(object)) || !bytes.Equal(got.Bytes(), object) || ctx.Err() != nil {
			t.Fatalf("%d bytes, %v, %v", n, err, context.Cause(ctx))
		}
		// What moves nothing is broken off.
		b.client.Transport = trip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		if err := b.Upload(t.Context(), 2*StallTime, "http://store/", nil, object); err == nil {
			t.Fatal("a dead store took it")
		}
	})
}

// slowPieces takes each piece only just in time.
type slowPieces struct{ w io.Writer }

func (s slowPieces) Write(p []byte) (int, error) {
	<-time.After(StallTime * 9 / 10)
	return s.w.Write(p)
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
		const pause = StallTime - time.Second
		b := &Transport{stall: StallTime, client: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
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
		err := b.Download(t.Context(), StallTime, "http://store/", nil, 0, 1<<20, make([]byte, 1<<20))
		if took := time.Since(began); err == nil || took > StallTime {
			t.Errorf("download: %s, %v", took, err)
		}
		began = time.Now()
		err = b.Upload(t.Context(), 2*StallTime, "http://store/", nil, make([]byte, 1<<20))
		if took := time.Since(began); err == nil || took > 3*StallTime {
			t.Errorf("upload: %s, %v", took, err)
		}
	})
}

// No error shows the signature of a URL, whatever goes wrong with it.
func TestErrorsHideSignedURLs(t *testing.T) {
	for what, url := range map[string]string{
		"nobody listens": "http://127.0.0.1:1/b/1?sig=secret",
		"no host":        "http:///b/1?sig=secret",
		"no URL":         "http://store:port/b/1?sig=secret",
		"no scheme":      "store/b/1?sig=secret",
	} {
		b := NewTransport(nil, nil, nil, time.Second)
		for op, err := range map[string]error{
			"upload":   b.Upload(t.Context(), time.Second, url, nil, []byte("x")),
			"download": b.Download(t.Context(), time.Second, url, nil, 0, 1, make([]byte, 1)),
		} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "secret") {
				t.Errorf("%s, %s: %v", what, op, err)
			}
		}
		b.Close()
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
