package client

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// put writes a file of several pages of blocks and a tail.
func put(t *testing.T, fs *FS, path string, n int) []byte {
	t.Helper()
	want := noise(n)
	w := mustCreate(t, fs, path)
	_, err := w.Write(want)
	check(t, err)
	check(t, w.Close())
	return want
}

func mustOpen(t *testing.T, fs *FS, path string) *Reader {
	t.Helper()
	r, err := fs.Open(t.Context(), path)
	check(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestReadWays(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	want := put(t, fs, "/a", 3<<20+12345)
	if got, err := fs.ReadFile(t.Context(), "/a"); err != nil || !bytes.Equal(got, want) {
		t.Fatal("ReadFile", err)
	}
	r := mustOpen(t, fs, "/a")
	if got, err := io.ReadAll(struct{ io.Reader }{r}); err != nil || !bytes.Equal(got, want) {
		t.Fatal("Read", err)
	}
	_, err := r.Seek(100, io.SeekStart)
	check(t, err)
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, r); err != nil || !bytes.Equal(buf.Bytes(), want[100:]) {
		t.Fatal("WriteTo", err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(g)))
			for range 200 {
				off := rnd.IntN(len(want))
				p := make([]byte, rnd.IntN(200_000))
				n, err := r.ReadAt(p, int64(off))
				if end := off + len(p); end > len(want) && !errors.Is(err, io.EOF) || end <= len(want) && err != nil {
					t.Errorf("ReadAt(%d, %d): %d, %v", len(p), off, n, err)
				}
				if !bytes.Equal(p[:n], want[off:off+n]) || n != min(len(p), len(want)-off) {
					t.Errorf("ReadAt(%d, %d) gave other bytes, %d", len(p), off, n)
				}
			}
		})
	}
	wg.Wait()
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatal("at the end:", n, err)
	}
	check(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	wantKind(t, err, fserror.Closed)
	wantKind(t, r.Close(), fserror.Closed)
}

