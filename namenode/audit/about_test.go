package audit

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestTrashIsAudited: a line says what was deleted for good where others keep it in the trash,
// which entries of the trash were, by their inodes, and which one was restored, and where to.
func TestTrashIsAudited(t *testing.T) {
	for _, c := range []struct {
		method  string
		request any
		want    []Path
		forGood bool
	}{
		{"Delete", &pb.DeleteRequest{At: pb.At("/a")}, []Path{{Path: "/a"}}, false},
		{"Delete", &pb.DeleteRequest{At: pb.At("/a"), SkipTrash: true}, []Path{{Path: "/a"}}, true},
		{"EmptyTrash", &pb.EmptyTrashRequest{Inodes: []uint64{7, 9, 8}}, []Path{{Base: 7}, {Base: 9}, {Base: 8}}, true},
		{"RestoreTrash", &pb.RestoreTrashRequest{Inode: 7, To: pb.At("/a/b")}, []Path{{Base: 7}, {Path: "/a/b"}}, false},
	} {
		var l Line
		if l.Asked(c.method, c.request); l.Reads || !slices.Equal(l.paths(), c.want) {
			t.Errorf("%s: %v", c.method, l.paths())
		}
		if got := string(l.append(nil)); strings.Contains(got, `"for_good":true`) != c.forGood {
			t.Errorf("%v: %s", c.request, got)
		}
	}
}

// TestSnapshotsAreAudited: a line about a snapshot that has a name has its path, too.
func TestSnapshotsAreAudited(t *testing.T) {
	for _, c := range []struct {
		method  string
		request any
		want    []Path
	}{
		{"MakeSnapshot", &pb.MakeSnapshotRequest{At: pb.Follow("/d")}, []Path{{Path: "/d"}}},
		{"MakeSnapshot", &pb.MakeSnapshotRequest{At: pb.Follow("/"), Name: "a"}, []Path{{Path: "/"}, {Path: "/.snapshot/a"}}},
		{"DeleteSnapshot", &pb.DeleteSnapshotRequest{At: pb.At("/d/"), Name: "../../payroll"}, []Path{{Path: "/d/"}, {Path: "/d/.snapshot/../../payroll"}}},
		{"RenameSnapshot", &pb.RenameSnapshotRequest{At: pb.Follow("/d"), Name: "a", NewName: "b"}, []Path{{Path: "/d"}, {Path: "/d/.snapshot/a"}, {Path: "/d/.snapshot/b"}}},
		{"DeleteSnapshot", &pb.DeleteSnapshotRequest{At: pb.Inode(7), Name: "a"}, []Path{{Base: 7}, {Base: 7, Path: ".snapshot/a"}}},
	} {
		var l Line
		if l.Asked(c.method, c.request); l.Reads || !slices.Equal(l.paths(), c.want) {
			t.Errorf("%s: %v", c.method, l.paths())
		}
	}
}
