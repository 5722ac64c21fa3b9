package namenode_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// A file that is deleted during a long backup is in it whole: its blocks stay
// until the backup is done, and no longer.
func TestBackupLongerThanAURL(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake)
	r := n.Raw(t, "a")
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB: more than what is sent ahead
	for i := range 8 {
		withBlock(t, r, fmt.Sprintf("/f%d", i), big)
	}
	dir := t.TempDir()
	err := backupTo(t, n.Raw(t, "b"), dir, func() {
		for i := range 8 {
			remove(t, r, fmt.Sprintf("/f%d", i))
		}
		clk.Advance(2 * namenode.DefaultURLLife)
		if deleted, waiting, err := n.CollectGarbage(t.Context()); deleted != 0 || waiting != 8 || err != nil {
			t.Errorf("during the backup %d blocks were deleted, %d wait; %v", deleted, waiting, err)
		}
	})
	if err != nil {
		t.Fatalf("the backup: %v", err)
	}
	if got := len(blockFiles(t, dir)); got != 8 {
		t.Errorf("the backup has %d blocks of 8", got)
	}
	// The namenode may notice only now that the stream has ended.
	deleted := 0
	env.Eventually(t, "the blocks are deleted after the backup", func() bool {
		d, _, err := n.CollectGarbage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		deleted += d
		return deleted == 8
	})
}

// In safe mode nothing is deleted, and no deletion is under way when it begins.
func TestSafeModeDeletesNothing(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake)
	r := n.Raw(t, "a")
	withBlock(t, r, "/gone", "gone")
	withBlock(t, r, "/dir/sub/gone", "gone too")
	w := r.Create("/open")
	if _, err := r.PutBlock(w, []byte("never committed")); err != nil {
		t.Fatal(err)
	}
	remove(t, r, "/gone")
	safe := func(a pb.SafeModeRequest_Action) {
		t.Helper()
		if _, err := r.Admin.SafeMode(t.Context(), &pb.SafeModeRequest{Caller: r.Who, Action: a}); err != nil {
			t.Fatal(err)
		}
	}
	clk.Advance(time.Hour)
	safe(pb.SafeModeRequest_ACTION_ENTER)
	before := r.TxID()
	if _, _, err := n.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.SweepPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who}); !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), "safe mode") {
		t.Errorf("gc: %v", err)
	}
	if left := blockFiles(t, n.Config().Data); len(left) != 3 || r.TxID() != before {
		t.Fatalf("%d blocks of 3 are left; record %d, then %d", len(left), before, r.TxID())
	}
	safe(pb.SafeModeRequest_ACTION_LEAVE)
	if err := n.DeleteAndEnterSafeMode("/dir"); err != nil {
		t.Fatal(err)
	}
	if err := n.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.Detached() == 0 {
		t.Error("a deleted directory was freed in safe mode")
	}
	safe(pb.SafeModeRequest_ACTION_LEAVE)
	if err := n.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // orphans become garbage first
		if _, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who}); err != nil {
			t.Fatal(err)
		}
		clk.Advance(time.Hour)
	}
	if left := blockFiles(t, n.Config().Data); len(left) != 0 {
		t.Fatalf("%d blocks are left after safe mode", len(left))
	}
}

// smallDisk says how much is free.
type smallDisk struct {
	vfs.FS
	free atomic.Int64
}

func (d *smallDisk) Usage(string) (int64, int64, error) { return d.free.Load(), 1 << 40, nil }