func TestSequentialReadIsOneGetABlock(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	want := put(t, fs, "/a", 8*256<<10)
	f.set(func() { f.gets = 0 })
	r := mustOpen(t, fs, "/a")
	got := make([]byte, 0, len(want))
	p := make([]byte, 1000)
	for {
		n, err := r.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !bytes.Equal(got, want) || f.gets != 8 {
		t.Fatalf("%d bytes of %d by %d GETs", len(got), len(want), f.gets)
	}
}

// Scenario 58: a flipped bit anywhere, a truncated block, a missing block.
func TestScenario58Damage(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	want := put(t, fs, "/a", 600<<10)
	var key blockstore.Key
	var good []byte
	f.set(func() {
		b := f.files["/a"].blocks[1]
		key = keyOf(b.Term, b.Seq)
		good = f.objects[key]
	})
	const start = 256 << 10
	harm := map[string]func([]byte) []byte{
		"data bit":  func(o []byte) []byte { o[70_000] ^= 1; return o },
		"table bit": func(o []byte) []byte { o[len(o)-1] ^= 0x80; return o },
		"short":     func(o []byte) []byte { return o[:len(o)-100] },
		"half":      func(o []byte) []byte { return o[:len(o)/2] },
		"missing":   func([]byte) []byte { return nil },
		"other": func([]byte) []byte {
			o, _ := blockstore.Seal(noise(256<<10 - 1))
			return o
		},
	}
	for name, fn := range harm {
		t.Run(name, func(t *testing.T) {
			f.set(func() {
				if o := fn(bytes.Clone(good)); o != nil {
					f.objects[key] = o
				} else {
					delete(f.objects, key)
				}
			})
			defer f.set(func() { f.objects[key] = good })
			_, err := fs.ReadFile(t.Context(), "/a")
			wantKind(t, err, fserror.Damaged)
			if s := err.Error(); !strings.Contains(s, "/a") || !strings.Contains(s, key.String()) || !strings.Contains(s, "of the file") {
				t.Fatal(s)
			}
			r := mustOpen(t, fs, "/a")
			p := make([]byte, 1000)
			n, err := r.ReadAt(p, start+70_000)
			if err == nil && !bytes.Equal(p, want[start+70_000:][:1000]) {
				t.Fatal("wrong bytes without an error")
			}
			if err != nil {
				wantKind(t, err, fserror.Damaged)
				if n != 0 || !bytes.Equal(p, make([]byte, 1000)) {
					t.Fatal("unverified bytes came out")
				}
			} else if name == "data bit" || name == "missing" || name == "table bit" {
				t.Fatal("no error")
			}
			// The other blocks can be read.
			if _, err := r.ReadAt(p, 1000); err != nil || !bytes.Equal(p, want[1000:2000]) {
				t.Fatal(err)
			}
		})
	}
}

func TestDamageNamesTheOffset(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	put(t, fs, "/a", 600<<10)
	f.set(func() {
		b := f.files["/a"].blocks[1]
		f.objects[keyOf(b.Term, b.Seq)][70_000] ^= 4
	})
	_, err := fs.ReadFile(t.Context(), "/a")
	// The second chunk of the second block.
	if err == nil || !strings.Contains(err.Error(), "at offset 327680 of the file") {
		t.Fatal(err)
	}
}

func TestURLsExpireWhileReading(t *testing.T) {
	f := newFake()
	fs := start(t, f, func(c *Config) { c.ReadAhead = 1 })
	want := put(t, fs, "/a", 2<<20)
	r := mustOpen(t, fs, "/a")
	got := make([]byte, 0, len(want))
	p := make([]byte, 100_000)
	for i := 0; len(got) < len(want); i++ {
		if i%5 == 0 {
			f.set(func() { f.urlGen++ }) // all URLs are refused from now on
		}
		n, err := r.Read(p)
		check(t, err)
		got = append(got, p[:n]...)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("other bytes")
	}
}

// The blocks behind the one that is read are on their way, also behind those that were in memory when
// they were needed.
func TestReadsAhead(t *testing.T) {
	const blocks, ahead = 4, 1
	f := newFake()
	fs := start(t, f, func(c *Config) { c.ReadAhead = ahead })
	want := put(t, fs, "/a", blocks*256<<10)
	asked := make(chan struct{}, blocks)
	f.set(func() { f.get = func(int, blockstore.Key) int { asked <- struct{}{}; return 0 } })
	r := mustOpen(t, fs, "/a")
	got, begun := make([]byte, 0, len(want)), 0
	p := make([]byte, 128<<10)
	for len(got) < len(want) {
		_, err := io.ReadFull(r, p)
		check(t, err)
		got = append(got, p...)
		for here := (len(got) - 1) / (256 << 10); begun < min(here+1+ahead, blocks); begun++ {
			select {
			case <-asked:
			case <-time.After(time.Minute):
				t.Fatalf("in block %d, %d blocks are begun", here, begun)
			}
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes")
	}
}

func TestDeletedWhileReading(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	want := put(t, fs, "/a", 3<<20)
	r := mustOpen(t, fs, "/a")
	f.set(func() { delete(f.inodes, f.files["/a"].inode); delete(f.files, "/a") })
	// The URLs it holds are good for a while: four blocks.
	p := make([]byte, 1<<20)
	if _, err := r.ReadAt(p, 0); err != nil || !bytes.Equal(p, want[:1<<20]) {
		t.Fatal(err)
	}
	_, err := r.ReadAt(p, 2<<20)
	wantKind(t, err, fserror.NotFound)
	f.set(func() { f.urlGen++ })
	_, err = r.ReadAt(p[:100], 100)
	wantKind(t, err, fserror.NotFound)
}

func TestStoreFailsNowAndThen(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	want := put(t, fs, "/a", 2<<20)
	f.set(func() {
		f.get = func(n int, _ blockstore.Key) int {
			if n%3 == 0 {
				return http.StatusServiceUnavailable
			}
			return 0
		}
	})
	if got, err := fs.ReadFile(t.Context(), "/a"); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
}

// Scenario 54: a reader of a file being written sees what was flushed, and
// follows.
func TestScenario54Follow(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("one"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	_, err = w.Write([]byte("two"))
	check(t, err)
	r := mustOpen(t, fs, "/a")
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "one" {
		t.Fatalf("%q, %v", got, err)
	}
	go func() {
		_ = w.Flush(t.Context())
		_, _ = w.Write(noise(300 << 10))
		_ = w.Close()
	}()
	for open := true; open; {
		var err error
		_, open, err = r.WaitBeyond(t.Context(), int64(len(got)))
		check(t, err)
		more, err := io.ReadAll(r)
		check(t, err)
		got = append(got, more...)
	}
	if !bytes.Equal(got, append([]byte("onetwo"), noise(300<<10)...)) {
		t.Fatalf("%d bytes", len(got))
	}
	info, err := r.Stat()
	check(t, err)
	if info.Open != nil || info.Length != int64(len(got)) {
		t.Fatalf("%+v", info)
	}
}
