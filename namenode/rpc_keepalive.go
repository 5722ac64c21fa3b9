package namenode

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/sessions"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxKeepAlive is how many leases one message may keep alive.
	maxKeepAlive = 50_000
	// keepAliveSlice is how many of them are looked at under one read lock.
	keepAliveSlice = 1000
	// maxEnded is how many ends one message tells.
	maxEnded = 10_000
)

// keeper is the namenode's end of one stream of keep-alives.
type keeper struct {
	*sessions.Keeper
	// sends is taken by whoever sends: ends are reported in order, and before the answers to
	// messages that came after them. They may have to become durable first, so it is no mutex.
	sends turn.Turn
	out   func(*pb.KeepAliveResponse) error
}

// KeepAlive keeps leases alive for as long as messages come, and tells who wants
// to know it when one ends.
func (s *granted) KeepAlive(stream grpc.BidiStreamingServer[pb.KeepAliveRequest, pb.KeepAliveResponse]) error {
	ctx := stream.Context()
	send := serve.Patient(ctx, s.patience, "lease keep-alive", "") // who takes nothing would keep what is sent in memory
	k := &keeper{Keeper: s.sessions.Keeper(), sends: turn.New(), out: func(m *pb.KeepAliveResponse) error {
		return send(func() error { return stream.Send(m) })
	}}
	defer context.AfterFunc(ctx, func() { serve.Interrupt(ctx, context.Cause(ctx)) })()
	// The handler must end with the namenode, also while nothing is received; its
	// end makes Recv return, so the goroutine ends too. What that one still names
	// must not be followed then.
	served := make(chan error, 1)
	go func() {
		served <- serve.Guard(ctx, func() error {
			defer k.Leave()
			return s.serveKeepAlive(stream, k)
		})
	}()
	for {
		select {
		case err := <-served:
			return err
		case <-k.Wake():
			if err := s.tellEnded(ctx, k, nil); err != nil {
				return err
			}
		case <-s.loops.Done():
			return s.role.Active()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tellEnded tells of the ends of leases, when they are durable, and then the
// answer, if there is one.
func (s *granted) tellEnded(ctx context.Context, k *keeper, answer *pb.KeepAliveResponse) error {
	unlock, err := k.sends.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for {
		gone, txid := k.Take(maxEnded)
		if len(gone) == 0 {
			break
		}
		if err := s.engine.WaitDurable(ctx, txid); err != nil {
			return err
		}
		ended := make([]*pb.LeaseAlive, len(gone))
		for i, e := range gone {
			ended[i] = &pb.LeaseAlive{Id: e.Lease, Reason: e.Reason}
		}
		if err := k.out(&pb.KeepAliveResponse{Leases: ended, Ended: true}); err != nil {
			return err
		}
	}
	if answer == nil {
		return nil
	}
	return k.out(answer)
}

func (s *granted) serveKeepAlive(stream grpc.BidiStreamingServer[pb.KeepAliveRequest, pb.KeepAliveResponse], k *keeper) error {
	const op = "lease keep-alive"
	ctx := stream.Context()
	var c *namespace.Call
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.GetCaller() != nil || c == nil {
			if c, err = s.caller(ctx, m.GetCaller()); err != nil {
				return fserror.With(err, op, "")
			}
		}
		if len(m.GetIds()) > maxKeepAlive {
			return fserror.New(fserror.TooLarge, op, "", "a message keeps at most %d leases alive, not %d", maxKeepAlive, len(m.GetIds()))
		}
		follow := k
		if !m.GetTell() {
			follow = nil
		}
		resp, err := s.keepAlive(ctx, c, m.GetIds(), follow)
		if err != nil {
			return fserror.With(err, op, "")
		}
		if err := s.tellEnded(ctx, k, resp); err != nil {
			return err
		}
	}
}

// keepAlive renews leases of the caller's, of whose ends k is told from now on
// if it is not nil. That one is gone is answered only when the record of its end
// is durable.
func (s *granted) keepAlive(ctx context.Context, c *namespace.Call, ids []uint64, k *keeper) (*pb.KeepAliveResponse, error) {
	resp := &pb.KeepAliveResponse{Leases: make([]*pb.LeaseAlive, 0, len(ids))}
	for len(ids) > 0 {
		n := min(len(ids), keepAliveSlice)
		err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
			for _, id := range ids[:n] {
				resp.Leases = append(resp.Leases, s.keepOneAlive(tx, c, id, k))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		ids = ids[n:]
	}
	return resp, nil
}

// keepOneAlive renews a lease. The namespace is locked.
func (s *granted) keepOneAlive(tx *engine.Tx, c *namespace.Call, id uint64, k *keeper) *pb.LeaseAlive {
	alive := &pb.LeaseAlive{Id: id}
	if err := tx.Tree.CheckLease(c, namespace.LeaseID(id)); err != nil {
		if errors.Is(err, fserror.Permission) {
			l, _ := tx.Tree.Lease(c, namespace.LeaseID(id))
			alive.Owner = l.Owner.User
		}
		return alive
	}
	if lives, ok := s.leases.KeepAlive(id); ok {
		alive.TtlMs = max(lives.Milliseconds(), 1)
		if k != nil {
			k.Follow(id)
		}
	}
	return alive
}
