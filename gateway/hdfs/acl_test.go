package hdfs_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/posixacl"
)

// spec are the entries of a text as Hadoop's client sends them.
func spec(t *testing.T, text string) (list []*pb.AclEntryProto) {
	t.Helper()
	entries, err := posixacl.ParseEntries(text, true)
	check(t, err)
	for _, e := range entries {
		out := &pb.AclEntryProto{Name: &e.Name, Permissions: proto.Uint32(uint32(e.Perm)), Scope: pb.AclEntryProto_ACCESS.Enum()}
		switch e.Tag {
		case posixacl.Owner, posixacl.User:
			out.Type = pb.AclEntryProto_USER.Enum()
		case posixacl.OwningGroup, posixacl.Group:
			out.Type = pb.AclEntryProto_GROUP.Enum()
		case posixacl.Mask:
			out.Type = pb.AclEntryProto_MASK.Enum()
		default:
			out.Type = pb.AclEntryProto_OTHER.Enum()
		}
		if e.Default {
			out.Scope = pb.AclEntryProto_DEFAULT.Enum()
		}
		list = append(list, out)
	}
	return list
}

// shown is an ACL as Hadoop's client is told it.
func shown(r *raw, path string) string {
	r.t.Helper()
	var words []string
	for _, e := range ask(r, "getAclStatus", of(path), new(pb.GetAclStatusResponseProto)).GetResult().GetEntries() {
		word := strings.ToLower(e.GetType().String()) + ":" + e.GetName() + ":" + posixacl.Perms(uint8(e.GetPermissions()))
		if e.GetScope() == pb.AclEntryProto_DEFAULT {
			word = "default:" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestACLs: the calls about ACLs do what they do in HDFS.
func TestACLs(t *testing.T) {
	_, s := start(t)
	r := dial(t, s, "root", "")
	change := func(method, path, entries string) error {
		return r.call(clientProtocol, method, &pb.AclRequestProto{Src: &path, AclSpec: spec(t, entries)}, new(pb.EmptyProto))
	}
	status := func(path string) *pb.HdfsFileStatusProto {
		return ask(r, "getFileInfo", of(path), new(pb.StatusResponseProto)).GetFs()
	}
	check(t, connect(t, s, "root").Mkdir("/d", 0o750))
	if shown(r, "/d") != "" || status("/d").GetFlags() != 0 {
		t.Fatalf("a new directory has an ACL: %q, %v", shown(r, "/d"), status("/d"))
	}
	for _, c := range []struct{ method, entries, want string }{
		{"modifyAclEntries", "user:bob:rwx,default:group:staff:r-x", "user:bob:rwx group::r-x default:user::rwx default:group::r-x default:group:staff:r-x default:mask::r-x default:other::---"},
		{"removeAclEntries", "user:bob:,default:group:staff", "group::r-x default:user::rwx default:group::r-x default:mask::r-x default:other::---"},
		{"removeDefaultAcl", "", "group::r-x"},
		{"removeAcl", "", ""},
		{"setAcl", "user::rwx,user:eve:r--,group::---,other::---", "user:eve:r-- group::---"},
		{"setAcl", "user::rwx,group::r-x,other::---,default:user:ann:rwx", "default:user::rwx default:user:ann:rwx default:group::r-x default:mask::rwx default:other::---"},
	} {
		check(t, change(c.method, "/d", c.entries))
		if got := shown(r, "/d"); got != c.want {
			t.Errorf("after %s of %q: %q, want %q", c.method, c.entries, got, c.want)
		}
		if bit := status("/d").GetFlags() == 1; bit != (c.want != "") {
			t.Errorf("after %s of %q the bit is %t", c.method, c.entries, bit)
		}
	}
	// What is made below inherits, and then the client's umask does not count.
	perm := func(bits uint32) *pb.FsPermissionProto { return &pb.FsPermissionProto{Perm: &bits} }
	ask(r, "create", &pb.CreateRequestProto{
		Src: proto.String("/d/f"), Masked: perm(0o600), Unmasked: perm(0o666), ClientName: proto.String("c"), CreateFlag: proto.Uint32(1),
		CreateParent: proto.Bool(false), Replication: proto.Uint32(2), BlockSize: proto.Uint64(1 << 20),
	}, new(pb.StatusResponseProto))
	ask(r, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/d/sub"), Masked: perm(0o700), Unmasked: perm(0o777), CreateParent: proto.Bool(false)}, new(pb.BoolResponseProto))
	if got := status("/d/f").GetPermission().GetPerm(); got != 0o660 || shown(r, "/d/f") != "user:ann:rwx group::r-x" {
		t.Errorf("a file that inherits: %o, %q", got, shown(r, "/d/f"))
	}
	if got := status("/d/sub").GetPermission().GetPerm(); got != 0o770 || !strings.Contains(shown(r, "/d/sub"), "default:user:ann:rwx") {
		t.Errorf("a directory that inherits: %o, %q", got, shown(r, "/d/sub"))
	}
	ask(r, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/e"), Masked: perm(0o700), Unmasked: perm(0o777), CreateParent: proto.Bool(false)}, new(pb.BoolResponseProto))
	if got := status("/e").GetPermission().GetPerm(); got != 0o700 {
		t.Errorf("a directory that inherits nothing: %o", got)
	}

	const aclException = "org.apache.hadoop.hdfs.protocol.AclException"
	for entries, class := range map[string]string{
		"":                          aclException,
		"user:bob:rwx":              aclException, // no user::, group:: and other::
		"user:bob:r--,user:bob:r-x": aclException,
	} {
		wantClass(t, "setAcl of "+entries, change("setAcl", "/d", entries), class)
	}
	many := spec(t, "user::rwx,group::r-x,other::---"+strings.Repeat(",user:x:r", 40))
	for n, e := range many[3:] {
		e.Name = proto.String(fmt.Sprint("u", n))
	}
	wantClass(t, "more entries than there may be", r.call(clientProtocol, "setAcl", &pb.AclRequestProto{Src: proto.String("/d"), AclSpec: many}, new(pb.EmptyProto)), aclException)
	wild := []*pb.AclEntryProto{{Type: pb.AclEntryProto_USER.Enum(), Scope: pb.AclEntryProto_ACCESS.Enum(), Permissions: proto.Uint32(1 << 31)}}
	wantClass(t, "permissions that are none", r.call(clientProtocol, "setAcl", &pb.AclRequestProto{Src: proto.String("/d"), AclSpec: wild}, new(pb.EmptyProto)), aclException)
	wild[0].Permissions, wild[0].Type, wild[0].Name = proto.Uint32(7), pb.AclEntryProto_MASK.Enum(), proto.String("bob")
	wantClass(t, "a mask with a name", r.call(clientProtocol, "setAcl", &pb.AclRequestProto{Src: proto.String("/d"), AclSpec: wild}, new(pb.EmptyProto)), aclException)
	wantClass(t, "of nothing", change("removeAcl", "/none", ""), "java.io.FileNotFoundException")
	wantClass(t, "not the owner's", dial(t, s, "mallory", "").call(clientProtocol, "removeAcl", of("/e"), new(pb.EmptyProto)), "org.apache.hadoop.security.AccessControlException")
}
