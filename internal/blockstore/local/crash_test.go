package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

func openOn(disk vfs.FS) (*Store, error) {
	return Open(Config{FS: disk, Dir: "/data/blocks", NamespaceID: testID, Secret: make([]byte, MinSecret)})
}

// history is what callers of a store were told.
type history struct {
	acked, deleted, tried map[blockstore.Key]byte // the object's seed
}

// workload opens a store, puts blocks in several folders and deletes some. It
// stops at the first error.
func workload(disk vfs.FS) (h history, err error) {
	h = history{map[blockstore.Key]byte{}, map[blockstore.Key]byte{}, map[blockstore.Key]byte{}}
	s, err := openOn(disk)
	if err != nil {
		return h, err
	}
	ctx := context.Background() //nolint:usetesting // no test at hand
	for i, key := range []blockstore.Key{{Term: 1, Seq: 1}, {Term: 1, Seq: 2}, {Term: 1, Seq: 5000}, {Term: 2, Seq: 1}} {
		seed := byte(i + 1)
		obj, crc := object(pieceSize+1000, seed)
		h.tried[key] = seed
		if err := s.Put(ctx, key, obj, crc); err != nil {
			return h, err
		}
		h.acked[key] = seed
		// A second PUT never changes anything.
		other, otherCRC := object(1000, seed+100)
		if err := s.Put(ctx, key, other, otherCRC); !errors.Is(err, fserror.Exists) {
			return h, fmt.Errorf("second put: %w", err)
		}
	}
	for _, key := range []blockstore.Key{{Term: 1, Seq: 1}, {Term: 2, Seq: 1}} {
		h.tried[key] = h.acked[key]
		delete(h.acked, key) // from here on either is right
		if err := s.Delete(ctx, key); err != nil {
			return h, err
		}
		h.deleted[key] = 0
	}
	return h, s.Close()
}

// check opens the disk as a crash left it and holds it against the history.
// It returns what the store acknowledged in all.
func check(t *testing.T, disk vfs.FS, h history) history {
	t.Helper()
	s, err := openOn(disk)
	if err != nil {
		t.Fatalf("open after the crash: %v", err)
	}
	requireNoTemporaries(t, s)
	infos, err := s.List(t.Context(), blockstore.Key{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	found := map[blockstore.Key]bool{}
	for _, info := range infos {
		found[info.Key] = true
		seed, ok := h.tried[info.Key]
		if _, gone := h.deleted[info.Key]; !ok || gone {
			t.Fatalf("block %s should not be there", info.Key)
		}
		want, crc := object(pieceSize+1000, seed)
		r, err := s.Get(t.Context(), info.Key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || len(got) != len(want) {
			t.Fatalf("block %s: %d bytes of %d, %v", info.Key, len(got), len(want), err)
		}
		if err := blockstore.Verify(info.Key, got, crc); err != nil {
			t.Fatal(err)
		}
	}
	for key := range h.acked {
		if !found[key] {
			t.Fatalf("block %s was acknowledged and is gone", key)
		}
	}
	// The store still works: an unacknowledged PUT can be repeated.
	acked := map[blockstore.Key]byte{}
	for key, seed := range h.tried {
		if _, gone := h.deleted[key]; gone {
			continue
		}
		obj, crc := object(pieceSize+1000, seed)
		if err := s.Put(t.Context(), key, obj, crc); err != nil && !errors.Is(err, fserror.Exists) {
			t.Fatalf("put again: %v", err)
		}
		acked[key] = seed
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return history{acked, h.deleted, h.tried}
}

// TestCrashAtEveryPoint: scenario 46 for blocks.
func TestCrashAtEveryPoint(t *testing.T) {
	base := crashfs.New()
	if _, err := workload(base); err != nil {
		t.Fatal(err)
	}
	points := base.Ops()
	if points < 50 {
		t.Fatalf("only %d points", points)
	}
	modes := map[string]crashfs.Mode{"strict": crashfs.Strict, "torn": crashfs.Torn, "kill": crashfs.Kill}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			for n := 1; n <= points; n++ {
				seeds := uint64(1)
				if mode == crashfs.Torn {
					seeds = 3
				}
				for seed := range seeds {
					disk := crashfs.New(seed)
					disk.CrashAt(n)
					h, err := workload(disk)
					if err == nil {
						t.Fatalf("no error at point %d", n)
					}
					after := disk.Crash(mode)
					h = check(t, after, h)
					// What a restart acknowledged (412 included) survives a second crash.
					check(t, after.Crash(crashfs.Strict), h)
				}
			}
		})
	}
}

// TestFailedFileSync: a PUT whose fsync failed is an error and never appears.
func TestFailedFileSync(t *testing.T) {
	disk := crashfs.New()
	s, err := openOn(disk)
	if err != nil {
		t.Fatal(err)
	}
	obj, crc := object(1000, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	disk.FailSync("*"+tmpSuffix, nil)
	if err := s.Put(t.Context(), key, obj, crc); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("%v, want Unavailable", err)
	}
	if _, err := s.Stat(t.Context(), key); !errors.Is(err, fserror.NotFound) {
		t.Fatalf("Stat: %v", err)
	}
	requireNoTemporaries(t, s)
	disk.Heal()
	if err := s.Put(t.Context(), key, obj, crc); err != nil {
		t.Fatal(err)
	}
	if s, err = openOn(disk.Crash()); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), key, obj, crc); !errors.Is(err, fserror.Exists) {
		t.Fatalf("after a crash: %v, want Exists", err)
	}
}

