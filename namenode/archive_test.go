package namenode_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/offline"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
)

// archived has a namenode archive into a folder of its own.
func archived(blocks string, keep time.Duration) func(*namenode.Config) {
	return func(c *namenode.Config) { c.Archive, c.Blocks = keep, "file://"+blocks }
}

// storeOf opens the store of the one namespace in a folder.
func storeOf(t *testing.T, blocks string) (st *local.Store, id [16]byte) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(blocks, "*", "NAMESPACE"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	raw, err := hex.DecodeString(filepath.Base(filepath.Dir(dirs[0])))
	if err != nil {
		t.Fatal(err)
	}
	id = [16]byte(raw)
	st, err = local.Open(local.Config{Dir: blocks, NamespaceID: id, Secret: make([]byte, 32), Shared: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st, id
}

// catalog looks into the archive of the one namespace in a folder.
func catalog(t *testing.T, blocks string) *archive.Catalog {
	t.Helper()
	st, id := storeOf(t, blocks)
	c, err := archive.Open(t.Context(), st, id, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// archivedTo waits until a record is archived.
func archivedTo(t *testing.T, blocks string, txid uint64) (c *archive.Catalog) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("record %d is archived", txid), func() bool {
		c = catalog(t, blocks)
		return c.Newest() >= txid
	})
	return c
}

// sumOf is what tells a tree from others.
func sumOf(t *testing.T, tree *namespace.Tree) (sum [sha256.Size]byte) {
	t.Helper()
	h := sha256.New()
	if err := tree.WriteImage(h); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// moments are the sums of trees by their last record.
type moments map[uint64][sha256.Size]byte

func (m moments) note(t *testing.T, s *namenode.Server) uint64 {
	t.Helper()
	tree := s.Tree()
	last, _ := tree.Last()
	m[last] = sumOf(t, tree)
	return last
}

// check holds up to n random moments, and the time of each, against the archive.
func (m moments) check(t *testing.T, c *archive.Catalog, n int) {
	t.Helper()
	for txid, want := range m {
		if n--; n < 0 {
			return
		}
		tree, err := c.Tree(t.Context(), archive.At{TxID: txid})
		if err != nil {
			t.Fatalf("after record %d: %v", txid, err)
		}
		if problems := tree.Check(); len(problems) > 0 || sumOf(t, tree) != want {
			t.Fatalf("after record %d the tree is another one (%v)", txid, problems)
		}
		_, ms := tree.Last()
		at := time.UnixMilli(ms)
		tree, err = c.Tree(t.Context(), archive.At{Time: at})
		if err != nil {
			t.Fatalf("at %s, record %d: %v", at, txid, err)
		}
		if last, then := tree.Last(); last < txid || then != ms {
			t.Fatalf("at %s: record %d of %d, want %d", at, last, then, txid)
		}
	}
}

// change does something at random.
func change(t *testing.T, r *env.Raw, i int) {
	t.Helper()
	path := fmt.Sprintf("/d%d", rand.IntN(8))
	var err error
	switch rand.IntN(6) {
	case 0:
		_, err = r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path + "/deep"), Parents: true})
	case 1:
		_, err = r.NN.Delete(t.Context(), &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Recursive: true})
	case 2:
		if err := r.Close(r.Create(fmt.Sprintf("%s-%d", path, i)), 0); err != nil {
			t.Fatal(err)
		}
	default:
		w := r.Create(fmt.Sprintf("/f%d", i))
		if err := r.Flush(w, 0, strings.Repeat("x", 1+rand.IntN(3000))); err != nil {
			t.Fatal(err)
		}
	}
	_ = err // what is refused changes nothing
}

