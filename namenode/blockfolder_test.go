package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// withBlock makes a closed file of one block.
func withBlock(t *testing.T, r *env.Raw, path, content string) *pb.Block {
	t.Helper()
	w := r.Create(path)
	b, err := r.PutBlock(w, []byte(content))
	if err == nil {
		err = r.Commit(w, 0, b, "")
	}
	if err == nil {
		err = r.Close(w, int64(len(content)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func remove(t *testing.T, r *env.Raw, path string) {
	t.Helper()
	if _, err := r.NN.Delete(t.Context(), &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Recursive: true}); err != nil {
		t.Fatal(err)
	}
}

// backupTo receives a backup as the library does, pausing before the first
// block if pause is given.
func backupTo(t *testing.T, r *env.Raw, dir string, pause func()) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // the blocks are held until then
	st, err := r.Admin.Backup(ctx, &pb.BackupRequest{Caller: r.Who})
	if err != nil {
		return err
	}
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.GetTxid() != 0 { // that was all
			return nil
		}
		if m.GetName() == "" {
			continue
		}
		if pause != nil && strings.HasSuffix(m.GetName(), ".blk") {
			pause()
			pause = nil
		}
		name := filepath.Join(dir, m.GetName())
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			return err
		}
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		data := m.GetData()
		if m.GetUrl() != "" {
			if data, err = fetched(t, m); err != nil {
				return err
			}
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// fetched is the block that a message of a backup says where to get.
func fetched(t *testing.T, m *pb.BackupResponse) ([]byte, error) {
	t.Helper()
	signed := blockstore.Signed{Method: http.MethodGet, URL: m.GetUrl(), Header: http.Header{}}
	for name, value := range m.GetHeaders() {
		signed.Header.Set(name, value)
	}
	req, err := signed.NewRequest(t.Context(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// cannotStart is why not.
func cannotStart(t *testing.T, cfg namenode.Config) error {
	t.Helper()
	cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
	s, err := namenode.Start(t.Context(), cfg)
	if err == nil {
		_ = s.Close()
		t.Fatal("it started")
	}
	return err
}

func refused(t *testing.T, cfg namenode.Config, why ...string) {
	t.Helper()
	err := cannotStart(t, cfg)
	for _, w := range why {
		if !strings.Contains(err.Error(), w) && fserror.ReasonOf(err) != w {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func blockFiles(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".blk") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A namenode does not start on a block folder that is not its namespace's:
// its name forgotten, or the disk under it not mounted.
func TestTheBlockFolderIsRecognised(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, func(c *namenode.Config) { c.BlocksDir = disk })
	withBlock(t, n.Raw(t, "a"), "/f", "content")
	n.Stop(t)

	forgotten := n.Config()
	forgotten.BlocksDir = ""
	refused(t, forgotten, "mount", fserror.ReasonBlocks, "restore")

	away := disk + ".away"
	if err := os.Rename(disk, away); err != nil {
		t.Fatal(err)
	}
	refused(t, n.Config(), disk, "mount")
	if err := os.Mkdir(disk, 0o750); err != nil { // the mount point
		t.Fatal(err)
	}
	refused(t, n.Config(), disk, "mount")
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Fatalf("the refused starts left %v in the mount point, %v", left, err)
	}
	if err := os.Remove(disk); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, disk); err != nil {
		t.Fatal(err)
	}
	n = env.Start(t, func(c *namenode.Config) { *c = n.Config() })
	if got, err := n.Client(t).ReadFile(t.Context(), "/f"); err != nil || string(got) != "content" {
		t.Fatalf("%q, %v", got, err)
	}
}

// A namenode started from a backup on the original's block folder waits for the
// original to end, leaves its later blocks alone, and never mints its keys.
func TestABackupOnTheOriginalsBlocks(t *testing.T) {
	clk, fake := env.FakeClock()
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, fake, func(c *namenode.Config) { c.BlocksDir = disk })
	withBlock(t, n.Raw(t, "a"), "/before", "before")
	copied := t.TempDir()
	if err := backupTo(t, n.Raw(t, "b"), copied, nil); err != nil {
		t.Fatal(err)
	}
	if len(blockFiles(t, copied)) != 1 {
		t.Fatal("the backup has not the one block")
	}
	onDisk := func(c *namenode.Config) { fake(c); c.Data, c.BlocksDir = copied, disk }
	takenFrom := func(old string) func(*namenode.Config) {
		return func(c *namenode.Config) { onDisk(c); c.TakeOver = old }
	}
	cfg := n.Config()
	cfg.Data = copied
	refused(t, cfg, disk, "another namenode")

	n.Restart(t) // a later reign
	later := withBlock(t, n.Raw(t, "a"), "/later", "later")
	n.Stop(t)

	original := incarnationOf(t, cannotStart(t, cfg))
	restored := env.Start(t, takenFrom(original))
	r := restored.Raw(t, "r")
	mine := withBlock(t, r, "/mine", "mine!")
	if mine.GetTerm() <= later.GetTerm() {
		t.Errorf("the backup's namenode mints in term %d, the original was in %d", mine.GetTerm(), later.GetTerm())
	}
	sweepAll(t, restored, clk)
	if left := blockFiles(t, disk); len(left) != 3 {
		t.Fatalf("%d blocks are left of 3", len(left))
	}
	// Whoever knows better asks for it.
	res, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who})
	if err != nil || res.GetOrphans() != 1 {
		t.Fatalf("%v, %v", res, err)
	}
}

// sweepAll has a namenode search for orphans that it may delete, and delete what is
// garbage, each after an hour.
func sweepAll(t *testing.T, n *env.Namenode, clk *clock.Fake) {
	t.Helper()
	clk.Advance(time.Hour)
	if err := n.SweepPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Hour)
	if _, _, err := n.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The original, started again after a namenode of its backup had the folder,
// leaves that one's blocks alone, now and after further restarts.
func TestTheOriginalAfterItsBackup(t *testing.T) {
	clk, fake := env.FakeClock()
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, fake, func(c *namenode.Config) { c.BlocksDir = disk })
	copied := t.TempDir()
	if err := backupTo(t, n.Raw(t, "b"), copied, nil); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	onCopy := n.Config()
	onCopy.Data = copied
	original := incarnationOf(t, cannotStart(t, onCopy))
	other := env.Start(t, fake, func(c *namenode.Config) { c.Data, c.BlocksDir, c.TakeOver = copied, disk, original })
	theirs := withBlock(t, other.Raw(t, "o"), "/theirs", "theirs")
	other.Stop(t)
	another := incarnationOf(t, cannotStart(t, n.Config()))
	n = env.Start(t, func(c *namenode.Config) { *c = n.Config(); c.TakeOver = another })
	for range 2 {
		if mine := withBlock(t, n.Raw(t, "a"), "/f"+clk.Mono().String(), "mine"); mine.GetTerm() <= theirs.GetTerm() {
			t.Fatalf("term %d again", mine.GetTerm())
		}
		sweepAll(t, n, clk)
		n.Restart(t)
	}
	if left := blockFiles(t, disk); len(left) != 3 {
		t.Fatalf("%d blocks are left of 3", len(left))
	}
}

// Blocks that a copy of this machine has put under the same term, and that somebody
// has brought into this one's folder, are left alone until an operator says otherwise.
func TestBlocksOfACopyUnderTheSameTerm(t *testing.T) {
	clk, fake := env.FakeClock()
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, fake, func(c *namenode.Config) { c.BlocksDir = disk })
	r := n.Raw(t, "a")
	mine := withBlock(t, r, "/mine", "mine")
	folder := filepath.Dir(blockFiles(t, disk)[0])
	orphan, err := r.PutBlock(r.Create("/orphan"), []byte("orphan"))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{mine.GetSeq() - 1, orphan.GetSeq() + 1} { // below and above this reign's
		high := filepath.Join(filepath.Dir(folder), fmt.Sprintf("%014x", seq>>10))
		if err := os.MkdirAll(high, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(high, fmt.Sprintf("%016x.blk", seq)), []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		sweepAll(t, n, clk)
		if left := blockFiles(t, disk); len(left) != 3 { // all but its own orphan
			t.Errorf("%d blocks are left of 3", len(left))
		}
		n.Restart(t)
	}
	r = n.Raw(t, "b")
	clk.Advance(time.Hour)
	if res, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who}); err != nil || res.GetOrphans() != 2 {
		t.Fatalf("%v, %v", res, err)
	}
}

