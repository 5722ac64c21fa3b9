package local

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/blocktest"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

var testID = [16]byte{0xab, 1, 2, 3}

// object seals n bytes that depend on seed.
func object(n int, seed byte) ([]byte, uint32) {
	data := make([]byte, n, blockstore.StoredLength(int64(n)))
	for i := range data {
		data[i] = byte(i*7) + seed
	}
	return blockstore.Seal(data)
}

// harness serves a store over HTTP.
func harness(t *testing.T, cfg Config) (*Store, *clock.Fake, blocktest.Harness) {
	t.Helper()
	fake := &clock.Fake{}
	var srv *httptest.Server
	cfg.Clock = fake
	cfg.NamespaceID = testID
	cfg.Secret = []byte(strings.Repeat("s", MinSecret))
	cfg.BaseURL = func() string { return srv.URL }
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv = httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		srv.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		requireNoTemporaries(t, s)
	})
	return s, fake, blocktest.Harness{Store: s, Client: srv.Client(), Now: fake.Wall, Advance: fake.Advance}
}

// requireNoTemporaries fails if a PUT left something in tmp.
func requireNoTemporaries(t *testing.T, s *Store) {
	t.Helper()
	names, err := s.cfg.FS.List(s.tmp.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, tmpSuffix) {
			t.Errorf("left in tmp: %s", name)
		}
	}
}

func TestConformance(t *testing.T) {
	blocktest.Run(t, func(t *testing.T) blocktest.Harness {
		_, _, h := harness(t, Config{FS: vfs.OS(), Dir: t.TempDir()})
		return h
	})
}

func TestConformanceInMemory(t *testing.T) {
	blocktest.Run(t, func(t *testing.T) blocktest.Harness {
		_, _, h := harness(t, Config{FS: crashfs.New(), Dir: "/blocks"})
		return h
	})
}

func TestOpenRefusesBadConfig(t *testing.T) {
	for _, cfg := range []Config{
		{Secret: make([]byte, MinSecret)},
		{Dir: t.TempDir()},
		{Dir: t.TempDir(), Secret: make([]byte, MinSecret-1)},
	} {
		if _, err := Open(cfg); !errors.Is(err, fserror.InvalidArgument) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestOpenSweepsOnlyWhatIsDead(t *testing.T) {
	dir := t.TempDir()
	alive, _, _ := harness(t, Config{Dir: dir})
	tmp := alive.tmp.dir
	mine := filepath.Join(tmp, alive.tmp.id+"-1.tmp")
	dead := filepath.Join(tmp, "00000000000000aa-1.tmp")
	deadLock := filepath.Join(tmp, "00000000000000aa.lock")
	noLock := filepath.Join(tmp, "00000000000000bb-12.tmp")
	strange := filepath.Join(tmp, "notes.txt")
	strange2 := filepath.Join(tmp, "ABC-1.tmp")
	for _, name := range []string{mine, dead, deadLock, noLock, strange, strange2} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness(t, Config{Dir: dir})
	for name, want := range map[string]bool{mine: true, strange: true, strange2: true, dead: false, deadLock: false, noLock: false} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %t", name, err, want)
		}
	}
	for _, name := range []string{mine, strange2} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoStoresShareAFolder(t *testing.T) {
	dir := t.TempDir()
	a, _, _ := harness(t, Config{Dir: dir})
	b, _, h := harness(t, Config{Dir: dir})
	obj, crc := object(1000, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	if err := a.Put(t.Context(), key, obj, crc); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), key, obj, crc); !errors.Is(err, fserror.Exists) {
		t.Fatal(err)
	}
	// A URL signed by one is good at the other: they have the same secret.
	signed, err := a.SignGet(key, h.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	b.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, signed.URL, nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d", rec.Code)
	}
}

func TestLayoutAndForeignNames(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := harness(t, Config{Dir: dir})
	obj, crc := object(10, 1)
	key := blockstore.Key{Term: 0x1f, Seq: 0x12345}
	if err := s.Put(t.Context(), key, obj, crc); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "ab010203000000000000000000000000")
	folder := filepath.Join(root, "000000000000001f", "00000000000048")
	if _, err := os.Stat(filepath.Join(folder, "0000000000012345.blk")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		filepath.Join(folder, "0000000000012346.tmp"),
		filepath.Join(folder, "0000000000000001.blk"), // of another folder
		filepath.Join(folder, "12346.blk"),
		filepath.Join(folder, "000000000001234A.blk"),
		filepath.Join(root, "000000000000001F", "00000000000048", "0000000000012345.blk"),
		filepath.Join(root, "1f", "00000000000048", "0000000000012345.blk"),
		filepath.Join(dir, "cd010203000000000000000000000000", "000000000000001f", "00000000000048", "0000000000012345.blk"),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, obj, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := s.List(t.Context(), blockstore.Key{}, 100)
	if err != nil || len(infos) != 1 || infos[0].Key != key || time.Since(infos[0].Stored).Abs() > time.Hour {
		t.Fatalf("List: %+v, %v", infos, err)
	}
}

