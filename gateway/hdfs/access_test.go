package hdfs_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestCheckAccess: whether somebody may is what the namenode says by all of its rules.
func TestCheckAccess(t *testing.T) {
	groups := map[string][]string{"mia": {"staff"}, "sue": {"supergroup"}}
	n := env.Start(t, func(c *namenode.Config) { c.Groups = func(user string) []string { return groups[user] } })
	s := gateway(t, n)
	root := dial(t, s, "root", "")
	write(t, connect(t, s, "root"), "/f", nil, 1024)
	write(t, connect(t, s, "root"), "/run", nil, 1024)
	f, run := "/f", "/run"
	ask(root, "setOwner", &pb.SetOwnerRequestProto{Src: &f, Username: proto.String("ann"), Groupname: proto.String("staff")}, new(pb.EmptyProto))
	ask(root, "setOwner", &pb.SetOwnerRequestProto{Src: &run, Username: proto.String("ann"), Groupname: proto.String("staff")}, new(pb.EmptyProto))
	ask(root, "setPermission", &pb.SetPermissionRequestProto{Src: &f, Permission: &pb.FsPermissionProto{Perm: proto.Uint32(0o640)}}, new(pb.EmptyProto))
	ask(root, "setPermission", &pb.SetPermissionRequestProto{Src: &run, Permission: &pb.FsPermissionProto{Perm: proto.Uint32(0o450)}}, new(pb.EmptyProto))
	ask(root, "modifyAclEntries", &pb.AclRequestProto{Src: &run, AclSpec: spec(t, "user:bob:--x")}, new(pb.EmptyProto))
	const read, write, execute = 4, 2, 1
	for user, may := range map[string]map[string]uint32{
		"ann":  {"/f": read | write, "/run": read},
		"mia":  {"/f": read, "/run": read | execute},      // of the group
		"bob":  {"/f": 0, "/run": execute},                // by the ACL
		"eve":  {"/f": 0, "/run": 0},                      // of no group
		"sue":  {"/f": read | write, "/run": 7},           // of the supergroup; nobody runs what nobody may
		"root": {"/f": read | write, "/run": 7, "/": 7},   // the superuser
		"kim":  {"/": read | execute, "/f": 0, "/run": 0}, // of others
	} {
		r := dial(t, s, user, "")
		for path, bits := range may {
			for want := range uint32(8) {
				err := r.call(clientProtocol, "checkAccess", &pb.CheckAccessRequestProto{Path: &path, Mode: &want}, new(pb.EmptyProto))
				switch {
				case want&^bits == 0 && err != nil:
					t.Errorf("%s wants %03b of %s: %v", user, want, path, err)
				case want&^bits != 0:
					wantClass(t, fmt.Sprintf("%s wants %03b of %s", user, want, path), err, hadoop.AccessControl)
				}
			}
		}
	}
	check := func(path string, mode uint32, class string) {
		wantClass(t, path, root.call(clientProtocol, "checkAccess", &pb.CheckAccessRequestProto{Path: &path, Mode: &mode}, new(pb.EmptyProto)), class)
	}
	check("/none", 0, "java.io.FileNotFoundException")
	check("/f", 8, "org.apache.hadoop.HadoopIllegalArgumentException")
	check("/f", 1<<31, "org.apache.hadoop.HadoopIllegalArgumentException")
}

// TestReplicationKeepsTheBlockSize: who may write a file and not read it does not know its block
// size, and so cannot set its replication.
func TestReplicationKeepsTheBlockSize(t *testing.T) {
	_, s := start(t)
	write(t, connect(t, s, "root"), "/f", nil, 1<<20)
	root, f := dial(t, s, "root", ""), "/f"
	set := func(user string) error {
		return dial(t, s, user, "").call(clientProtocol, "setReplication", &pb.SetReplicationRequestProto{Src: &f, Replication: proto.Uint32(2)}, new(pb.BoolResponseProto))
	}
	for _, c := range []struct {
		user string
		mode uint32
		may  bool
	}{{"kim", 0o602, false}, {"kim", 0o606, true}, {"root", 0o602, true}} {
		ask(root, "setPermission", &pb.SetPermissionRequestProto{Src: &f, Permission: &pb.FsPermissionProto{Perm: &c.mode}}, new(pb.EmptyProto))
		if err := set(c.user); c.may && err != nil {
			t.Errorf("%s, %o: %v", c.user, c.mode, err)
		} else if !c.may {
			wantClass(t, c.user, err, hadoop.AccessControl)
		}
		if st := ask(root, "getFileInfo", of(f), new(pb.StatusResponseProto)).GetFs(); st.GetBlocksize() != 1<<20 {
			t.Errorf("%s, %o: the block size is %d", c.user, c.mode, st.GetBlocksize())
		}
	}
}
