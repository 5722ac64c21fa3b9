package namenode_test

import (
	"testing"
	"time"

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
