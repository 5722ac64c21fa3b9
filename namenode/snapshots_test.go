package namenode_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestSnapshotsKeepBlocks: a block stays in the block store as long as a file or a snapshot has it, over
// restarts with and without an image, and no longer; status, metrics and fsck count and check what only
// snapshots have.
func TestSnapshotsKeepBlocks(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake)
	r, fs := n.Raw(t, "root"), n.Client(t, env.Named("c"))
	ctx := t.Context()
	if _, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d/sub"), Parents: true}); err != nil {
		t.Fatal(err)
	}
	allow := func(dir string) {
		t.Helper()
		if err := snapshots.Allow(ctx, fs, dir); err != nil {
			t.Fatal(err)
		}
	}
	snap := func(dir, name string) {
		t.Helper()
		if _, err := snapshots.Make(ctx, fs, dir, name); err != nil {
			t.Fatal(err)
		}
	}
	forget := func(dir, name string) {
		t.Helper()
		if err := snapshots.Delete(ctx, fs, dir, name); err != nil {
			t.Fatal(err)
		}
	}
	allow("/d")
	allow("/d/sub")
	const block = 1000
	text := strings.Repeat("0123456789", block/10)
	for _, p := range []string{"/d/once", "/d/twice", "/d/sub/both", "/d/sub/inner", "/d/stays"} {
		withBlock(t, r, p, text)
	}
	snap("/d", "1")
	remove(t, r, "/d/once")
	snap("/d", "2")
	snap("/d/sub", "in")
	remove(t, r, "/d/twice")
	remove(t, r, "/d/sub/both")
	withBlock(t, r, "/d/late", text)
	remove(t, r, "/d/late") // nobody's
	files := func() int { return len(blockFiles(t, n.Config().Data)) }
	settles := func(what string, kept, held int) {
		t.Helper()
		env.Eventually(t, what, func() bool {
			clk.Advance(2 * namenode.DefaultURLLife)
			if err := n.SweepPass(ctx); err != nil {
				t.Fatal(err)
			}
			if _, _, err := n.CollectGarbage(ctx); err != nil {
				t.Fatal(err)
			}
			s := stateOf(t, r)
			return files() == kept && s.GetSnapshotBlocks() == uint64(held) && s.GetSnapshotBytes() >= int64(held)*block && s.GetSnapshotBytes() <= int64(held)*(block+100) && s.GetGarbageBlocks() == 0
		})
		if !strings.Contains(n.Metrics(t), fmt.Sprintf("leasefs_snapshot_blocks %d\n", held)) {
			t.Errorf("%s: no such metric", what)
		}
		fsckClean(t, r)
	}
	settles("what no snapshot has goes", 5, 3)
	n.Restart(t)
	settles("after a restart", 5, 3)
	if _, err := r.Admin.Checkpoint(ctx, &pb.CheckpointRequest{Caller: r.Who}); err != nil {
		t.Fatal(err)
	}
	n.Restart(t)
	settles("from an image", 5, 3)
	for path, there := range map[string]bool{
		"/d/.snapshot/1/once": true, "/d/.snapshot/2/once": false, "/d/.snapshot/2/twice": true, "/d/.snapshot/1/sub/both": true,
		"/d/sub/.snapshot/in/both": true, "/d/sub/.snapshot/in/inner": true, "/d/.snapshot/2/late": false, "/d/.snapshot/1/stays": true,
	} {
		data, err := fs.ReadFile(ctx, path)
		if there != (err == nil) || there && string(data) != text || err != nil && fserror.KindOf(err) != fserror.NotFound {
			t.Errorf("%s: %d bytes, %v", path, len(data), err)
		}
	}
	forget("/d", "1")
	settles("what the first had alone", 4, 2)
	forget("/d", "2")
	settles("what the inner one has, too, stays", 3, 1)
	n.Restart(t)
	settles("after a restart", 3, 1)
	forget("/d/sub", "in")
	settles("nothing is only in snapshots", 2, 0)
	if data, err := fs.ReadFile(ctx, "/d/stays"); err != nil || string(data) != text {
		t.Errorf("%q, %v", data, err)
	}
}

// TestSnapshotsOverATakeOver: a standby that takes over has each snapshot, with its bytes, compares and
// restores, and frees what a snapshot had that its predecessor deleted.
func TestSnapshotsOverATakeOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var cfgs [2]namenode.Config
	var all [2]*namenode.Server
	for i := range cfgs {
		cfgs[i], _ = p.config()
		all[i] = p.start(cfgs[i])
		p.becomes(all[i], [2]string{"active", "standby"}[i])
	}
	f := p.client(cfgs[0].Listen, cfgs[1].Listen)
	ctx := t.Context()
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	over := func(from int) {
		t.Helper()
		_, err := f.Admin().Failover(ctx)
		do("failover", err)
		<-all[from].Done()
		if err := all[from].Err(); !reign.Restartable(err) {
			t.Fatal(err)
		}
		do("close", all[from].Close())
		all[from] = p.start(cfgs[from])
		p.becomes(all[1-from], "active")
		p.becomes(all[from], "standby")
	}
	old := bytes.Repeat([]byte("0123456789"), 20_000) // four blocks
	do("mkdir", f.Mkdir(ctx, "/d", 0o755))
	for _, p := range []string{"/d/f", "/d/g"} {
		_, err := f.WriteFrom(ctx, p, bytes.NewReader(old))
		do("write", err)
	}
	do("allow", snapshots.Allow(ctx, f, "/d"))
	_, err := snapshots.Make(ctx, f, "/d", "s")
	do("make", err)
	do("remove", f.Remove(ctx, "/d/f"))
	do("truncate", f.Truncate(ctx, "/d/g", 7))
	over(0)
	data, err := f.ReadFile(ctx, "/d/.snapshot/s/f")
	do("read", err)
	if !bytes.Equal(data, old) {
		t.Errorf("%d bytes", len(data))
	}
	var changes []string
	do("diff", snapshots.Diff(ctx, f, "/d", "s", "", func(c *snapshots.Change) error {
		changes = append(changes, c.Type.String()+" "+c.Path)
		return nil
	}))
	if len(changes) != 3 {
		t.Error(changes)
	}
	_, err = transfer.Restore(ctx, f, "/d", "s", "g", transfer.RestoreOptions{})
	do("restore", err)
	over(1)
	if data, err = f.ReadFile(ctx, "/d/g"); err != nil || !bytes.Equal(data, old) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	held := func() int64 {
		list, err := f.Status(ctx)
		do("status", err)
		for _, st := range list {
			if st.Role == "active" {
				return st.SnapshotBytes
			}
		}
		return -1
	}
	if held() < int64(len(old)) {
		t.Errorf("only snapshots have %d bytes", held())
	}
	do("delete", snapshots.Delete(ctx, f, "/d", "s"))
	over(0)
	p.eventually("the successor frees what the snapshot had", func() bool { return held() == 0 })
	if data, err = f.ReadFile(ctx, "/d/g"); err != nil || !bytes.Equal(data, old) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	for _, s := range all {
		do("close", s.Close())
	}
}
