package snapshots

import (
	"testing"

	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TestAstray: of an image, no inode is accepted from which going up does not end, or leads through
// what is no directory.
func TestAstray(t *testing.T) {
	const dir, file = calls.TypeDir, calls.TypeFile
	for name, c := range map[string]struct {
		types   map[tables.InodeID]calls.Type
		parents map[tables.InodeID]tables.InodeID
		astray  bool
	}{
		"a tree":                     {map[tables.InodeID]calls.Type{1: dir, 2: dir, 3: file}, map[tables.InodeID]tables.InodeID{2: 1, 3: 2}, false},
		"what is above is missing":   {map[tables.InodeID]calls.Type{1: dir, 3: file}, map[tables.InodeID]tables.InodeID{3: 2}, false},
		"a file in itself":           {map[tables.InodeID]calls.Type{1: dir, 2: file}, map[tables.InodeID]tables.InodeID{2: 2}, true},
		"a directory in itself":      {map[tables.InodeID]calls.Type{1: dir, 2: dir}, map[tables.InodeID]tables.InodeID{2: 2}, true},
		"two in one another":         {map[tables.InodeID]calls.Type{1: dir, 2: dir, 3: dir}, map[tables.InodeID]tables.InodeID{2: 3, 3: 2}, true},
		"a file in a file":           {map[tables.InodeID]calls.Type{1: dir, 2: file, 3: file}, map[tables.InodeID]tables.InodeID{2: 1, 3: 2}, true},
		"a circle through a file":    {map[tables.InodeID]calls.Type{1: dir, 2: file, 3: dir}, map[tables.InodeID]tables.InodeID{2: 3, 3: 2}, true},
		"a file below a file's file": {map[tables.InodeID]calls.Type{1: file, 2: dir, 3: file}, map[tables.InodeID]tables.InodeID{2: 1, 3: 2}, true},
	} {
		in := node.NewTable()
		var ids []tables.InodeID
		for id := range tables.InodeID(4) {
			if typ := c.types[id]; typ != 0 {
				in.PutInode(&node.Inode{ID: id, Parent: c.parents[id], Type: typ})
				ids = append(ids, id)
			}
		}
		if id, is := in.Hanging(ids, uint8(dir), true); is != c.astray {
			t.Errorf("%s: %d %v", name, id, is)
		}
	}
}
