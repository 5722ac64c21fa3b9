package namenode

import (
	"context"

	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
)

// gate is the reign as the engine knows it.
type gate struct{ s *Server }

func (g gate) Active() error  { return g.s.checkActive() }
func (g gate) Window() error  { return g.s.checkWindow() }
func (g gate) Fail(why error) { g.s.stepDown(why) }

// rooms is the rest of the namenode as the engine knows it.
type rooms struct{ s *Server }

func (r rooms) Admit(grows bool) error {
	if grows {
		if err := r.s.pressure.refuse(); err != nil {
			return err
		}
	}
	return r.s.overKept()
}

func (r rooms) Park(ctx context.Context) (back func(), err error) { return r.s.park(ctx, nil) }

func (r rooms) Taker(ctx context.Context, c *namespace.Call) share.Taker { return taker(ctx, c) }

func (r rooms) Refuse(tx *engine.Tx, by namespace.SessionID, op namespace.Op) error {
	if err := r.s.drafts.Refuse(tx, by, op); err != nil {
		return err
	}
	return r.s.leases.RenewWriter(tx, op)
}

func (r rooms) Applied(tx *engine.Tx, e namespace.Entry, done namespace.Result) {
	switch op := e.Op.(type) {
	case *namespace.OpCreateAs:
		r.s.drafts.Made(e.Call.Session, &op.OpCreate)
	case *namespace.OpCreate:
		r.s.drafts.Made(e.Call.Session, op)
	}
	r.s.follow(done)
	r.s.removals.tell(tx.Tree, e.Op, done.Inode)
	r.s.keepEvents(e, done.Events)
}

// follow tells those whom a record concerns: writers who lost their files, those who
// wait for a file, keepers of a granted lease.
func (s *Server) follow(r namespace.Result) {
	s.leases.Applied(r)
	var by *leasemanager.Holder
	if r.Opened != nil {
		h := leases.HolderOf(r.Opened.Holder)
		by = &h
	}
	for _, f := range r.Closed {
		if f.Reason != leasemanager.ReasonClosed {
			s.lost.add(f, by)
			s.sessions.tell(leasemanager.SessionID(f.Session), lossOf(r.TxID, f, by))
		}
		if by == nil || r.Opened.Inode != f.Inode {
			s.waits.freed(f.Inode)
		}
	}
	if r.LeaseEnded {
		s.keepers.ended(uint64(r.Lease), r.Reason, r.TxID)
	}
}