// TestFailedFolderSync: after it, nothing that a later fsync returns makes the
// store say 412 (which a client takes for a success) of that key.
func TestFailedFolderSync(t *testing.T) {
	disk := crashfs.New()
	s, err := openOn(disk)
	if err != nil {
		t.Fatal(err)
	}
	obj, crc := object(1000, 1)
	a, b, c := blockstore.Key{Term: 1, Seq: 1}, blockstore.Key{Term: 1, Seq: 2}, blockstore.Key{Term: 1, Seq: 3}
	if err := s.Put(t.Context(), a, obj, crc); err != nil { // makes the folder
		t.Fatal(err)
	}
	disk.FailSync(strings.Repeat("0", folderDigits), nil)
	if err := s.Put(t.Context(), b, obj, crc); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("%v, want Unavailable", err)
	}
	disk.Heal()
	if err := s.Put(t.Context(), b, obj, crc); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("the same key again: %v, want Unavailable", err)
	}
	if err := s.Put(t.Context(), c, obj, crc); err != nil {
		t.Fatalf("another key: %v", err)
	}
	if err := s.Put(t.Context(), a, obj, crc); !errors.Is(err, fserror.Exists) {
		t.Fatalf("a key from before: %v, want Exists", err)
	}
	s, err = openOn(disk.Crash())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []blockstore.Key{a, c} {
		if _, err := s.Stat(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedSyncOfNewFolder: the folder is not taken for durable afterwards.
func TestFailedSyncOfNewFolder(t *testing.T) {
	disk := crashfs.New()
	s, err := openOn(disk)
	if err != nil {
		t.Fatal(err)
	}
	obj, crc := object(1000, 1)
	key := blockstore.Key{Term: 7, Seq: 1}
	disk.FailSync("0000000000000007", nil)
	if err := s.Put(t.Context(), key, obj, crc); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("%v, want Unavailable", err)
	}
	if _, err := s.Stat(t.Context(), key); !errors.Is(err, fserror.NotFound) {
		t.Fatalf("Stat: %v", err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	disk := crashfs.New()
	s, err := openOn(disk)
	if err != nil {
		t.Fatal(err)
	}
	obj, crc := object(1000, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	if err := s.Put(t.Context(), key, obj, crc); err != nil {
		t.Fatal(err)
	}
	disk.ReadOnly(true)
	if err := s.Put(t.Context(), blockstore.Key{Term: 1, Seq: 2}, obj, crc); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("put: %v", err)
	}
	if err := s.Delete(t.Context(), key); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("delete: %v", err)
	}
	if _, err := s.Stat(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrentPutsShareSyncs: with many PUTs at a time the folder is synced
// less often than once for each, and all that were acknowledged survive.
func TestConcurrentPutsShareSyncs(t *testing.T) {
	disk := crashfs.New()
	counting := &syncCounter{FS: disk, gate: make(chan struct{})}
	s, err := openOn(counting)
	if err != nil {
		t.Fatal(err)
	}
	obj, crc := object(1000, 1)
	if err := s.Put(t.Context(), blockstore.Key{Term: 1, Seq: 1000}, obj, crc); err != nil {
		t.Fatal(err)
	}
	const n = 20
	counting.hold(n)
	var wg sync.WaitGroup
	for seq := uint64(1); seq <= n; seq++ {
		wg.Go(func() {
			if err := s.Put(t.Context(), blockstore.Key{Term: 1, Seq: seq}, obj, crc); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if counting.syncs > n/2 {
		t.Errorf("%d PUTs took %d syncs of their folder", n, counting.syncs)
	}
	s, err = openOn(disk.Crash())
	if err != nil {
		t.Fatal(err)
	}
	if infos, err := s.List(t.Context(), blockstore.Key{}, 100); err != nil || len(infos) != n+1 {
		t.Fatalf("%d of %d blocks, %v", len(infos), n+1, err)
	}
}

// syncCounter counts syncs of a fan-out folder; the first waits until so many
// links were made.
type syncCounter struct {
	vfs.FS
	gate chan struct{}

	mu           sync.Mutex
	links, syncs int
	held         int
}

func (c *syncCounter) hold(links int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links, c.syncs, c.held = 0, 0, links
}

// Link opens the gate with the last link.
func (c *syncCounter) Link(from, to string) error {
	err := c.FS.Link(from, to)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links++; c.held > 0 && c.links == c.held {
		close(c.gate)
	}
	return err
}

// SyncDir waits for the gate.
func (c *syncCounter) SyncDir(dir string) error {
	c.mu.Lock()
	wait := c.held > 0 && strings.HasSuffix(dir, strings.Repeat("0", folderDigits))
	if wait {
		c.syncs++
	}
	c.mu.Unlock()
	if wait {
		<-c.gate
	}
	return c.FS.SyncDir(dir)
}