// TestAnyMomentIsArchived: 200 moments, in full size 1,000, of a random history, over restarts and with bases
// between, are restored as they were, by number and by time.
func TestAnyMomentIsArchived(t *testing.T) {
	t.Parallel()
	blocks := t.TempDir()
	n := env.Start(t, archived(blocks, time.Hour))
	seen := moments{}
	last := uint64(0)
	reigns := size.Of(3, 10)
	for reign := range reigns {
		r := n.Raw(t, fmt.Sprintf("r%d", reign))
		for i := range size.Of(100, 150) {
			change(t, r, 1000*reign+i)
			last = seen.note(t, n.Server)
		}
		if reign < reigns-1 {
			n.Restart(t)
		}
	}
	c := archivedTo(t, blocks, last)
	if least := size.Of(200, 1000); len(seen) < least {
		t.Fatalf("only %d moments", len(seen))
	}
	seen.check(t, c, size.Of(220, 1000))
	if _, err := c.Tree(t.Context(), archive.At{TxID: last + 1000}); err == nil {
		t.Error("a moment that has not come yet was restored")
	}
}

// TestDeletedFileComesBack: what was deleted hours ago is restored with its bytes, since
// the archive keeps its blocks for as long as the moment is kept, and no longer.
func TestDeletedFileComesBack(t *testing.T) {
	t.Parallel()
	const keep = 6 * time.Hour
	clk, fake := env.FakeClock()
	blocks := t.TempDir()
	n := env.Start(t, fake, archived(blocks, keep))
	r := n.Raw(t, "a")
	content := strings.Repeat("precious", 1000)
	withBlock(t, r, "/file", content)
	before := r.TxID()
	remove(t, r, "/file")
	r.Make("/later")
	archivedTo(t, blocks, r.TxID())
	clk.Advance(keep - time.Hour)
	if deleted, waiting, err := n.CollectGarbage(t.Context()); err != nil || deleted != 0 || waiting != 1 {
		t.Fatalf("%d deleted, %d wait, %v", deleted, waiting, err)
	}
	off, err := n.Config().Offline()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "then")
	done, err := offline.Rewind(t.Context(), offline.Rewinding{Config: off, At: archive.At{TxID: before}, Dir: dir})
	if err != nil || done.TxID != before || done.Files != 1 || done.Blocks != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	then := env.Start(t, func(c *namenode.Config) { c.Data = dir })
	f, err := then.Client(t).Open(t.Context(), "/file")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(content))
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != content {
		t.Errorf("other bytes (%v)", err)
	}
	clk.Advance(time.Hour + keep/10)
	if deleted, _, err := n.CollectGarbage(t.Context()); err != nil || deleted != 0 {
		t.Errorf("while a restore of the oldest moment may copy %d were deleted, %v", deleted, err)
	}
	clk.Advance(keep / 10)
	if deleted, _, err := n.CollectGarbage(t.Context()); err != nil || deleted != 1 {
		t.Errorf("after the time of the archive %d were deleted, %v", deleted, err)
	}
	// The catalog still has that moment, and the restore says what is missing.
	_, err = offline.Rewind(t.Context(), offline.Rewinding{Config: off, At: archive.At{TxID: before}, Dir: filepath.Join(t.TempDir(), "again")})
	if err == nil || !strings.Contains(err.Error(), "/file") {
		t.Errorf("without its block: %v", err)
	}
}

