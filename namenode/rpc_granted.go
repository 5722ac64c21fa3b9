package namenode

import (
	"cmp"
	"context"
	"math/rand/v2"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// GrantLease grants a lease with a time to live of its own. Whether its id is
// or name is free is decided where the record is applied: of two calls with the same
// one gets EXISTS.
func (s *granted) GrantLease(ctx context.Context, r *pb.GrantLeaseRequest) (*pb.GrantLeaseResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	ttl := max(r.GetTtlMs(), s.role.LeastTTL().Milliseconds())
	if r.GetTtlMs() <= 0 {
		ttl = r.GetTtlMs() // refused by the plan
	}
	owner := namespace.Owner{User: c.User, Client: r.GetCaller().GetClient(), Host: r.GetCaller().GetHost()}
	out, err := s.engine.Do(ctx, engine.Request{Call: c, ID: id, Grows: true, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if err := tx.CheckGranted(ctx, c); err != nil {
			return nil, err
		}
		lease := namespace.LeaseID(r.GetId())
		for lease == 0 {
			lease = namespace.LeaseID(rand.Uint64() & tables.MaxLeaseID) //nolint:gosec // need not be secret: it is shown in lists
			if _, taken := tx.Tree.Lease(nil, lease); taken {
				lease = 0
			}
		}
		return namespace.PlanGrant(tx.Tree, c, namespace.Lease{ID: lease, TTL: ttl, Owner: owner, Name: r.GetName()})
	}})
	if err != nil {
		return nil, err
	}
	return &pb.GrantLeaseResponse{Id: uint64(out.Inode), TtlMs: ttl, Txid: out.TxID, FailoverMs: s.role.OutlivesFailover().Milliseconds()}, nil
}

// RevokeLease ends a granted lease, with everything attached to it. The memory of that is
// freed at the rate of Config.ReapRate.
func (s *granted) RevokeLease(ctx context.Context, r *pb.RevokeLeaseRequest) (*pb.RevokeLeaseResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	lease := namespace.LeaseID(r.GetId())
	out, err := s.engine.Do(ctx, engine.Request{Call: c, ID: id, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanEnd(tx.Tree, c, lease, namespace.LeaseRevoked))
	}})
	if err != nil {
		return nil, err
	}
	s.leases.Reap()
	return &pb.RevokeLeaseResponse{Txid: out.TxID}, nil
}

// LeaseTimeToLive answers how long a lease lives without a keep-alive. Anybody
// may ask. A name is one of the caller's: it is looked up here, and all else goes by id.
func (s *granted) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	const op = "lease ttl"
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	if r.GetName() != "" {
		if err := tables.CheckLeaseName(r.GetName()); err != nil || r.GetId() != 0 {
			return nil, cmp.Or(err, error(fserror.New(fserror.InvalidArgument, op, "", "a lease is named by its id or by its name, not by both")))
		}
	}
	resp := &pb.LeaseTimeToLiveResponse{Id: r.GetId()}
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if r.GetName() != "" {
			if resp.Id = uint64(tx.Tree.NamedLease(c, c.User, r.GetName())); resp.Id == 0 {
				return fserror.New(fserror.NotFound, op, "", "user %s has no lease %q: it has ended, or never was", c.User, r.GetName()).Because(fserror.ReasonNoLease)
			}
		}
		l, ok := tx.Tree.Lease(c, namespace.LeaseID(resp.Id))
		remaining, ttl, alive := s.leases.TimeToLive(resp.Id)
		if !ok || !alive {
			return fserror.New(fserror.NotFound, op, "", "there is no lease %x: it has ended, or never was", resp.Id).Because(fserror.ReasonNoLease)
		}
		resp.Name = l.Name
		resp.RemainingMs, resp.TtlMs, resp.FileCount = remaining.Milliseconds(), ttl.Milliseconds(), uint64(l.Files) //nolint:gosec // a count
		if r.GetFiles() {
			left := maxListedFiles
			resp.Files = leaseFiles(tx, c, l, maxLeaseFiles, &left)
		}
		return nil
	})
	return resp, err
}

// leaseFiles returns the paths of files attached to a lease: of another's lease, those that the
// caller could list, until as much as left is listed. The namespace is locked.
func leaseFiles(tx *engine.Tx, c *namespace.Call, l namespace.Lease, most int, left *int) (paths []string) {
	for _, inode := range tx.Tree.LeaseFiles(l.ID, 0, most) {
		if path, ok := tx.Tree.Path(inode); ok && *left > 0 && (c.Owns(l.Owner.User) || namespace.MayName(tx.Tree, c, inode)) {
			paths = append(paths, path)
			*left -= listedCost(path)
		}
	}
	return paths
}

// AttachLease attaches a file, directory or link to a granted lease: it is deleted at its
// end, a directory with all that is below it.
func (s *granted) AttachLease(ctx context.Context, r *pb.AttachLeaseRequest) (*pb.MutateResponse, error) {
	return s.mutate(ctx, r, false, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanAttach(tx.Tree, c, namespace.LeaseID(r.GetId()), ref(r.GetAt())))
	})
}

// DetachLease detaches something from its lease, so that it stays when the lease ends.
func (s *granted) DetachLease(ctx context.Context, r *pb.DetachLeaseRequest) (*pb.MutateResponse, error) {
	return s.mutate(ctx, r, false, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanDetach(tx.Tree, c, ref(r.GetAt())))
	})
}
