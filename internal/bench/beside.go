package bench

import (
	"context"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// besideBatch is how many files or leases are made before the next; each has a time, which
	// takes memory.
	besideBatch = 50_000
	// besideDir is how many of the files are in a directory.
	besideDir = 1000
	// besideTTL is the least time to live of the leases.
	besideTTL = time.Minute
)

// fill makes the files that are there besides. They are removed with all others.
func (r *runner) fill(ctx context.Context) error {
	dir := func(i int) string {
		return r.dir + "/beside/" + strconv.Itoa(i/besideDir/besideDir) + "/" + strconv.Itoa(i/besideDir)
	}
	for from := 0; from < r.cfg.Files; from += besideBatch {
		n := min(besideBatch, r.cfg.Files-from)
		for i := from; i < from+n; i += besideDir {
			if err := r.fs.MkdirAll(ctx, dir(i), 0o755); err != nil {
				return err
			}
		}
		if _, err := parallel(ctx, r.cfg.Workers, n, func(ctx context.Context, w, i int) error {
			a := r.actors[w]
			_, err := r.of(w).Create(ctx, &pb.CreateRequest{Call: a.call(), Caller: a.caller, At: pb.At(dir(from+i) + "/" + strconv.Itoa(from+i)), Close: true})
			return wire.FromStatus(err)
		}); err != nil {
			return err
		}
	}
	return nil
}

// grant has so many leases granted. All are kept alive until ctx ends, at a third of their
// time to live, as their holders would; then they end by themselves. kept says how that went.
func (r *runner) grant(ctx context.Context) (kept <-chan error, err error) {
	done := make(chan error, 1)
	n := r.cfg.Leases
	if n == 0 {
		done <- nil
		return done, nil
	}
	ttl := max(besideTTL, time.Duration(n)*200*time.Microsecond)
	ids, err := r.grantMany(ctx, n, ttl)
	if err != nil {
		return nil, err
	}
	go func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-tick.C:
			}
			if err := r.keepAlive(ctx, ids); err != nil && ctx.Err() == nil {
				done <- fserror.With(err, "bench", "")
				return
			}
		}
	}()
	return done, nil
}
