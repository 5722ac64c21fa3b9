package client

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// by is who makes a call under ctx: the FS's own user, or another for whom that one
// stands (door.As), in the same session.
func (f *engine) by(ctx context.Context) *pb.Caller {
	as, _ := door.CallerOf(ctx)
	if as == nil {
		return f.caller
	}
	c := proto.CloneOf(f.caller)
	c.RealUser, c.SessionUser = cmp.Or(c.RealUser, c.User), c.User
	c.User, c.Groups, c.Nobody = as.User, as.Groups, as.Nobody
	return c
}

// whose tells apart for whom answers are kept; "": for the FS's own user.
func whose(c *pb.Caller) string {
	if c.GetSessionUser() == "" {
		return ""
	}
	return door.Key(c.GetUser(), c.GetGroups(), c.GetNobody())
}

// asOf is whose of calls under ctx.
func asOf(ctx context.Context) string {
	_, key := door.CallerOf(ctx)
	return key
}

func (f lowLevel) Access(ctx context.Context, r door.Ref, want uint32) error {
	const op = "access"
	r, err := cleanRef(op, r)
	if err != nil {
		return err
	}
	as, _ := door.CallerOf(ctx)
	attr, _, kept, err := f.keptStat(ctx, op, stat(asOf(ctx), r))
	if err != nil || as != nil && kept && attr.GetOpen() == nil && attr.GetAcl()&1 == 0 && as.Surely(attr.GetMode(), attr.GetUser(), want) {
		return err
	}
	req := &pb.StatRequest{Caller: f.by(ctx), At: at(ctx, r), Access: want}
	return f.nn.Do(ctx, &namecall.Call{Op: op, Path: r.Path}, pb.Namenode_Stat_FullMethodName, req, new(pb.StatResponse))
}

// mayIn reports whether the caller of ctx certainly has the permission want in a directory, by its
// cached attributes.
func mayIn(ctx context.Context, dir *pb.Attr, want uint32) bool {
	as := door.AskerOf(ctx)
	return as == nil || dir.GetAcl()&1 == 0 && as.Surely(dir.GetMode(), dir.GetUser(), want)
}

// IsNotOwner reports whether an error of kind Permission says that only the owner may do
// something, whatever the mode.
func IsNotOwner(err error) bool { return fserror.Has(err, fserror.Permission, notOwner) }

// notOwner is the namenode's Reason.
const notOwner = "not the owner"
