package hdfs

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/posixacl"
)

func (q lookup) getACLStatus(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	i, err := q.stat(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	list, err := q.fs.ACL(ctx, i)
	if err != nil {
		return nil, err
	}
	bits := filemode.Unix(i.Mode())
	st := &pb.AclStatusProto{
		Owner: &i.User, Group: &i.Group, Sticky: proto.Bool(bits&0o1000 != 0), Permission: &pb.FsPermissionProto{Perm: &bits},
	}
	for _, e := range list {
		st.Entries = append(st.Entries, entryOf(e))
	}
	return &pb.GetAclStatusResponseProto{Result: st}, nil
}

// acl is a method that changes ACLs.
func acl(action posixacl.Action) method {
	return changes(func(q change, ctx context.Context, m *pb.AclRequestProto) (proto.Message, error) {
		p, err := q.path(ctx, m.GetSrc())
		if err != nil {
			return nil, err
		}
		c := client.ACLChange{Action: action}
		for _, e := range m.GetAclSpec() {
			entry, err := entryFrom(e)
			if err != nil {
				return nil, err
			}
			c.Entries = append(c.Entries, entry)
		}
		return done(q.fs.ChangeACL(ctx, p, c))
	})
}

// Tags by what Hadoop calls them: without a name, and with one.
var tags = map[pb.AclEntryProto_Type][2]posixacl.Tag{
	pb.AclEntryProto_USER:  {posixacl.Owner, posixacl.User},
	pb.AclEntryProto_GROUP: {posixacl.OwningGroup, posixacl.Group},
	pb.AclEntryProto_MASK:  {posixacl.Mask, posixacl.Mask},
	pb.AclEntryProto_OTHER: {posixacl.Other, posixacl.Other},
}

func entryFrom(e *pb.AclEntryProto) (posixacl.Entry, error) {
	named := 0
	if e.GetName() != "" {
		named = 1
	}
	if e.GetPermissions() > 7 {
		return posixacl.Entry{}, hadoop.Refuse(hadoop.ACL, "an entry of the ACL has the permissions %d; they are 0 to 7", e.GetPermissions())
	}
	return posixacl.Entry{
		Default: e.GetScope() == pb.AclEntryProto_DEFAULT, Tag: tags[e.GetType()][named], Name: e.GetName(), Perm: uint8(e.GetPermissions()), //nolint:gosec // at most 7
	}, nil
}

// entryOf is the reverse.
func entryOf(e posixacl.Entry) *pb.AclEntryProto {
	out := &pb.AclEntryProto{Permissions: proto.Uint32(uint32(e.Perm)), Scope: pb.AclEntryProto_ACCESS.Enum()}
	if e.Default {
		out.Scope = pb.AclEntryProto_DEFAULT.Enum()
	}
	for kind, both := range tags {
		if e.Tag == both[0] || e.Tag == both[1] {
			out.Type = kind.Enum()
		}
	}
	if e.Name != "" {
		out.Name = &e.Name
	}
	return out
}
