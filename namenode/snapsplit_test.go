package namenode_test

import (
	"testing"

	client "github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// TestClientsSplitNumbers: clients find the number of a snapshot in that of an inode as the namenode does.
func TestClientsSplitNumbers(t *testing.T) {
	for _, live := range []uint64{1, 1 << 40, 1<<snapshots.Bits - 1} {
		if id, is := client.Split(client.Inode(5, live)); id != 5 || is != live || client.Inode(5, live) != 5<<snapshots.Bits|live {
			t.Errorf("%d: snapshot %d, inode %d", live, id, is)
		}
	}
}
