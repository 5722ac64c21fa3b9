package client

import (
	"errors"
	"net/url"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Waiting is what Config.OnWait is told of: something that is tried again and
// again, since a namenode, or the block store, does not serve it for now.
type Waiting struct {
	// Op and Path are those of the call, as its error would have them: "connect"
	// while New looks for a namenode, the parts of a write ("write", "flush",
	// "close") for a Writer. Path may be empty.
	Op, Path string
	// Cause is what is waited for, without Op and Path. Its kind is Unavailable
	// (nobody answers), NotActive (no namenode is active), or Retry (safe mode,
	// overload); in its Message is one line that a person understands.
	Cause *fserror.Error
	// For is how long it has been tried so far.
	For time.Duration
	// Limit is for how long it is tried in all, as far as its context's deadline
	// and Config.Timeout say; 0: without an end.
	Limit time.Duration
}

// storeCause is what who moves a block waits for. URLs are signed: they are not
// shown.
func storeCause(err error) *fserror.Error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &fserror.Error{Kind: fserror.Unavailable, Reason: "block store", Message: "the block store does not serve (" + err.Error() + ")"}
}
