package keepalive

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// line is a stream of keep-alives to one namenode.
type line struct {
	ep      *namecall.Node
	stream  pb.Namenode_KeepAliveClient
	cancel  context.CancelFunc
	answers chan *pb.KeepAliveResponse
	gone    chan struct{} // closed when the stream is
	err     error         // why; set before gone is closed
}

// exchange names leases on the stream to the active namenode, which it opens if
// need be, and returns what that says of them.
func (k *Keeper) exchange(ctx context.Context, leases []*Lease) (alive map[ID]*pb.LeaseAlive, err error) {
	unlock, err := k.turn.Lock(ctx)
	if err != nil {
		return nil, fserror.Ended(ctx, Op, "")
	}
	defer unlock()
	ep := k.cfg.Namenodes.Active()
	whole := ctx
	ctx, cancel := context.WithCancel(ctx)
	settled := k.cfg.Namenodes.Suspect(ctx, cancel, ep)
	defer func() { cancel(); settled() }()
	defer func() {
		if err == nil {
			return
		}
		k.hangUp()
		e, _ := namecall.Answer(err)
		if ctx.Err() != nil && whole.Err() == nil { // given up for another that is active
			e = fserror.New(fserror.Unavailable, Op, "", "%s does not answer, and another namenode is active", ep.Address)
		}
		if k.ctx.Err() == nil && !errors.Is(ctx.Err(), context.Canceled) { // else it is not the namenode's fault
			k.cfg.Namenodes.MoveOn(ep, e.Active)
		}
		err = e
	}()
	on, err := k.dial(ep)
	if err != nil {
		return nil, err
	}
	// A stream that takes nothing any more would hold Send for good.
	stuck := context.AfterFunc(ctx, on.cancel)
	defer stuck()
	alive = make(map[ID]*pb.LeaseAlive, len(leases))
	for part := range slices.Chunk(leases, batch) {
		req := &pb.KeepAliveRequest{Caller: k.cfg.Caller, Ids: make([]uint64, len(part)), Tell: true}
		for i, l := range part {
			req.Ids[i] = uint64(l.id)
		}
		if err := on.stream.Send(req); err != nil && !errors.Is(err, io.EOF) {
			return alive, err
		}
		select { // after io.EOF, Recv knows why
		case resp := <-on.answers:
			for _, l := range resp.GetLeases() {
				alive[ID(l.GetId())] = l
			}
		case <-on.gone:
			return alive, on.err
		case <-ctx.Done():
			return alive, fserror.Ended(ctx, Op, "")
		}
	}
	return alive, nil
}

// dial returns the stream to the namenode. The caller has the turn.
func (k *Keeper) dial(ep *namecall.Node) (*line, error) {
	if l := k.line; l != nil {
		select {
		case <-l.gone:
		default:
			if l.ep == ep {
				return l, nil
			}
		}
		k.hangUp()
	}
	ctx, cancel := context.WithCancel(k.ctx)
	stream, err := pb.NewNamenodeClient(ep.Conn()).KeepAlive(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	l := &line{ep: ep, stream: stream, cancel: cancel, answers: make(chan *pb.KeepAliveResponse, 1), gone: make(chan struct{})}
	if !k.cfg.Go(func() { k.listen(ctx, l) }) {
		cancel()
		return nil, fserror.New(fserror.Closed, Op, "", "the client is closed")
	}
	k.line = l
	return l, nil
}

// hangUp ends the stream. The caller has the turn.
func (k *Keeper) hangUp() {
	if k.line != nil {
		k.line.cancel()
		k.line = nil
	}
}

// rest ends the stream if nothing is kept alive, nor about to be.
func (k *Keeper) rest() {
	unlock := k.turn.TryLock()
	if unlock == nil {
		return
	}
	defer unlock()
	k.mu.Lock()
	idle := len(k.ids) == 0
	k.mu.Unlock()
	if idle {
		k.hangUp()
	}
}

// listen takes what the namenode says on a stream. One that breaks after it was
// good is opened again at once: what has ended meanwhile was not told on it.
func (k *Keeper) listen(ctx context.Context, on *line) {
	defer on.cancel()
	good := false
	for {
		m, err := on.stream.Recv()
		if err != nil {
			on.err = err
			close(on.gone)
			if good {
				k.poke()
			}
			return
		}
		if m.GetEnded() {
			for _, l := range m.GetLeases() {
				k.told(ID(l.GetId()), l.GetReason())
			}
			continue
		}
		good = true
		k.alive(m.GetLeases())
		select {
		case on.answers <- m:
		case <-ctx.Done():
		}
	}
}

// alive notes which leases live: only those can end from here on. Of an end that
// was told before, an earlier lease of the same id is meant.
func (k *Keeper) alive(leases []*pb.LeaseAlive) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range leases {
		if a.GetTtlMs() <= 0 {
			continue
		}
		for _, l := range k.ids[ID(a.GetId())] {
			l.live = true
		}
	}
}

// told lets a lease go that has ended just now.
func (k *Keeper) told(id ID, reason string) {
	k.mu.Lock()
	all := slices.Clone(k.ids[id])
	all = slices.DeleteFunc(all, func(l *Lease) bool { return !l.live })
	k.mu.Unlock()
	for _, l := range all {
		k.drop(l, hasEnded(id, reason))
	}
}
