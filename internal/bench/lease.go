package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// window is how many renewals of one holder are under way at once.
const window = 16

// renew measures renewals over session streams: one holder a stream, each
// holding so many open files; a renewal covers them all.
func (r *runner) renew(ctx context.Context, files int) (Row, error) {
	dir := fmt.Sprintf("%s/renew%d", r.dir, files)
	holders := r.cfg.Workers
	if files > 1 {
		holders = min(holders, max(1, r.cfg.N/files))
	}
	if err := r.fs.Mkdir(ctx, dir, 0o755); err != nil {
		return Row{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the streams
	list := make([]*holder, holders)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Workers)
	for i := range list {
		g.Go(func() (err error) {
			list[i], err = r.newHolder(ctx, gctx, dir+"/h"+strconv.Itoa(i), i, files)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Row{}, err
	}
	n := max(window, 5*r.cfg.N/holders)
	took := make([][]time.Duration, holders)
	g = new(errgroup.Group)
	began := time.Now()
	for i, h := range list {
		g.Go(func() (err error) {
			took[i], err = h.run(n)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Row{}, err
	}
	all := time.Since(began)
	var single []time.Duration
	for _, t := range took {
		single = append(single, t...)
	}
	row := summarize(single, all)
	row.Note = fmt.Sprintf("%d holders, %d open each, %d renewals under way a stream", holders, files, window)
	return row, nil
}

// holder is a simulated client with a session stream and open files.
type holder struct {
	actor  *actor
	stream pb.Namenode_SessionClient
	open   []*pb.OpenRef
}

// newHolder connects (for as long as streamCtx lives) and opens its files.
func (r *runner) newHolder(streamCtx, ctx context.Context, prefix string, w, files int) (*holder, error) {
	h := &holder{actor: r.newActor()}
	var err error
	if h.stream, err = r.of(w).Session(streamCtx); err != nil {
		return nil, wire.FromStatus(err)
	}
	if err := h.stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: h.actor.caller}}}); err != nil {
		return nil, wire.FromStatus(err)
	}
	if resp, err := h.stream.Recv(); err != nil {
		return nil, wire.FromStatus(err)
	} else if e := resp.GetError(); e != nil {
		return nil, wire.FromDetail(e)
	}
	for i := range files {
		resp, err := r.of(w).Create(ctx, &pb.CreateRequest{Call: h.actor.call(), Caller: h.actor.caller, At: pb.At(prefix + "-" + strconv.Itoa(i))})
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		h.open = append(h.open, &pb.OpenRef{Inode: resp.GetWriter().GetInode(), Epoch: resp.GetWriter().GetEpoch()})
	}
	return h, nil
}

// run sends n renewals, a window of them ahead of the answers. The first one
// lists the open set.
func (h *holder) run(n int) ([]time.Duration, error) {
	sent := make([]time.Time, n)
	took := make([]time.Duration, 0, n)
	send := func(i int) error {
		req := &pb.RenewLeaseRequest{Session: h.actor.caller.GetSession(), Version: 1, Seq: uint64(i) + 1, Caller: h.actor.caller} //nolint:gosec // small
		if i == 0 {
			req.HasSet, req.Open = true, h.open
		}
		sent[i] = time.Now()
		return wire.FromStatus(h.stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Renew{Renew: req}}))
	}
	for i := range min(window, n) {
		if err := send(i); err != nil {
			return nil, err
		}
	}
	for i := window; len(took) < n; {
		resp, err := h.stream.Recv()
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		renewed := resp.GetRenewed()
		switch {
		case resp.GetError() != nil:
			return nil, wire.FromDetail(resp.GetError())
		case renewed == nil || renewed.GetSeq() == 0 || renewed.GetSeq() > uint64(n): //nolint:gosec // small
			continue // not an answer to a renewal of ours
		case len(renewed.GetLost()) > 0 || renewed.GetUnknownSession():
			return nil, fserror.New(fserror.Internal, "renew", "", "the namenode took %d files from a holder that renews", len(renewed.GetLost()))
		}
		took = append(took, time.Since(sent[renewed.GetSeq()-1]))
		if i < n {
			if err := send(i); err != nil {
				return nil, err
			}
			i++
		}
	}
	return took, nil
}

// recover measures how fast an abandoned file is taken over.
func (r *runner) recover(ctx context.Context) (Row, error) {
	n := max(20, r.cfg.N/20)
	dir := r.dir + "/recover"
	if err := r.fs.Mkdir(ctx, dir, 0o755); err != nil {
		return Row{}, err
	}
	gone := make([]*actor, r.cfg.Workers) // the holders; nobody renews for them
	for w := range gone {
		gone[w] = r.newActor()
	}
	path := func(i int) string { return dir + "/f" + strconv.Itoa(i) }
	if _, err := parallel(ctx, r.cfg.Workers, n, func(ctx context.Context, w, i int) error {
		_, err := r.of(w).Create(ctx, &pb.CreateRequest{Call: gone[w].call(), Caller: gone[w].caller, At: pb.At(path(i))})
		return wire.FromStatus(err)
	}); err != nil {
		return Row{}, err
	}
	row, err := parallel(ctx, 1, n, func(ctx context.Context, w, i int) error {
		a := r.actors[w]
		resp, err := r.of(w).Recover(ctx, &pb.RecoverRequest{Call: a.call(), Caller: a.caller, At: pb.Follow(path(i)), Force: true})
		if err == nil && !resp.GetWasOpen() {
			return fserror.New(fserror.Internal, "recover", path(i), "was not open")
		}
		return wire.FromStatus(err)
	})
	row.Note = "abandoned file closed under a new epoch, one at a time"
	return row, err
}
