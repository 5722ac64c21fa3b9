package hdfs

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// getDelegationToken answers without a Guard as HDFS without security does: there is none.
func (q lookup) getDelegationToken(_ context.Context, m *pb.GetDelegationTokenRequestProto) (proto.Message, error) {
	switch {
	case q.cfg.Guard == nil:
		return empty, nil
	case q.call.Proof == auth.ByToken:
		return nil, hadoop.Refuse(hadoop.IOException, "Delegation Token can be issued only with kerberos or web authentication")
	}
	t, err := q.cfg.Guard.Issue(q.call.User, q.call.Real, m.GetRenewer())
	if err != nil {
		return nil, err
	}
	return &pb.GetDelegationTokenResponseProto{Token: &pb.TokenProto{
		Identifier: t.Identifier, Password: t.Password, Kind: proto.String(auth.KindHDFS), Service: proto.String(""),
	}}, nil
}

// renewDelegationToken answers when a token ends, which does not change.
func (q change) renewDelegationToken(_ context.Context, m *pb.DelegationTokenRequestProto) (proto.Message, error) {
	if q.cfg.Guard == nil {
		return nil, hadoop.Refuse(hadoop.Unsupported, "this gateway gives no delegation tokens: its clients prove nothing")
	}
	ends, err := q.cfg.Guard.Renew(m.GetToken().GetIdentifier(), m.GetToken().GetPassword())
	if err != nil {
		return nil, err
	}
	return &pb.RenewDelegationTokenResponseProto{NewExpiryTime: size(ends.UnixMilli())}, nil
}

// cancelDelegationToken refuses: nobody says that a token has ended which has not.
func (q change) cancelDelegationToken(context.Context, *pb.DelegationTokenRequestProto) (proto.Message, error) {
	if q.cfg.Guard == nil {
		return nil, hadoop.Refuse(hadoop.Unsupported, "this gateway gives no delegation tokens: its clients prove nothing")
	}
	return nil, hadoop.Refuse(hadoop.Unsupported, "%s", auth.NoCancel)
}
