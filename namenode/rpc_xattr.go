package namenode

import (
	"context"

	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// SetXattr sets or removes one extended attribute.
func (s *tree) SetXattr(ctx context.Context, r *pb.SetXattrRequest) (*pb.MutateResponse, error) {
	grows := r.GetAction() != pb.XattrAction_XATTR_ACTION_REMOVE
	return s.mutate(ctx, r, grows, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		action := calls.XattrAction(r.GetAction()) //nolint:gosec // an unknown one is refused
		return engine.OrNil(namespace.PlanXattr(tx.Tree, c, ref(r.GetAt()), r.GetName(), r.GetValue(), action))
	})
}

// Xattrs answers all extended attributes of an inode.
func (s *tree) Xattrs(ctx context.Context, r *pb.XattrsRequest) (*pb.XattrsResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	c.Collect = r.GetCache()
	resp := new(pb.XattrsResponse)
	var xattrs []calls.Xattr
	err = s.engine.ViewAnswer(ctx, c, func(tx *engine.Tx) (err error) {
		if xattrs, err = tx.Tree.Xattrs(c, ref(r.GetAt())); err == nil {
			resp.Keys = mayCache(tx, c, r.GetCaller().GetSession(), false)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, x := range xattrs {
		resp.Xattrs = append(resp.Xattrs, &pb.Xattr{Name: x.Name, Value: x.Value})
	}
	return resp, nil
}