// When room is short, what is deleted makes room at once, and a reader who had
// its URLs is told that the file is gone; with room it can be read to its end.
func TestRoomComesBackAtOnce(t *testing.T) {
	const reserve = 1 << 20
	disk := &smallDisk{FS: vfs.OS()}
	disk.free.Store(1 << 39)
	n := env.Start(t, func(c *namenode.Config) { c.FS, c.Reserve, c.CollectEvery = disk, reserve, time.Hour })
	r, reader := n.Raw(t, "a"), n.Client(t)
	for _, path := range []string{"/roomy", "/short", "/kept"} {
		withBlock(t, r, path, strings.Repeat(path, 1000))
	}
	read := func(path string) func() (string, error) {
		f, err := reader.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return func() (string, error) {
			got := make([]byte, f.Length())
			k, err := f.ReadAt(got, 0)
			return string(got[:k]), err
		}
	}
	roomy, short, kept := read("/roomy"), read("/short"), read("/kept")
	remove(t, r, "/roomy")
	if deleted, waiting, err := n.CollectGarbage(t.Context()); deleted != 0 || waiting != 1 || err != nil {
		t.Fatalf("with room %d blocks were deleted, %d wait; %v", deleted, waiting, err)
	}
	if got, err := roomy(); err != nil || got != strings.Repeat("/roomy", 1000) {
		t.Fatalf("a deleted file: %d bytes, %v", len(got), err)
	}
	remove(t, r, "/short")
	disk.free.Store(reserve) // noticed within a second
	env.Eventually(t, "the garbage is deleted", func() bool { return len(blockFiles(t, n.Config().Data)) == 1 })
	if _, err := short(); !errors.Is(err, fserror.NotFound) {
		t.Errorf("the deleted file: %v, want NOT_FOUND", err)
	}
	if got, err := kept(); err != nil || got != strings.Repeat("/kept", 1000) {
		t.Errorf("the other file: %d bytes, %v", len(got), err)
	}
	if found := problems(t, reader); len(found) > 0 {
		t.Errorf("fsck finds %v", found)
	}
}

