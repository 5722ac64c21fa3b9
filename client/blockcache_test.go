package client_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/test/env"
)

// cutOff is a way to the block store that can be cut.
type cutOff struct{ cut atomic.Bool }

func (c *cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && c.cut.Load() {
		return nil, errors.New("cut")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestBlockCache: each way to read gets from the block cache what an earlier one has
// brought there, while the store cannot be reached, and never what the file had before.
func TestBlockCache(t *testing.T) {
	t.Parallel()
	n, store := env.Start(t), new(cutOff)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	dir := filepath.Join(t.TempDir(), "blocks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := n.Client(t, func(c *client.Config) {
		c.BlockCache, c.HTTPClient, c.BlockSize = dir, &http.Client{Transport: store}, 1<<20
	})
	contents := make([][]byte, 2)
	for i := range contents {
		contents[i] = make([]byte, 3<<20+12_345)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(contents[i])
	}
	const chunk = blockstore.ChunkSize
	reads := map[string]func(r *client.Reader) ([]byte, error){
		"whole blocks": func(r *client.Reader) ([]byte, error) {
			var b bytes.Buffer
			_, err := r.WriteTo(&b)
			return b.Bytes(), err
		},
		"a little at a time": func(r *client.Reader) ([]byte, error) {
			return io.ReadAll(bufio.NewReaderSize(struct{ io.Reader }{r}, 1000))
		},
		"in large pieces": func(r *client.Reader) ([]byte, error) {
			return io.ReadAll(bufio.NewReaderSize(struct{ io.Reader }{r}, 700_000))
		},
		"here and there": func(r *client.Reader) ([]byte, error) {
			out := make([]byte, r.Length())
			for _, i := range rand.Perm(len(out)/chunk + 1) {
				if _, err := r.ReadAt(out[i*chunk:min((i+1)*chunk, len(out))], int64(i*chunk)); err != nil && !errors.Is(err, io.EOF) {
					return nil, err
				}
			}
			return out, nil
		},
		"without limits of chunks": func(r *client.Reader) ([]byte, error) {
			out := make([]byte, r.Length())
			for off := len(out); off > 0; off = max(off-99_999, 0) {
				from := max(off-99_999, 0)
				if _, err := r.ReadAt(out[from:off], int64(from)); err != nil && !errors.Is(err, io.EOF) {
					return nil, err
				}
			}
			return out, nil
		},
	}
	read := func(how string, want []byte) {
		t.Helper()
		r, err := f.Open(t.Context(), "/f")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := reads[how](r)
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: wrong bytes", how)
		}
	}
	for first := range reads {
		for i := range contents { // the second is another file of the same name
			want := contents[(i+len(first))%2]
			store.cut.Store(false)
			if err := f.WriteFile(t.Context(), "/f", want, client.WithOverwrite()); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "all is kept", func() bool {
				before := f.Stats().BlockCache.Misses
				read(first, want)
				return f.Stats().BlockCache.Misses == before
			})
			store.cut.Store(true)
			for how := range reads {
				read(how, want)
			}
		}
	}
	if got := f.Stats().BlockCache; got.Damaged != 0 || got.Evicted != 0 {
		t.Errorf("%+v", got)
	}
}
