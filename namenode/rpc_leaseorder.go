package namenode

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/topn"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// leasePlace is the place of a lease in a listing: by its key, and among those with the
// same key by its id. In the order of ids all keys are 0.
type leasePlace struct {
	key int64
	id  uint64
}

func (p leasePlace) compare(o leasePlace) int {
	return cmp.Or(cmp.Compare(p.key, o.key), cmp.Compare(p.id, o.id))
}

// placed is a lease with its place.
type placed struct {
	leasemanager.Info
	leasePlace
}

// leasePage returns a page of leases that match, whether there are more, and a function
// that writes the cursor of a listing that continues after a lease.
//
// Each reign gives sessions' leases new ids, so a listing that continues in another reign
// begins again; its reader skips what it has already.
func (s *granted) leasePage(ctx context.Context, c *namespace.Call, r *pb.ListLeasesRequest, f leasemanager.Filter) (infos []leasemanager.Info, more bool, cursor func(leasemanager.Info) string, err error) {
	var after leasePlace
	begun := false
	if r.GetCursor() != "" {
		var of uint64
		var at int64
		if n, err := fmt.Sscanf(r.GetCursor(), "%d.%d@%d.%d", &after.key, &after.id, &of, &at); err != nil || n != 4 || at < 0 {
			return nil, false, nil, fserror.New(fserror.InvalidArgument, "", "", "%q is no cursor of this call", r.GetCursor())
		}
		if begun = of == s.role.Term(); begun {
			f.At = time.Duration(at)
		}
	}
	order := r.GetOrder()
	if f.At == 0 && order != pb.LeaseOrder_LEASE_ORDER_ID {
		f.At = s.leases.Moment() // of the first page, so that all pages go by one moment
	}
	write := func(p leasePlace) string { return fmt.Sprintf("%d.%d@%d.%d", p.key, p.id, s.role.Term(), f.At) }
	if order == pb.LeaseOrder_LEASE_ORDER_ID {
		if begun {
			f.After = after.id
		}
		infos, next := s.leases.List(f)
		return infos, next != 0, func(in leasemanager.Info) string { return write(leasePlace{id: in.ID}) }, nil
	}
	if pb.LeaseOrder_name[int32(order)] == "" {
		return nil, false, nil, fserror.New(fserror.InvalidArgument, "", "", "%d is no order of leases that this namenode knows", order)
	}
	first := topn.New(f.Limit+1, func(a, b placed) int { return a.compare(b.leasePlace) })
	all := f
	all.Limit, all.MaxFiles = 1000, 0
	for again := true; again; again = all.After != 0 {
		infos, all.After = s.leases.List(all)
		err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
			for _, in := range infos {
				p := placed{in, leasePlace{leaseKey(tx, order, in), in.ID}}
				if !begun || p.compare(after) > 0 {
					first.Add(p)
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, false, nil, err
		}
	}
	keys := make(map[uint64]int64)
	infos = nil
	for _, p := range first.Sorted() {
		if more = len(infos) == f.Limit; more {
			break
		}
		keys[p.ID] = p.key
		// Only its files are of a later moment.
		if now, _ := s.leases.List(leasemanager.Filter{LeaseID: p.ID, MaxFiles: f.MaxFiles}); len(now) == 1 {
			p.Refs = now[0].Refs
		}
		infos = append(infos, p.Info)
	}
	return infos, more, func(in leasemanager.Info) string { return write(leasePlace{keys[in.ID], in.ID}) }, nil
}

// leaseKey is what an order sorts by, the first one the least. The namespace is locked.
func leaseKey(tx *engine.Tx, order pb.LeaseOrder, in leasemanager.Info) int64 {
	granted := in.Kind == leasemanager.KindGranted
	switch {
	case order == pb.LeaseOrder_LEASE_ORDER_IDLE:
		return -int64(in.Idle)
	case order == pb.LeaseOrder_LEASE_ORDER_REMAINING && granted:
		return int64(in.Remaining)
	case order == pb.LeaseOrder_LEASE_ORDER_REMAINING:
		return int64(in.TakeableIn)
	case granted:
		l, _ := tx.Tree.Lease(nil, namespace.LeaseID(in.ID))
		return -int64(l.Files)
	}
	return -int64(in.Files)
}