// Two copies of a machine, each with the folders of its own, reign under the same
// terms and never hand out the same key: not at once, and not after a restart.
func TestCopiesOfAMachineMintKeysOfTheirOwn(t *testing.T) {
	n := env.Start(t)
	withBlock(t, n.Raw(t, "a"), "/before", "before")
	n.Stop(t)
	terms := map[uint64]int{}
	minted := map[blockstore.Key]bool{}
	for range 2 {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(n.Config().Data)); err != nil {
			t.Fatal(err)
		}
		machine := env.Start(t, func(c *namenode.Config) { c.Data = copied })
		for reign := range 2 {
			if reign > 0 {
				machine.Restart(t)
			}
			r := machine.Raw(t, "r")
			w := r.Create(fmt.Sprint("/open", reign))
			var last uint64
			for range 20 {
				b, err := r.PutBlock(w, []byte("content"))
				if err != nil {
					t.Fatal(err)
				}
				key := blockstore.Key{Term: b.GetTerm(), Seq: b.GetSeq()}
				if minted[key] {
					t.Fatalf("key %s is given twice", key)
				}
				if key.Seq <= last {
					t.Fatalf("key %s after number %x: a reign counts upwards", key, last)
				}
				minted[key], last = true, key.Seq
				terms[key.Term]++
			}
		}
		if got, err := machine.Client(t).ReadFile(t.Context(), "/before"); err != nil || string(got) != "before" {
			t.Errorf("%q, %v", got, err)
		}
	}
	for term, keys := range terms {
		if keys != 40 {
			t.Errorf("%d keys of term %d: the copies' terms differ, so this shows nothing", keys, term)
		}
	}
}
