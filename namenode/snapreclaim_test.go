package namenode_test

import (
	"os"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestSnapshotKeepsBlocks: the block of a file that was deleted stays in the store as long as a
// snapshot has it, and is deleted after that.
func TestSnapshotKeepsBlocks(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake)
	r := n.Raw(t, "a")
	withBlock(t, r, "/d/kept", "kept")
	change := func(plan func(*namespace.Tree) (namespace.Op, error)) {
		t.Helper()
		if err := n.Change(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
	}
	root := &namespace.Call{Super: true, User: "root"}
	change(func(t *namespace.Tree) (namespace.Op, error) {
		return namespace.PlanAllowSnapshots(t, root, namespace.At("/d"), true)
	})
	change(func(t *namespace.Tree) (namespace.Op, error) {
		return namespace.PlanSnapshot(t, root, namespace.At("/d"), "s")
	})
	remove(t, r, "/d/kept")
	collect := func() {
		t.Helper()
		if err := n.Reclaim(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			clk.Advance(time.Hour)
			if _, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who}); err != nil {
				t.Fatal(err)
			}
		}
	}
	collect()
	if left := blockFiles(t, n.Config().Data); len(left) != 1 {
		t.Fatalf("%d blocks are left with the snapshot", len(left))
	}
	if c := n.Tree().Counts(); c.Held != 1 || c.HeldBytes == 0 || c.StoredBytes != 0 {
		t.Fatalf("%+v", c)
	}
	change(func(t *namespace.Tree) (namespace.Op, error) {
		return namespace.PlanDeleteSnapshot(t, root, namespace.At("/d"), "s")
	})
	collect()
	if left := blockFiles(t, n.Config().Data); len(left) != 0 {
		t.Fatalf("%d blocks are left without the snapshot", len(left))
	}
}

// TestFsckOfSnapshots: fsck finds that a block which only snapshots have is gone, and says of which
// file in which.
func TestFsckOfSnapshots(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r, fs := n.Raw(t, "r"), n.Client(t)
	withBlock(t, r, "/d/f", "content")
	if _, err := r.NN.AllowSnapshots(t.Context(), &pb.AllowSnapshotsRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d"), Allow: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "new"} {
		if _, err := r.NN.MakeSnapshot(t.Context(), &pb.MakeSnapshotRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d"), Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, r, "/d/f")
	fsckClean(t, r)
	for _, file := range blockFiles(t, n.Config().Data) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(path string, blocks bool) {
		t.Helper()
		var found []client.FsckProblem
		if _, err := fs.Admin().Fsck(t.Context(), "", blocks, func(p client.FsckProblem) error { found = append(found, p); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Path != path {
			t.Errorf("the block of %s is gone, and fsck finds %+v", path, found)
		}
	}
	finds("/d/.snapshot/new/f", true)
	finds("/d/.snapshot/new/f", false)
	if _, err := r.NN.DeleteSnapshot(t.Context(), &pb.DeleteSnapshotRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d"), Name: "new"}); err != nil {
		t.Fatal(err)
	}
	if err := n.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	finds("/d/.snapshot/old/f", true)
}
