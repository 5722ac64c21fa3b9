package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// expiryBatch is how many leases one message keeps alive.
	expiryBatch = 10_000
	// expiryGrants is how many leases are granted before all are kept alive.
	expiryGrants = 50_000
	// expiryPoll is how often it is looked whether leases have ended.
	expiryPoll = 10 * time.Millisecond
	// expiryCalls is how many other calls are timed at most.
	expiryCalls = 2 << 20
)

// grantMany has n leases granted. All of them are kept alive after each batch, so that none ends
// before the last is granted.
func (r *runner) grantMany(ctx context.Context, n int, ttl time.Duration) ([]uint64, error) {
	ids := make([]uint64, n)
	for from := 0; from < n; from += expiryGrants {
		part := ids[from:min(from+expiryGrants, n)]
		if _, err := parallel(ctx, r.cfg.Workers, len(part), func(ctx context.Context, w, i int) error {
			a := r.actors[w]
			resp, err := r.of(w).GrantLease(ctx, &pb.GrantLeaseRequest{Call: a.call(), Caller: a.caller, TtlMs: ttl.Milliseconds()})
			part[i] = resp.GetId()
			return wire.FromStatus(err)
		}); err != nil {
			return nil, err
		}
		if err := r.keepAlive(ctx, ids[:from+len(part)]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// expiry measures the end of many granted leases at once: how many end in a
// second, and how long other calls take meanwhile.
func (r *runner) expiry(ctx context.Context) (Row, error) {
	n := r.cfg.N
	ttl := max(10*time.Second, time.Duration(n)*200*time.Microsecond)
	ids, err := r.grantMany(ctx, n, ttl)
	if err != nil {
		return Row{}, err
	}
	dir := r.dir + "/expiry"
	if err := r.fs.Mkdir(ctx, dir, 0o755); err != nil {
		return Row{}, err
	}
	if err := r.awaitEnd(ctx, ids[0]); err != nil {
		return Row{}, err
	}
	began := time.Now()
	ended := make(chan error, 1)
	calls, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		err := r.awaitEnd(ctx, ids[n-1])
		ended <- err
		stop()
	}()
	// Four workers stat and create until the last lease has ended.
	row, err := parallel(calls, 4, expiryCalls, func(ctx context.Context, w, i int) error {
		a := r.actors[w]
		var err error
		if i%2 == 0 {
			_, err = r.of(w).Stat(ctx, &pb.StatRequest{Caller: a.caller, At: pb.At(dir)})
		} else {
			_, err = r.of(w).Create(ctx, &pb.CreateRequest{Call: a.call(), Caller: a.caller, At: pb.At(dir + "/f" + strconv.Itoa(i)), Close: true})
		}
		return wire.FromStatus(err)
	})
	if err != nil && calls.Err() == nil {
		return row, err
	}
	if err := <-ended; err != nil {
		return row, err
	}
	all := time.Since(began)
	note := fmt.Sprintf("granted leases, all at once; p50 and p99 are of %d calls (stat, create) by 4 workers meanwhile", row.Ops)
	return Row{Ops: int64(n), Seconds: all.Seconds(), P50: row.P50, P99: row.P99, Note: note}, nil
}

// keepAlive renews all leases at about the same time.
func (r *runner) keepAlive(ctx context.Context, ids []uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.of(0).KeepAlive(ctx)
	if err != nil {
		return wire.FromStatus(err)
	}
	for len(ids) > 0 {
		part := ids[:min(len(ids), expiryBatch)]
		ids = ids[len(part):]
		if err := stream.Send(&pb.KeepAliveRequest{Caller: r.actors[0].caller, Ids: part}); err != nil {
			return wire.FromStatus(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			return wire.FromStatus(err)
		}
		for _, l := range resp.GetLeases() {
			if l.GetTtlMs() <= 0 {
				return fserror.New(fserror.Internal, "keep-alive", "", "lease %x ended before its time", l.GetId())
			}
		}
	}
	return nil
}

// awaitEnd returns when a lease has ended.
func (r *runner) awaitEnd(ctx context.Context, id uint64) error {
	tick := time.NewTicker(expiryPoll)
	defer tick.Stop()
	for {
		_, err := r.of(0).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{Caller: r.actors[0].caller, Id: id})
		switch {
		case status.Code(err) == codes.NotFound:
			return nil
		case err != nil && !errors.Is(wire.FromStatus(err), fserror.Retry):
			return wire.FromStatus(err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
