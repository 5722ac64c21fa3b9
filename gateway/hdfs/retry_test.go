package hdfs_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/test/env"
)

// TestUnknownOutcomeIsTold: a client is not asked to make a call once more that must not happen twice
// and of which nobody knows whether it has happened. It is told so.
func TestUnknownOutcomeIsTold(t *testing.T) {
	wire := new(env.Wire)
	n, s := start(t, func(c *hdfs.Config) {
		c.Client.DialOptions, c.Client.Timeout, c.Pair = wire.DialOptions(), 10*time.Second, true
	})
	fs := n.Client(t)
	check(t, fs.WriteFile(t.Context(), "/a", []byte("a")))
	del, mkdirs := dial(t, s, "root", ""), dial(t, s, "root", "")
	ask(del, "getFileInfo", of("/a"), new(pb.StatusResponseProto)) // there is a session now
	wire.Set(func(method string, _ any, send func() error) error {
		if err := send(); method != "Delete" && method != "Mkdir" {
			return err
		}
		return env.ErrLost
	})
	t.Cleanup(func() { wire.Set(nil) })
	var both sync.WaitGroup
	both.Go(func() {
		err := mkdirs.call(clientProtocol, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/d"), Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(false)}, new(pb.BoolResponseProto))
		wantClass(t, "mkdirs", err, hadoop.Standby)
	})
	err := del.call(clientProtocol, "delete", &pb.DeleteRequestProto{Src: proto.String("/a"), Recursive: proto.Bool(false)}, new(pb.BoolResponseProto))
	wantClass(t, "delete", err, hadoop.IOException)
	if err == nil || !strings.Contains(err.Error(), "look before you repeat it") {
		t.Errorf("delete: %v", err)
	}
	both.Wait()
	if _, err := fs.Stat(t.Context(), "/a"); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("the file that was deleted: %v", err)
	}
}

// TestRetryAtAnotherGateway: a gateway is killed when a call was carried out and its client
// has no answer yet. What the client is told that makes the call once more by another gateway
// is what docs/HADOOP.md says, and the call has happened once.
func TestRetryAtAnotherGateway(t *testing.T) {
	n := env.Start(t)
	fs, second := n.Client(t), gateway(t, n)
	calls := int32(0) // of one client: each has a number of its own
	user := pb.XAttrProto_USER.Enum()
	const none = "none" // no error
	for method, c := range map[string]struct {
		request, answer proto.Message
		class           string // of the error of the repeated call
		says            string // what the answer to it says
		entries         string // of the directory in the end
	}{
		"create": {
			&pb.CreateRequestProto{
				Src: proto.String("/create/f"), ClientName: proto.String("c"), CreateFlag: proto.Uint32(1), CreateParent: proto.Bool(false),
				Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o444)}, Replication: proto.Uint32(2), BlockSize: proto.Uint64(1 << 20),
			}, new(pb.StatusResponseProto), none, "blocksize:1048576", "a b dir f",
		},
		"append": {
			&pb.AppendRequestProto{Src: proto.String("/append/a"), ClientName: proto.String("d")}, new(pb.AppendResponseProto), none, "length:1", "a b dir",
		},
		"delete": {
			&pb.DeleteRequestProto{Src: proto.String("/delete/a"), Recursive: proto.Bool(false)}, new(pb.BoolResponseProto), none, "result:false", "b dir",
		},
		"rename": {
			&pb.RenameRequestProto{Src: proto.String("/rename/a"), Dst: proto.String("/rename/c")}, new(pb.BoolResponseProto), none, "result:false", "b c dir",
		},
		"rename2": {
			&pb.Rename2RequestProto{Src: proto.String("/rename2/a"), Dst: proto.String("/rename2/b"), OverwriteDest: proto.Bool(true)}, new(pb.EmptyProto), "java.io.FileNotFoundException", "", "b dir",
		},
		"concat": {
			&pb.ConcatRequestProto{Trg: proto.String("/concat/a"), Srcs: []string{"/concat/b"}}, new(pb.EmptyProto), "java.io.FileNotFoundException", "", "a dir",
		},
		"createSymlink": {
			&pb.CreateSymlinkRequestProto{Target: proto.String("a"), Link: proto.String("/createSymlink/l"), DirPerm: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(false)},
			new(pb.EmptyProto), hadoop.FileExists, "", "a b dir l",
		},
		"setXAttr": {
			&pb.SetXAttrRequestProto{Src: proto.String("/setXAttr/a"), XAttr: &pb.XAttrProto{Namespace: user, Name: proto.String("x"), Value: []byte("v")}, Flag: proto.Uint32(1)},
			new(pb.EmptyProto), "java.io.IOException", "", "a b dir",
		},
		"removeXAttr": {
			&pb.XAttrsRequestProto{Src: proto.String("/removeXAttr/b"), XAttrs: []*pb.XAttrProto{{Namespace: user, Name: proto.String("x")}}},
			new(pb.EmptyProto), hadoop.XattrNotFound, "", "a b dir",
		},
		"mkdirs": {
			&pb.MkdirsRequestProto{Src: proto.String("/mkdirs/d"), Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(false)}, new(pb.BoolResponseProto), none, "result:true", "a b d dir",
		},
		"setReplication": {
			&pb.SetReplicationRequestProto{Src: proto.String("/setReplication/a"), Replication: proto.Uint32(2)}, new(pb.BoolResponseProto), none, "result:true", "a b dir",
		},
		"truncate": {
			&pb.TruncateRequestProto{Src: proto.String("/truncate/a"), NewLength: proto.Uint64(0), ClientName: proto.String("c")}, new(pb.BoolResponseProto), none, "result:true", "a b dir",
		},
	} {
		t.Run(method, func(t *testing.T) {
			dir := "/" + method
			check(t, fs.MkdirAll(t.Context(), dir+"/dir", 0o755), fs.WriteFile(t.Context(), dir+"/a", []byte("a")), fs.WriteFile(t.Context(), dir+"/b", []byte("b")))
			check(t, fs.Xattrs(dir+"/b").Set(t.Context(), "user.x", []byte("v"), client.XattrAny))
			wire := new(env.Wire)
			first := dial(t, gateway(t, n, func(c *hdfs.Config) { c.Client.DialOptions = wire.DialOptions() }), "root", "")
			calls++
			first.last = calls
			check(t, first.call(clientProtocol, method, c.request, proto.Clone(c.answer))) // and nobody gets the answer
			wire.Cut()
			t.Cleanup(wire.Mend)
			before := records(t, fs)

			r := dial(t, second, "root", "")
			r.last, r.retry = first.last-1, 1
			err := r.call(clientProtocol, method, c.request, c.answer)
			switch {
			case c.class != none:
				wantClass(t, method, err, c.class)
			case err != nil || !strings.Contains(strings.ReplaceAll(c.answer.(interface{ String() string }).String(), "  ", " "), c.says):
				t.Errorf("the repeated call: %v, %v", c.answer, err)
			}
			if n := records(t, fs) - before; n > 0 && method != "create" && method != "append" {
				t.Errorf("it happened again: %d records", n)
			}
			var names []string
			entries, err := fs.ReadDir(t.Context(), dir)
			check(t, err)
			for _, i := range entries {
				names = append(names, i.Name())
			}
			if got := strings.Join(names, " "); got != c.entries {
				t.Errorf("there are %s", got)
			}
		})
	}
}
