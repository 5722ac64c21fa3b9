package audit

import (
	"slices"
	"testing"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestTrashIsAudited: a line says which entries of the trash were removed for good, by their
// inodes, and which one was restored, and where to.
func TestTrashIsAudited(t *testing.T) {
	for _, c := range []struct {
		method  string
		request any
		want    []Path
	}{
		{"EmptyTrash", &pb.EmptyTrashRequest{Inodes: []uint64{7, 9, 8}}, []Path{{Base: 7}, {Base: 9}, {Base: 8}}},
		{"RestoreTrash", &pb.RestoreTrashRequest{Inode: 7, To: pb.At("/a/b")}, []Path{{Base: 7}, {Path: "/a/b"}}},
	} {
		var l Line
		if l.Asked(c.method, c.request); l.Reads || !slices.Equal(l.paths(), c.want) {
			t.Errorf("%s: %v", c.method, l.paths())
		}
	}
}
