package hdfs_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// records is the number of the newest journal record.
func records(t *testing.T, fs *client.FS) uint64 {
	t.Helper()
	all, err := fs.Status(t.Context())
	check(t, err)
	return all[0].TxID
}

// TestCreateIsOneRecord: replication and block size are there from the first moment, and
// cost no journal record of their own, in whatever mode.
func TestCreateIsOneRecord(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	root := dial(t, s, "root", "")
	ask(root, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/shut"), Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o777)}, CreateParent: proto.Bool(true)}, new(pb.BoolResponseProto))
	ask(root, "setOwner", &pb.SetOwnerRequestProto{Src: proto.String("/shut"), Username: proto.String("ann")}, new(pb.EmptyProto))
	shut := "/shut" // its files are read-only by its default ACL
	ask(root, "setAcl", &pb.AclRequestProto{Src: &shut, AclSpec: spec(t, "user::rwx,group::rwx,other::rwx,default:user::r--,default:group::r--,default:other::r--")}, new(pb.EmptyProto))
	r := dial(t, s, "ann", "")
	create := func(path string, mode, replication uint32, size uint64) {
		t.Helper()
		var st pb.StatusResponseProto
		check(t, r.call(clientProtocol, "create", &pb.CreateRequestProto{
			Src: &path, ClientName: proto.String("c"), CreateFlag: proto.Uint32(3), CreateParent: proto.Bool(false),
			Masked: &pb.FsPermissionProto{Perm: &mode}, Replication: &replication, BlockSize: &size,
		}, &st))
		if st.GetFs().GetBlocksize() != size {
			t.Errorf("%s was made with blocks of %d bytes, should be %d", path, st.GetFs().GetBlocksize(), size)
		}
	}
	create("/shut/first", 0o644, 3, 128<<20) // with the session
	for _, size := range []uint64{0, hadoop.MaxBlockSize + 1, 1<<63 - 512, 1 << 63} {
		err := r.call(clientProtocol, "create", &pb.CreateRequestProto{
			Src: proto.String("/shut/large"), ClientName: proto.String("c"), CreateFlag: proto.Uint32(3), CreateParent: proto.Bool(false),
			Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o644)}, Replication: proto.Uint32(3), BlockSize: &size,
		}, new(pb.StatusResponseProto))
		wantClass(t, fmt.Sprintf("blocks of %d bytes", size), err, hadoop.IOException)
	}
	for i, c := range []struct {
		mode, replication uint32
		size              uint64
	}{
		{0o644, 3, 128 << 20},
		{0o644, 1, 128 << 20},
		{0o444, 3, 1 << 20},
		{0, 2, 64 << 20},
	} {
		for _, path := range []string{fmt.Sprint("/shut/", i), "/shut/again"} { // which replaces one
			before := records(t, fs)
			create(path, c.mode, c.replication, c.size)
			if n := records(t, fs) - before; n != 1 {
				t.Errorf("create of %s with %+v is %d records", path, c, n)
			}
			st := ask(root, "getFileInfo", of(path), new(pb.StatusResponseProto)).GetFs()
			if st.GetBlockReplication() != c.replication || st.GetBlocksize() != c.size || st.GetPermission().GetPerm()&0o200 != 0 && path != "/shut/again" {
				t.Errorf("%s: %v, want %+v", path, st, c)
			}
			ask(r, "complete", &pb.CompleteRequestProto{Src: &path, ClientName: proto.String("c"), FileId: st.FileId}, new(pb.BoolResponseProto))
			if path == "/shut/again" { // who replaces a file has to be able to write it
				check(t, fs.Chmod(t.Context(), path, 0o644))
			}
		}
	}
}
