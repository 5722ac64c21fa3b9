package hdfs_test

import (
	"context"
	"path"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	leasefs "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestCreateAndCompleteAreTwoCalls: the gateway's answer to create describes the file, and
// complete names its inode, so that a file costs two calls to the namenode. If the namenode
// does not find the file by its path any more, the gateway looks for the inode.
func TestCreateAndCompleteAreTwoCalls(t *testing.T) {
	var (
		mu    sync.Mutex
		made  []string
		moved bool // the answer is that of a file which was moved right after it was made
	)
	_, s := start(t, func(c *hdfs.Config) {
		c.Client.DialOptions = append(c.Client.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := next(ctx, method, req, reply, cc, opts...)
				mu.Lock()
				defer mu.Unlock()
				made = append(made, path.Base(method))
				if r, ok := reply.(*leasefs.OpenResponse); ok && err == nil && moved {
					r.Attr = &leasefs.Attr{Inode: r.GetAttr().GetInode(), Type: r.GetAttr().GetType()}
				}
				return err
			}))
	})
	r := dial(t, s, "root", "")
	file := func(path string, mod bool, want ...string) {
		t.Helper()
		mu.Lock()
		made, moved = nil, mod
		mu.Unlock()
		st := ask(r, "create", &pb.CreateRequestProto{
			Src: &path, ClientName: proto.String("c"), CreateFlag: proto.Uint32(1), CreateParent: proto.Bool(false),
			Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o640)}, Replication: proto.Uint32(1), BlockSize: proto.Uint64(1 << 20),
		}, new(pb.StatusResponseProto)).GetFs()
		if st.GetOwner() != "root" || st.GetPermission().GetPerm() != 0o640 || st.GetModificationTime() == 0 || st.GetFileId() == 0 {
			t.Errorf("%s was made as %v", path, st)
		}
		ask(r, "complete", &pb.CompleteRequestProto{Src: &path, ClientName: proto.String("c"), FileId: st.FileId}, new(pb.BoolResponseProto))
		mu.Lock()
		defer mu.Unlock()
		if want != nil && !slices.Equal(made, want) {
			t.Errorf("%s took the calls %v, want %v", path, made, want)
		}
	}
	file("/first", false) // with the sessions
	file("/f", false, "Create", "Close")
	file("/g", true, "Create", "Stat", "Close")
}
