package namenode

import (
	"context"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Acl answers the ACLs of an inode.
func (s *tree) Acl(ctx context.Context, r *pb.AclRequest) (*pb.AclResponse, error) { //nolint:revive // the wire's name
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	c.Collect = r.GetCache()
	resp := new(pb.AclResponse)
	err = s.engine.ViewAnswer(ctx, c, func(tx *engine.Tx) error {
		list, err := tx.Tree.ACL(c, ref(r.GetAt()))
		if err == nil {
			resp.Entries, resp.Keys = list.Wire(), mayCache(tx, c, r.GetCaller().GetSession(), false)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// ChangeAcl changes them.
func (s *tree) ChangeAcl(ctx context.Context, r *pb.ChangeAclRequest) (*pb.MutateResponse, error) { //nolint:revive // the wire's name
	change := posixacl.Change{Action: posixacl.Action(min(r.GetAction(), 255))} //nolint:gosec // an unknown one is refused
	if r.GetAction() < 0 || len(r.GetEntries()) > 2*posixacl.MaxEntries {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "a change of an ACL has action %d and %d entries; at most %d can be", r.GetAction(), len(r.GetEntries()), 2*posixacl.MaxEntries)
	}
	change.Entries = posixacl.FromWire(r.GetEntries())
	for _, e := range change.Entries {
		if err := checkNames(e.Name); err != nil {
			return nil, err
		}
	}
	return s.mutate(ctx, r, true, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanSetACL(tx.Tree, c, ref(r.GetAt()), change))
	})
}