// TestTwoNamenodesArchive: over failovers the archive has every moment of the one history.
func TestTwoNamenodesArchive(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	keep := func(c *namenode.Config) { c.Archive = time.Hour }
	acfg, _ := p.config(keep)
	bcfg, _ := p.config(keep)
	a := p.active(acfg)
	b := p.start(bcfg)
	seen := moments{}
	fs := p.client(acfg.Listen, bcfg.Listen)
	last := uint64(0)
	for i := range 4 {
		for k := range size.Of(10, 100) {
			if err := fs.Mkdir(t.Context(), fmt.Sprintf("/d%d-%d", i, k), 0o755); err != nil {
				t.Fatal(err)
			}
			last = seen.note(t, a)
		}
		if i%2 == 0 {
			archivedTo(t, p.blocks, last)
		}
		if _, err := fs.Admin().Failover(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.becomes(b, "active")
		p.eventually("the reign has ended", func() bool { return a.Err() != nil })
		a = p.again(a, acfg)
		a, b, acfg, bcfg = b, a, bcfg, acfg
	}
	c := archivedTo(t, p.blocks, last)
	seen.check(t, c, len(seen))
	for _, s := range []*namenode.Server{b, a} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestArchiveIsTold: status says how far the archive is, and why it is not; of a namenode
// that archives nothing, nothing.
func TestArchiveIsTold(t *testing.T) {
	t.Parallel()
	clk, fake := env.FakeClock()
	blocks := t.TempDir()
	n := env.Start(t, fake, archived(blocks, time.Hour))
	fs := n.Client(t)
	told := func(what string, ok func(a *client.ArchiveStatus) bool) {
		t.Helper()
		env.Eventually(t, what, func() bool {
			st, err := fs.Status(t.Context())
			return err == nil && len(st) == 1 && st[0].Archive != nil && ok(st[0].Archive)
		})
	}
	if err := fs.Mkdir(t.Context(), "/d", 0o755); err != nil {
		t.Fatal(err)
	}
	last, _ := n.Tree().Last()
	var to uint64
	told("all is archived", func(a *client.ArchiveStatus) bool {
		to = a.TxID
		return a.TxID >= last && a.Records == 0 && a.Lag == 0 && a.Holes == 0 && a.Problem == "" && !a.Late()
	})
	objects, err := filepath.Glob(filepath.Join(blocks, "*", "named"))
	if err != nil || len(objects) != 1 {
		t.Fatal(objects, err)
	}
	if err := os.Rename(objects[0], objects[0]+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(objects[0], nil, 0o600); err != nil { // nothing can be put in a file
		t.Fatal(err)
	}
	if err := fs.Mkdir(t.Context(), "/e", 0o755); err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Minute)
	told("why nothing is archived", func(a *client.ArchiveStatus) bool {
		return a.TxID == to && a.Records > 0 && a.Lag >= time.Minute && a.Problem != "" && a.Late()
	})
	if m := n.Metrics(t); !strings.Contains(m, "\nleasefs_archive_lag_seconds 6") {
		t.Errorf("the metrics do not tell of the lag:\n%s", m)
	}
	for i := range 3 { // images do not purge what is not archived
		if err := fs.Mkdir(t.Context(), fmt.Sprintf("/f%d", i), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := fs.Admin().Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := moments{}
	newest := seen.note(t, n.Server)
	if err := errors.Join(os.Remove(objects[0]), os.Rename(objects[0]+".away", objects[0])); err != nil {
		t.Fatal(err)
	}
	told("it is archived after all", func(a *client.ArchiveStatus) bool {
		return a.Records == 0 && a.Problem == "" && !a.Late() && a.Holes == 0
	})
	seen.check(t, archivedTo(t, blocks, newest), 1)

	st, err := env.Start(t).Client(t).Status(t.Context())
	if err != nil || st[0].Archive != nil {
		t.Errorf("without an archive: %+v, %v", st, err)
	}
}

// TestTheDiskIsLost: without its data folder, a namenode alone continues where the archive
// ends, on the store of the one that was lost, which it takes over; and archives on.
func TestTheDiskIsLost(t *testing.T) {
	t.Parallel()
	blocks := t.TempDir()
	n := env.Start(t, archived(blocks, time.Hour))
	r := n.Raw(t, "a")
	content := strings.Repeat("bytes", 1000)
	withBlock(t, r, "/file", content)
	last := r.TxID()
	archivedTo(t, blocks, last)
	raw, err := os.ReadFile(filepath.Join(n.Config().Data, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	version, _, err := datadir.ParseVersion(raw)
	if err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	if err := os.RemoveAll(n.Config().Data); err != nil {
		t.Fatal(err)
	}
	off, err := n.Config().Offline()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "again")
	if done, err := offline.Rewind(t.Context(), offline.Rewinding{Config: off, Dir: dir, TreeOnly: true}); err != nil || done.TxID < last {
		t.Fatalf("%+v, %v", done, err)
	}
	again := env.Start(t, archived(blocks, time.Hour), func(c *namenode.Config) { c.Data, c.TakeOver = dir, version.Incarnation })
	f, err := again.Client(t).Open(t.Context(), "/file")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(content))
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != content {
		t.Errorf("other bytes (%v)", err)
	}
	r = again.Raw(t, "b")
	r.Make("/more")
	seen := moments{}
	seen.check(t, archivedTo(t, blocks, seen.note(t, again.Server)), 1)
	if st, err := again.Client(t).Status(t.Context()); err != nil || st[0].Archive == nil || st[0].Archive.Holes != 0 {
		t.Errorf("nothing is missing, and status tells of a hole: %v", err)
	}
}

// TestArchiveOfAnOlderZooKeeper: ZooKeeper's folders are put back from before reigns that have
// archived. Nothing is archived until an operator has given the store to what continues, and
// then all of its history, over the reigns with higher terms; also after a restart. A restore
// from the store alone does not choose between the histories: the image of one is newer than
// where the other left it. The archive of the one that continued gives its moments all the same.
func TestArchiveOfAnOlderZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }, keep: time.Hour}
	a, b := fork(o)
	for i := range 3 { // which the copy does not know
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		o.run(a)
		if err := a.library(o.t).WriteFile(t.Context(), fmt.Sprint("/lost", i), make([]byte, fileSize)); err != nil {
			t.Fatal(err)
		}
		last, _ := a.Tree().Last()
		archivedTo(t, p.blocks, last)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	o.run(b)
	defer func() { _ = b.Close() }()
	status := func() *pb.ArchiveStatus {
		s, err := b.raw.Admin.Status(t.Context(), &pb.StatusRequest{Caller: b.raw.Who})
		if err != nil {
			t.Fatal(err)
		}
		return s.GetArchive()
	}
	seen := moments{}
	for i := range 5 {
		if err := b.library(o.t).WriteFile(t.Context(), fmt.Sprint("/kept", i), make([]byte, fileSize)); err != nil {
			t.Fatal(err)
		}
		seen.note(t, b.Server)
	}
	env.Eventually(t, "nothing is archived", func() bool { return strings.Contains(status().GetProblem(), "two copies of the namespace") })
	o.run(a)
	a.checkpoint(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if res, err := b.raw.Admin.ResolveStore(t.Context(), &pb.ResolveStoreRequest{Caller: b.raw.Who}); err != nil || !res.GetResolved() {
		t.Fatalf("%v, %v", res, err)
	}
	complete := func() (last uint64) {
		t.Helper()
		last = seen.note(t, b.Server)
		env.Eventually(t, "all is archived", func() bool { s := status(); return s.GetProblem() == "" && s.GetTxid() >= last })
		seen.check(t, catalog(t, p.blocks), len(seen))
		return last
	}
	complete()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	o.run(b)
	if err := b.library(o.t).WriteFile(t.Context(), "/later", make([]byte, fileSize)); err != nil {
		t.Fatal(err)
	}
	last := complete()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	o.zk = env.LendZooKeeper(t)
	again := o.prepare("again")
	if done, err := o.restore(again, "", ""); !errors.Is(err, fserror.Exists) || !strings.Contains(err.Error(), "another history") {
		t.Errorf("restored from the store: %+v, %v", done, err)
	}
	off, err := again.cfg.Offline()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "newest")
	if done, err := offline.Rewind(t.Context(), offline.Rewinding{Config: off, Dir: dir}); err != nil || done.TxID < last {
		t.Fatalf("%+v, %v", done, err)
	}
	again.cfg.Blocks = "file://" + t.TempDir()
	if done, err := o.restore(again, dir, ""); err != nil || done.TxID < last {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestArchiveTurnedOn: an image that is newer than where the archive begins, in a later reign,
// is of the same history. A restore from the store takes it and what is archived behind it.
func TestArchiveTurnedOn(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }}
	a := o.run(o.prepare("pair"))
	write := func(name string) {
		t.Helper()
		if err := a.library(o.t).WriteFile(t.Context(), name, make([]byte, fileSize)); err != nil {
			t.Fatal(err)
		}
	}
	write("/before")
	a.checkpoint(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.cfg.Archive = time.Hour
	o.run(a)
	write("/after")
	last, _ := a.Tree().Last()
	archivedTo(t, p.blocks, last)
	st, _ := storeOf(t, p.blocks)
	img, err := (&images.Objects{Objects: st}).List(t.Context())
	if err != nil || len(img) == 0 {
		t.Fatal(img, err)
	}
	env.Eventually(t, "what is before the first base is archived, too", func() bool {
		return catalog(t, p.blocks).Overruled(img[0].TxID, images.TermOf(img[0].Name))
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	o.zk = env.LendZooKeeper(t)
	again := o.prepare("again")
	_, err = o.restore(again, "", "")
	if done, err := o.restore(again, "", incarnationOf(t, err)); err != nil || done.TxID < last {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestArchiveIsInherited: a namenode that was not told to archive does as the one before, and
// so deletes nothing that the archive needs; one that was told to archive nothing does not.
func TestArchiveIsInherited(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }, keep: 24 * time.Hour}
	a := o.run(o.prepare("pair"))
	if err := a.library(t).WriteFile(t.Context(), "/file", make([]byte, fileSize)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		told  time.Duration
		keeps bool
	}{{0, true}, {0, true}, {-1, false}, {0, false}} {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		a.cfg.Archive = c.told
		o.run(a)
		lib := a.library(t)
		if err := lib.WriteFile(t.Context(), "/gone", make([]byte, fileSize)); err != nil {
			t.Fatal(err)
		}
		if err := lib.Remove(t.Context(), "/gone"); err != nil {
			t.Fatal(err)
		}
		if err := o.gc(a); err != nil {
			t.Fatal(err)
		}
		if waits := a.Tree().Counts().Garbage > 0; waits != c.keeps {
			t.Errorf("told %s: garbage waits: %t", c.told, waits)
		}
		archives := func() bool {
			s, err := a.raw.Admin.Status(t.Context(), &pb.StatusRequest{Caller: a.raw.Who})
			if err != nil {
				t.Fatal(err)
			}
			return s.GetArchive() != nil
		}
		env.Eventually(t, fmt.Sprintf("told %s: archives: %t", c.told, c.keeps), func() bool { return archives() == c.keeps })
	}
}

// TestArchiveIsInheritedByARestore: also the first namenode behind a restore, whose incarnation
// has told the store of no reign yet, does as the one before if it was not told to archive.
func TestArchiveIsInheritedByARestore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }, keep: 24 * time.Hour}
	a := o.run(o.prepare("pair"))
	lib := a.library(t)
	if err := lib.WriteFile(t.Context(), "/gone", make([]byte, fileSize)); err != nil {
		t.Fatal(err)
	}
	if err := lib.Remove(t.Context(), "/gone"); err != nil {
		t.Fatal(err)
	}
	a.checkpoint(t)
	last, _ := a.Tree().Last()
	archivedTo(t, p.blocks, last)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	o.zk, o.keep = env.LendZooKeeper(t), 0
	b := o.prepare("again")
	_, err := o.restore(b, "", "")
	if _, err := o.restore(b, "", incarnationOf(t, err)); err != nil {
		t.Fatal(err)
	}
	o.run(b)
	if b.Tree().Counts().Garbage == 0 {
		t.Fatal("no garbage was restored, which this is about")
	}
	if err := o.gc(b); err != nil {
		t.Fatal(err)
	}
	if b.Tree().Counts().Garbage == 0 {
		t.Error("what the archive needs was deleted")
	}
	env.Eventually(t, "it archives", func() bool {
		s, err := b.raw.Admin.Status(t.Context(), &pb.StatusRequest{Caller: b.raw.Who})
		return err == nil && s.GetArchive() != nil
	})
}

// TestFullStoreGetsRoom: when a store of which nobody knows how full it is refuses something
// for want of room, a page of the oldest garbage goes, although the archive needs it.
func TestFullStoreGetsRoom(t *testing.T) {
	t.Parallel()
	n := env.Start(t, archived(t.TempDir(), time.Hour))
	r := n.Raw(t, "a")
	const files = 70
	for i := range files {
		withBlock(t, r, fmt.Sprintf("/%d", i), fmt.Sprint("content ", i))
	}
	for i := range files {
		remove(t, r, fmt.Sprintf("/%d", i))
	}
	left := func() int { return n.Tree().Counts().Garbage }
	for _, gone := range []int{64, files} {
		n.NoteFull()
		env.Eventually(t, fmt.Sprintf("%d blocks are gone", gone), func() bool { return left() == files-gone })
		if _, _, err := n.CollectGarbage(t.Context()); err != nil || left() != files-gone {
			t.Fatalf("%d blocks are left, %v", left(), err)
		}
	}
	if text := n.Metrics(t); !strings.Contains(text, "leasefs_archive_blocks_deleted_early_total 70\n") {
		t.Error("metrics tell of another number")
	}
}

// TestDoubtsAreTold: who restores what was at a time is warned if the archive cannot tell
// whether it has all of that time.
func TestDoubtsAreTold(t *testing.T) {
	t.Parallel()
	clk, fake := env.FakeClock()
	blocks := t.TempDir()
	n := env.Start(t, fake, archived(blocks, time.Hour))
	off, err := n.Config().Offline()
	if err != nil {
		t.Fatal(err)
	}
	rewind := func(at time.Time) (txid uint64, says string) {
		t.Helper()
		var log strings.Builder
		off.Logger = slog.New(slog.NewTextHandler(&log, nil))
		done, err := offline.Rewind(t.Context(), offline.Rewinding{Config: off, At: archive.At{Time: at}, Dir: filepath.Join(t.TempDir(), "then")})
		if err != nil {
			t.Fatal(err)
		}
		return done.TxID, log.String()
	}
	makers := 0
	made := func(path string) (txid uint64) {
		makers++
		r := n.Raw(t, fmt.Sprint("maker", makers))
		r.Make(path)
		archivedTo(t, blocks, r.TxID())
		clk.Advance(time.Minute)
		return r.TxID()
	}
	first := made("/first")
	between := clk.Wall()
	clk.Advance(time.Minute)
	second := made("/second")
	if txid, says := rewind(between); txid != first || says != "" {
		t.Errorf("record %d, not %d: %q", txid, first, says)
	}
	if txid, says := rewind(clk.Wall()); txid != second || !strings.Contains(says, "no later record") {
		t.Errorf("record %d, not %d: %q", txid, second, says)
	}
	const jump = 24 * time.Hour
	clk.ShiftWall(jump)
	n.Restart(t)
	third := made("/third")
	ahead := clk.Wall().Add(-time.Second)
	made("/fourth")
	clk.ShiftWall(-jump)
	n.Restart(t)
	if txid, says := rewind(clk.Wall()); txid != second || !strings.Contains(says, "a time that has not come yet") {
		t.Errorf("record %d, not %d: %q", txid, second, says)
	}
	if txid, says := rewind(ahead); txid != third || !strings.Contains(says, "a time that has not come yet") {
		t.Errorf("record %d, not %d: %q", txid, third, says)
	}
}
