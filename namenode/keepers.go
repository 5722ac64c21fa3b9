package namenode

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxKeepAlive is how many leases one message may keep alive.
	maxKeepAlive = 50_000
	// keepAliveSlice is how many of them are looked at under one read lock.
	keepAliveSlice = 1000
	// maxKeepers is how many streams are told at once of the end of one lease.
	// Others learn it when they name it next.
	maxKeepers = 16
	// maxEnded is how many ends one message tells.
	maxEnded = 10_000
)

// keeperTable knows which streams keep a granted lease alive and want to be told
// at once of its end. It has entries only for leases that live.
type keeperTable struct {
	mu     sync.Mutex
	leases map[uint64][]*keeper
}

// keeper is the namenode's end of one stream of keep-alives.
type keeper struct {
	wake chan struct{} // has an element when there is something to tell

	// Guarded by keeperTable.mu.
	named map[uint64]struct{} // the leases that it is in the table for
	gone  []*pb.LeaseAlive    // to be told
	txid  uint64              // of the last record that ended one of them

	// tellMu: ends are told in order, and before the answer to what came after
	// them. gRPC wants one sender at a time besides.
	tellMu sync.Mutex
	out    func(*pb.KeepAliveResponse) error
}

func newKeeper(out func(*pb.KeepAliveResponse) error) *keeper {
	return &keeper{wake: make(chan struct{}, 1), named: map[uint64]struct{}{}, out: out}
}

// follow has the keeper told of the end of a lease that lives. The caller holds
// the namespace lock, so that its end cannot come in between.
func (t *keeperTable) follow(k *keeper, id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := k.named[id]; known || len(t.leases[id]) >= maxKeepers {
		return
	}
	if t.leases == nil {
		t.leases = map[uint64][]*keeper{}
	}
	k.named[id] = struct{}{}
	t.leases[id] = append(t.leases[id], k)
}

// ended tells the keepers of a lease that the record txid has ended it.
func (t *keeperTable) ended(id uint64, reason string, txid uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.leases[id] {
		delete(k.named, id)
		k.gone = append(k.gone, &pb.LeaseAlive{Id: id, Reason: reason})
		k.txid = txid
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	delete(t.leases, id)
}

// take returns what the keeper has to be told, at most n leases, and the record
// that has to be durable first.
func (t *keeperTable) take(k *keeper, n int) (gone []*pb.LeaseAlive, txid uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = min(n, len(k.gone))
	gone, k.gone = k.gone[:n:n], k.gone[n:]
	if len(k.gone) == 0 {
		k.gone = nil
	}
	return gone, k.txid
}

// leave forgets a keeper.
func (t *keeperTable) leave(k *keeper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range k.named {
		rest := t.leases[id][:0]
		for _, o := range t.leases[id] {
			if o != k {
				rest = append(rest, o)
			}
		}
		if len(rest) == 0 {
			delete(t.leases, id)
			continue
		}
		clear(t.leases[id][len(rest):])
		t.leases[id] = rest
	}
	k.named = nil
}

// KeepAlive keeps leases alive for as long as messages come, and tells who wants
// to know it when one ends.
func (s *service) KeepAlive(stream grpc.BidiStreamingServer[pb.KeepAliveRequest, pb.KeepAliveResponse]) error {
	k := newKeeper(stream.Send)
	// The handler must end with the namenode, also while nothing is received; its
	// end makes Recv return, so the goroutine ends too. What that one still names
	// must not be followed then.
	served := make(chan error, 1)
	go func() {
		err := s.serveKeepAlive(stream, k)
		s.keepers.leave(k)
		served <- err
	}()
	for {
		select {
		case err := <-served:
			return err
		case <-k.wake:
			if err := s.tellEnded(stream.Context(), k, nil); err != nil {
				return err
			}
		case <-s.stopping.Done():
			return s.checkActive()
		}
	}
}

// tellEnded tells of the ends of leases, when they are durable, and then the
// answer, if there is one.
func (s *Server) tellEnded(ctx context.Context, k *keeper, answer *pb.KeepAliveResponse) error {
	k.tellMu.Lock()
	defer k.tellMu.Unlock()
	for {
		gone, txid := s.keepers.take(k, maxEnded)
		if len(gone) == 0 {
			break
		}
		if err := s.engine.WaitDurable(ctx, txid); err != nil {
			return err
		}
		if err := k.out(&pb.KeepAliveResponse{Leases: gone, Ended: true}); err != nil {
			return err
		}
	}
	if answer == nil {
		return nil
	}
	return k.out(answer)
}

func (s *Server) serveKeepAlive(stream grpc.BidiStreamingServer[pb.KeepAliveRequest, pb.KeepAliveResponse], k *keeper) error {
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
func (s *Server) keepAlive(ctx context.Context, c *namespace.Call, ids []uint64, k *keeper) (*pb.KeepAliveResponse, error) {
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
func (s *Server) keepOneAlive(tx *engine.Tx, c *namespace.Call, id uint64, k *keeper) *pb.LeaseAlive {
	alive := &pb.LeaseAlive{Id: id}
	if err := tx.Tree.CheckLease(c, "", namespace.LeaseID(id)); err != nil {
		if errors.Is(err, fserror.Permission) {
			l, _ := tx.Tree.Lease(c, namespace.LeaseID(id))
			alive.Owner = l.Owner.User
		}
		return alive
	}
	if lives, ok := s.leases.KeepAlive(id); ok {
		alive.TtlMs = max(lives.Milliseconds(), 1)
		if k != nil {
			s.keepers.follow(k, id)
		}
	}
	return alive
}