func TestReserveAndLimits(t *testing.T) {
	disk := crashfs.New()
	disk.Capacity(1 << 20)
	s, _, h := harness(t, Config{FS: disk, Dir: "/b", Reserve: 512 << 10, MaxObject: 300 << 10})
	put := func(seq uint64, n int) error {
		obj, crc := object(n, 1)
		return s.Put(t.Context(), blockstore.Key{Term: 1, Seq: seq}, obj, crc)
	}
	if err := put(1, 300<<10); !errors.Is(err, fserror.TooLarge) {
		t.Fatalf("over MaxObject: %v", err)
	}
	if err := put(2, 290<<10); err != nil {
		t.Fatal(err)
	}
	if err := put(3, 290<<10); !errors.Is(err, fserror.NoSpace) {
		t.Fatalf("into the reserve: %v", err)
	}
	if free, total, err := s.Usage(t.Context()); err != nil || total != 1<<20 || free > 230<<10 {
		t.Fatalf("%d of %d free, %v", free, total, err)
	}
	obj, crc := object(290<<10, 1)
	signed, err := s.SignPut(blockstore.Key{Term: 1, Seq: 3}, int64(len(obj)), crc, h.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if status, kind := send(t, h.Client, signed, obj); status != http.StatusInsufficientStorage || kind != "NO_SPACE" {
		t.Fatalf("PUT into the reserve: %d %s", status, kind)
	}
	if err := s.Delete(t.Context(), blockstore.Key{Term: 1, Seq: 2}); err != nil {
		t.Fatal(err)
	}
	if err := put(3, 290<<10); err != nil {
		t.Fatalf("after a delete: %v", err)
	}
	if s.pending.Load() != 0 {
		t.Fatalf("%d bytes stay booked", s.pending.Load())
	}
}

func TestDiskFull(t *testing.T) {
	disk := crashfs.New()
	s, _, _ := harness(t, Config{FS: disk, Dir: "/b"})
	disk.FailWrite("*"+tmpSuffix, syscall.ENOSPC)
	obj, crc := object(2<<20, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	if err := s.Put(t.Context(), key, obj, crc); !errors.Is(err, fserror.NoSpace) {
		t.Fatal(err)
	}
	requireNoTemporaries(t, s)
	disk.Heal()
	if err := s.Put(t.Context(), key, obj, crc); err != nil {
		t.Fatal(err)
	}
}

func TestClosed(t *testing.T) {
	s, _, h := harness(t, Config{Dir: t.TempDir()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	obj, crc := object(10, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	if err := s.Put(t.Context(), key, obj, crc); !errors.Is(err, fserror.Closed) {
		t.Fatal(err)
	}
	signed, err := s.SignPut(key, int64(len(obj)), crc, h.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := send(t, h.Client, signed, obj); status != http.StatusServiceUnavailable {
		t.Fatalf("status %d", status)
	}
}

func TestFolderCacheIsBounded(t *testing.T) {
	f := folders{fs: crashfs.New()}
	kept := f.get(place{1, 0}, "/x")
	for i := range uint64(3 * maxFolders) {
		f.release(f.get(place{2, i}, "/y"))
	}
	if len(f.m) > maxFolders || f.get(place{1, 0}, "/x") != kept {
		t.Fatalf("%d folders; the pinned one must stay", len(f.m))
	}
}

func TestStatsHaveEveryReason(t *testing.T) {
	s, _, _ := harness(t, Config{Dir: t.TempDir()})
	st := s.Stats()
	var names []string
	for r := range st.Rejected {
		names = append(names, string(r))
	}
	slices.Sort(names)
	if len(names) != len(reasons) || st.MaxPuts != DefaultMaxPuts {
		t.Fatalf("%+v", st)
	}
}

// Folders that Delete empties go, so that listings do not read them for ever, and come back for a
// PUT. That of the latest PUT stays.
func TestEmptyFoldersGo(t *testing.T) {
	s, _, _ := harness(t, Config{FS: crashfs.New(), Dir: "/b"})
	obj, crc := object(100, 1)
	var keys []blockstore.Key
	put := func(seq uint64) {
		t.Helper()
		key := blockstore.Key{Term: 1, Seq: seq << folderBits}
		if err := s.Put(t.Context(), key, obj, crc); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	folders := func(want int) {
		t.Helper()
		have, err := s.subfolders(filepath.Dir(s.folderPath(place{term: 1})), folderDigits, 0)
		if err != nil || len(have) != want {
			t.Errorf("%d folders, want %d (%v)", len(have), want, err)
		}
	}
	for seq := range uint64(5) {
		put(seq)
	}
	if err := s.Delete(t.Context(), keys[1:]...); err != nil {
		t.Fatal(err)
	}
	folders(2)
	put(1)
	folders(3)
	if err := s.Delete(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	folders(1)
}

// PUTs find their folder while Delete removes it.
func TestPutsWhileFoldersGo(t *testing.T) {
	s, _, _ := harness(t, Config{FS: vfs.OS(), Dir: t.TempDir()})
	obj, crc := object(100, 1)
	if err := s.Put(t.Context(), blockstore.Key{Term: 2}, obj, crc); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	for i := range uint64(4) {
		g.Go(func() error {
			for n := range uint64(50) {
				key := blockstore.Key{Term: 1, Seq: i<<8 + n}
				if err := s.Put(t.Context(), key, obj, crc); err != nil {
					return err
				}
				if err := s.Delete(t.Context(), key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