// Garbage takes no more in the store than the blocks of files and some spare,
// however many files are replaced within the life of a URL; the oldest goes
// first. Who reads a file that lives reads on when its block was merged and
// deleted meanwhile.
func TestChurnTakesBoundedRoom(t *testing.T) {
	t.Parallel()
	const block, files = 1 << 20, 8
	clk, fake := env.FakeClock()
	n := env.Start(t, fake, func(c *namenode.Config) { c.BlockSize, c.CollectEvery, c.SealAfter = block, time.Hour, time.Hour })
	r := n.Raw(t, "a")
	first := strings.Repeat("block ", 1000)
	old := withBlock(t, r, "/merged", first)
	reader, err := n.Client(t).Open(t.Context(), "/merged")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	mergeTail(t, n, r, "/merged", first, strings.Repeat("tail ", 1000))
	bound := func(s *pb.StatusResponse) int64 { return s.GetStoredBytes() + namenode.SpareBlocks*block }
	big := strings.Repeat("leasefs ", block/8)
	for round := range 3 * namenode.SpareBlocks / files {
		for i := range files {
			path := fmt.Sprintf("/f%d", i)
			if round > 0 {
				remove(t, r, path)
			}
			withBlock(t, r, path, big)
		}
		clk.Advance(time.Second)
		if _, _, err := n.CollectGarbage(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := stateOf(t, r)
		if s.GetGarbageBytes() > bound(s) {
			t.Fatalf("round %d: %d bytes of garbage beside %d of files; want %d at most", round, s.GetGarbageBytes(), s.GetStoredBytes(), bound(s))
		}
		taken := int64(0)
		for _, f := range blockFiles(t, n.Config().Data) {
			in, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			taken += in.Size()
		}
		if taken != s.GetStoredBytes()+s.GetGarbageBytes() {
			t.Fatalf("round %d: the store has %d bytes, status tells of %d and %d", round, taken, s.GetStoredBytes(), s.GetGarbageBytes())
		}
	}
	if s := stateOf(t, r); s.GetGarbageBytes() < bound(s)-3*block {
		t.Errorf("%d bytes of garbage are left: more was deleted than had to be", s.GetGarbageBytes())
	}
	if len(n.BlockFiles(t, old.GetTerm(), old.GetSeq())) > 0 {
		t.Error("the oldest garbage is still there")
	}
	got := make([]byte, len(first))
	if _, err := reader.ReadAt(got, 0); err != nil || string(got) != first {
		t.Errorf("the reader of the merged file: %d bytes, %v", len(got), err)
	}
	clk.Advance(2 * namenode.DefaultURLLife)
	if _, _, err := n.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := stateOf(t, r); s.GetGarbageBytes() != 0 || s.GetGarbageBlocks() != 0 {
		t.Errorf("when all URLs are over %d blocks of %d bytes wait", s.GetGarbageBlocks(), s.GetGarbageBytes())
	}
}

func stateOf(t *testing.T, r *env.Raw) *pb.StatusResponse {
	t.Helper()
	s, err := r.Admin.Status(t.Context(), &pb.StatusRequest{Caller: r.Who})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mergeTail appends to a file of one block and has the tail merged into it.
func mergeTail(t *testing.T, n *env.Namenode, r *env.Raw, path, block, tail string) {
	t.Helper()
	out, err := r.Append(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(out.GetWriter(), int64(len(block)), tail); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(out.GetWriter(), int64(len(block)+len(tail))); err != nil {
		t.Fatal(err)
	}
	if err := n.SealAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A reader finds the block that took the place of one that was merged and, for
// want of room, deleted at once.
func TestReaderFindsMergedBlock(t *testing.T) {
	disk := &smallDisk{FS: vfs.OS()}
	disk.free.Store(1 << 39)
	n := env.Start(t, func(c *namenode.Config) { c.FS, c.CollectEvery, c.SealAfter = disk, time.Hour, time.Hour })
	r := n.Raw(t, "a")
	first := strings.Repeat("block ", 1000)
	old := withBlock(t, r, "/f", first)
	f, err := n.Client(t).Open(t.Context(), "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mergeTail(t, n, r, "/f", first, strings.Repeat("tail ", 1000))
	disk.free.Store(namenode.DefaultReserve)
	if _, _, err := n.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(n.BlockFiles(t, old.GetTerm(), old.GetSeq())) > 0 {
		t.Fatal("the merged block is still there")
	}
	got := make([]byte, len(first))
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != first {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// TestBlockThatCannotBeDeleted: a block that the store keeps is told of and tried again after an hour,
// and holds up no others.
func TestBlockThatCannotBeDeleted(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake, func(c *namenode.Config) { c.CollectEvery = 1000 * time.Hour })
	r := n.Raw(t, "a")
	withBlock(t, r, "/f0", "content")
	kept := blockFiles(t, n.Config().Data)[0]
	if err := errors.Join(os.Remove(kept), os.MkdirAll(kept+"/in the way", 0o750)); err != nil {
		t.Fatal(err)
	}
	remove(t, r, "/f0")
	collect := func(what string, want, wait int, fails bool) {
		t.Helper()
		clk.Advance(2 * namenode.DefaultURLLife)
		if deleted, waiting, err := n.CollectGarbage(t.Context()); deleted != want || waiting != wait || (err != nil) != fails {
			t.Errorf("%s: %d were deleted, %d wait; %v; want %d, %d", what, deleted, waiting, err, want, wait)
		}
	}
	files := func(names ...string) {
		for _, name := range names {
			withBlock(t, r, name, "content")
			remove(t, r, name)
		}
	}
	files("/f1", "/f2")
	collect("with two others", 2, 1, true)
	files("/f3")
	collect("half an hour later", 1, 1, false)
	collect("an hour later", 0, 1, true)
	if err := os.Remove(kept + "/in the way"); err != nil {
		t.Fatal(err)
	}
	collect("before its time", 0, 1, false)
	out, err := n.Raw(t, "root").Admin.Collect(t.Context(), &pb.CollectRequest{Caller: n.Raw(t, "root").Who})
	if err != nil || out.GetDeleted() != 1 || out.GetWaiting() != 0 {
		t.Errorf("an operator, who has mended it: %v, %v", out, err)
	}
	if left := blockFiles(t, n.Config().Data); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
