package blockio

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxRefused is how often a transfer is tried that the store refuses (not one
	// that fails on the way: that is tried until its time is over).
	maxRefused = 4
	// minPatience is how long an object's first bytes may take though the time of
	// the transfer is nearly over.
	minPatience = 100 * time.Millisecond
)

// Tries are how often a transfer is tried: for Limit in all.
type Tries struct {
	Limit time.Duration
	// Pause waits before another try, after n others and then err, or reports that
	// the deadline is too close for one.
	Pause func(ctx context.Context, n int, deadline time.Time, err error) (more bool)
}

// Store puts an object where next says. After each failure it asks next again:
// what became of the earlier try does not matter then. It returns where the object
// is, and whether a try that failed may still be reading it.
func (t *Transport) Store(ctx context.Context, object []byte, tries Tries, next func() (*pb.BlockTarget, error)) (at *pb.BlockTarget, shared bool, err error) {
	deadline := time.Now().Add(tries.Limit)
	for n, refused := 0, 0; ; n++ {
		if at, err = next(); err != nil {
			return nil, shared, err
		}
		err = t.Upload(ctx, max(time.Until(deadline), minPatience), at.GetUrl(), at.GetHeaders(), object)
		if err == nil {
			return at, shared, nil
		}
		shared = true
		if ctx.Err() != nil {
			return nil, shared, context.Cause(ctx)
		}
		if full(err) {
			return nil, shared, fserror.Wrap(fserror.NoSpace, "", "", err)
		}
		// 412: something is there under this key, an earlier copy of this block most
		// likely, the answer to which was lost. Another key is as good.
		if s := Status(err); s/100 == 4 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout && s != http.StatusPreconditionFailed {
			if refused++; refused >= maxRefused {
				key := blockstore.Key{Term: at.GetTerm(), Seq: at.GetSeq()}
				return nil, shared, fserror.Wrap(fserror.Unavailable, "", "", fmt.Errorf("block %s could not be stored: %w", key, err)).Because(fserror.ReasonBlockStore)
			}
		}
		if !tries.Pause(ctx, n, deadline, err) {
			return nil, shared, fserror.Wrap(fserror.Unavailable, "", "", fmt.Errorf("the block store took no block within %s: %w", tries.Limit, err)).Because(fserror.ReasonBlockStore)
		}
	}
}

// Cause is what the mover of a block waits for after err. URLs are signed: it shows none.
func Cause(err error) *fserror.Error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &fserror.Error{Kind: fserror.Unavailable, Reason: fserror.ReasonBlockStore, Message: "the block store does not serve (" + err.Error() + ")"}
}
