package local

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
)

// serveStore serves a store in a temporary folder on loopback.
func serveStore(tb testing.TB, cfg Config) (*Store, *http.Client) {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	if cfg.Secret == nil {
		cfg.Secret = make([]byte, MinSecret)
	}
	cfg.BaseURL = func() string { return "http://" + lis.Addr().String() }
	s, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: blockstore.ServerHeaderTimeout,
		IdleTimeout:       blockstore.ServerIdleTimeout,
		MaxHeaderBytes:    blockstore.ServerMaxHeaderBytes,
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }()
	tr := &http.Transport{MaxIdleConnsPerHost: 64, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}
	tb.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		<-done
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s, &http.Client{Transport: tr}
}

func benchObject() ([]byte, uint32) {
	buf := make([]byte, blockstore.DefaultBlockSize, blockstore.StoredLength(blockstore.DefaultBlockSize))
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(buf)
	return blockstore.Seal(buf)
}

// inFlight runs work(i) b.N times, n at a time.
func inFlight(b *testing.B, n int, work func(i uint64) error) {
	var next atomic.Uint64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > uint64(b.N) {
					return
				}
				if err := work(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func BenchmarkPUT(b *testing.B) {
	object, crc := benchObject()
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
			s, client := serveStore(b, Config{})
			b.SetBytes(int64(len(object)))
			inFlight(b, n, func(i uint64) error {
				key := blockstore.Key{Term: 1, Seq: i}
				signed, err := s.SignPut(key, int64(len(object)), crc, time.Now().Add(time.Minute))
				if err != nil {
					return err
				}
				req, err := signed.NewRequest(b.Context(), object)
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					return fmt.Errorf("status %d", resp.StatusCode)
				}
				if i > 16 { // keeps the disk from filling
					return s.Delete(b.Context(), blockstore.Key{Term: 1, Seq: i - 16})
				}
				return nil
			})
		})
	}
}

// BenchmarkPut is the same without HTTP: what the disk and the file system take.
func BenchmarkPut(b *testing.B) {
	object, crc := benchObject()
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
			s, _ := serveStore(b, Config{})
			b.SetBytes(int64(len(object)))
			inFlight(b, n, func(i uint64) error {
				if err := s.Put(b.Context(), blockstore.Key{Term: 1, Seq: i}, object, crc); err != nil {
					return err
				}
				if i > 16 {
					return s.Delete(b.Context(), blockstore.Key{Term: 1, Seq: i - 16})
				}
				return nil
			})
		})
	}
}

func BenchmarkGET(b *testing.B) {
	object, crc := benchObject()
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
			s, client := serveStore(b, Config{})
			key := blockstore.Key{Term: 1, Seq: 1}
			if err := s.Put(b.Context(), key, object, crc); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(object)))
			bufs := sync.Pool{New: func() any { p := make([]byte, len(object)); return &p }}
			inFlight(b, n, func(uint64) error {
				signed, err := s.SignGet(key, time.Now().Add(time.Minute))
				if err != nil {
					return err
				}
				req, err := signed.NewRequest(b.Context(), nil)
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				buf := bufs.Get().(*[]byte)
				defer bufs.Put(buf)
				_, err = io.ReadFull(resp.Body, *buf)
				_ = resp.Body.Close()
				return err
			})
		})
	}
}

func BenchmarkVerifySignature(b *testing.B) {
	g := newSigner(make([]byte, MinSecret), clock.System{})
	path := blockstore.URLPath([16]byte{1}, blockstore.Key{Term: 1, Seq: 2})
	query := g.sign(http.MethodPut, path, putTerms(1, 2, 3))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := g.verify(http.MethodPut, path, query); !ok {
			b.Fatal("refused")
		}
	}
}
