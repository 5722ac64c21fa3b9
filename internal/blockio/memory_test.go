package blockio

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// store serves one object under all URLs, and counts the bytes.
type store struct {
	object []byte
	bytes  atomic.Int64
}

func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.object))
	resp := w.Result()
	s.bytes.Add(resp.ContentLength)
	return resp, nil
}

// listOf is a file of so many blocks that are alike.
func listOf(blocks, length, stored int64, crc uint32) *List {
	l := &List{To: blocks * length}
	for i := range blocks {
		l.Blocks = append(l.Blocks, Block{Key: blockstore.Key{Term: 1, Seq: uint64(i)}, Off: i * length, Used: length, Data: length, Stored: stored, CRC: crc, URL: "http://store/"}) //nolint:gosec // a number
	}
	return l
}

// Files that are read in order have whole blocks in memory, which are bounded: beyond that they
// are read by pieces, with the same bytes, until others have been idle for a while.
func TestMemoryIsBounded(t *testing.T) {
	const blocks, files, length = 5, 40, 4 * blockstore.ChunkSize
	synctest.Test(t, func(t *testing.T) {
		data := make([]byte, length)
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(data)
		object, crc := blockstore.Seal(bytes.Clone(data))
		stored := int64(len(object))
		s := &store{object: object}
		b := NewTransport(&http.Client{Transport: s}, nil, nil, time.Minute)
		b.memory.most = 10 * stored
		l := listOf(blocks, length, stored, crc)
		var all []*Fetcher
		for range files {
			f := NewFetcher(t.Context(), b, File{Path: "/f", Ahead: 2, Tries: func() Tries { return Tries{Limit: time.Minute} }})
			all = append(all, f)
		}
		used := func() int64 {
			synctest.Wait()
			b.memory.mu.Lock()
			defer b.memory.mu.Unlock()
			if b.memory.used > b.memory.most {
				t.Fatalf("%d bytes in memory, at most %d may be", b.memory.used, b.memory.most)
			}
			return b.memory.used
		}
		read := func(f *Fetcher, off int64, n int) {
			got, i := 0, off/length
			err := f.Whole(t.Context(), l, &l.Blocks[i], l.To, off%length, n, func(p []byte) {
				p = p[:min(n, len(p))]
				if got = len(p); !bytes.Equal(p, data[off%length:][:got]) {
					t.Error("these are other bytes")
				}
			})
			if err != nil || got != n {
				t.Fatalf("read at %d: %d bytes, %v", off, got, err)
			}
		}
		// A few get whole blocks.
		for off := int64(0); off < l.To; off += length / 4 {
			read(all[0], off, length/4)
		}
		if got, want := s.bytes.Load(), blocks*stored; got != want || used() == 0 {
			t.Errorf("%d bytes from the store, want each block once, %d; %d are kept", got, want, used())
		}
		// Not all at once: no more comes from the store then than is read, the chunks' checksums beside.
		for off := int64(0); off < l.To; off += length / 4 {
			for _, f := range all {
				read(f, off, length/4)
			}
			used()
		}
		if got, most := s.bytes.Load(), int64(files+1)*blocks*(stored+1024); got > most {
			t.Errorf("%d bytes from the store, more than %d", got, most)
		}
		// What is idle makes room.
		<-time.After(time.Minute)
		before := s.bytes.Load()
		for off := int64(0); off < l.To; off += length / 4 {
			read(all[files-1], off, length/4)
		}
		if got := s.bytes.Load() - before; got != blocks*stored {
			t.Errorf("%d bytes from the store for one reader, want %d", got, blocks*stored)
		}
		// A writer's blocks count, too.
		var leave []Room
		for {
			r := b.Ahead(stored, nil)
			if r == nil {
				break
			}
			leave = append(leave, r)
		}
		if full := used(); full < b.memory.most-stored+1 || len(leave) == 0 {
			t.Errorf("with %d blocks of writers %d bytes are used", len(leave), full)
		}
		if b.Ahead(stored, func() func() { t.Error("asked without memory"); return nil }) != nil {
			t.Error("more than there is")
		}
		for _, r := range leave {
			r.Give()
		}
		if b.Ahead(stored, func() func() { return nil }) != nil {
			t.Error("room that the other did not give")
		}
		for _, f := range all {
			f.Close()
		}
		if n := used(); n != 0 || len(b.memory.fetchers) != 0 {
			t.Errorf("%d bytes are used by nobody, %d fetchers known", n, len(b.memory.fetchers))
		}
	})
}

// Who reads seldom does not have whole blocks fetched again for each read, while others want the room.
func TestSlowReadersFetchLittle(t *testing.T) {
	const blocks, files, length = 5, 8, 4 * blockstore.ChunkSize
	synctest.Test(t, func(t *testing.T) {
		object, crc := blockstore.Seal(make([]byte, length))
		stored := int64(len(object))
		s := &store{object: object}
		b := NewTransport(&http.Client{Transport: s}, nil, nil, time.Minute)
		b.memory.most = 6 * stored
		l := listOf(blocks, length, stored, crc)
		for _, pause := range []time.Duration{time.Second, 4 * time.Second} {
			before := s.bytes.Load()
			var all []*Fetcher
			for range files {
				all = append(all, NewFetcher(t.Context(), b, File{Path: "/f", Ahead: 2, Tries: func() Tries { return Tries{Limit: time.Minute} }}))
			}
			for off := int64(0); off < l.To; off += length / 4 {
				for _, f := range all {
					if err := f.Whole(t.Context(), l, &l.Blocks[off/length], l.To, off%length, length/4, func([]byte) {}); err != nil {
						t.Fatal(err)
					}
					<-time.After(pause / files)
				}
			}
			for _, f := range all {
				f.Close()
			}
			if got, most := s.bytes.Load()-before, 2*files*blocks*(stored+1024); got > most {
				t.Errorf("each %v: %d bytes from the store, more than %d", pause, got, most)
			}
		}
	})
}
