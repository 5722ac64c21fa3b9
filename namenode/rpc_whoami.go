package namenode

import (
	"context"

	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/serve"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// WhoAmI says who the caller is by what it has proven: some tokens do not tell their bearers
// under which name they are known here. Of callers that prove nothing it has their word. Who
// acts for another asks about that one. It also says what that user holds of what all share.
func (s *tree) WhoAmI(ctx context.Context, r *pb.WhoAmIRequest) (*pb.WhoAmIResponse, error) {
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	who, resp := identity.Of(ctx), new(pb.WhoAmIResponse)
	user, by := r.GetCaller().GetUser(), r.GetCaller().GetRealUser()
	if who != nil {
		if by == "" {
			user = who.User
		}
		if until := who.Until(); !until.IsZero() {
			resp.UntilUnix = until.Unix()
		}
	}
	if user == "" {
		return resp, nil
	}
	c, err := s.caller(ctx, &pb.Caller{User: user, RealUser: by})
	if err != nil {
		return nil, err
	}
	if who != nil {
		resp.User = user
	}
	resp.Groups, resp.Superuser, resp.Held = c.Groups, c.Super, serve.Holdings(s.held(user))
	return resp, nil
}
