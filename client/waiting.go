package client

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
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

const (
	// waitNote is how long a call waits before somebody is told.
	waitNote = time.Second
	// waitAgain is for how long nobody is told of the same cause again.
	waitAgain = 30 * time.Second
	// maxWaitCauses bounds how many causes are remembered.
	maxWaitCauses = 64
	// noStore is the reason of a Cause that is the block store's.
	noStore = "block store"
)

// waitNotes calls Config.OnWait, one call at a time.
type waitNotes struct {
	mu   sync.Mutex
	told map[string]time.Time // causes, and when OnWait was last told of them
}

// waits is the waiting of one call. It is not safe for concurrent use.
type waits struct {
	f        *FS
	op, path string
	began    time.Time
	limit    time.Duration
	told     []string // causes
}

func (f *FS) waits(op, path string) waits {
	return waits{f: f, op: op, path: path, began: time.Now(), limit: f.cfg.Timeout}
}

// sleep is the pause before another try, after e, which a namenode said if
// answered. Once the call waits for waitNote, though that be in the midst of the
// pause, it tells what for.
func (w *waits) sleep(ctx, also context.Context, d time.Duration, e *fserror.Error, answered bool) bool {
	if w.f.cfg.OnWait != nil && d > 0 {
		left := max(waitNote-time.Since(w.began), 0)
		if left <= d {
			if !sleep(ctx, also, left) {
				return false
			}
			d -= left
			if end, ok := ctx.Deadline(); ok && (w.limit == 0 || end.Sub(w.began) < w.limit) {
				w.limit = end.Sub(w.began)
			}
			w.tell(w.f.waitCause(e, answered))
		}
	}
	return sleep(ctx, also, d)
}

// tell calls OnWait, unless the call, or another one lately, has told that.
func (w *waits) tell(cause *fserror.Error) {
	key := causeKey(cause)
	for _, k := range w.told {
		if k == key {
			return
		}
	}
	if len(w.told) >= maxWaitCauses {
		return
	}
	w.told = append(w.told, key)
	notes := &w.f.waitNotes
	notes.mu.Lock()
	defer notes.mu.Unlock()
	now := time.Now()
	if at, ok := notes.told[key]; ok && now.Sub(at) < waitAgain {
		return
	}
	if notes.told == nil || len(notes.told) >= maxWaitCauses {
		notes.told = make(map[string]time.Time)
	}
	notes.told[key] = now
	c := *cause
	c.Op, c.Path, c.RetryAfter = "", "", 0 // it is tried again, whoever reads this need not
	w.f.cfg.OnWait(Waiting{Op: w.op, Path: w.path, Cause: &c, For: now.Sub(w.began), Limit: w.limit})
}

// causeKey tells causes apart. Who answers that he is busy says with what; who
// does not answer may do so in many words.
func causeKey(e *fserror.Error) string {
	if e.Kind == fserror.Retry && e.Reason == "" {
		return e.Kind.String() + " " + e.Message
	}
	return e.Kind.String() + " " + e.Reason
}

// waitCause is what a call waits for that got e, from a namenode if answered.
func (f *FS) waitCause(e *fserror.Error, answered bool) *fserror.Error {
	c := &fserror.Error{Kind: fserror.Unavailable}
	switch why := plainly(e); {
	case answered && e.Kind != fserror.NotActive:
		return e
	case answered:
		c.Kind = fserror.NotActive
		c.Message = "no namenode is active at " + f.eps.String() + " (" + why + ")"
	default:
		c.Message = "no namenode answers at " + f.eps.String() + " (" + why + ")"
	}
	return c
}

// plainly is plain without what gRPC wraps around a failed connection.
func plainly(e *fserror.Error) string {
	c := *e
	c.RetryAfter = 0
	text := plain(&c)
	if inner, ok := strings.CutPrefix(text, `connection error: desc = "`); ok {
		text = strings.TrimSuffix(inner, `"`)
	}
	text = strings.TrimPrefix(text, "transport: ")
	return strings.TrimPrefix(text, "Error while dialing: ")
}

// storeCause is what who moves a block waits for. URLs are signed: they are not
// shown.
func storeCause(err error) *fserror.Error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &fserror.Error{Kind: fserror.Unavailable, Reason: noStore, Message: "the block store does not serve (" + err.Error() + ")"}
}

// noSession is why New has no session yet.
type noSession struct {
	err      *fserror.Error
	answered bool
}

// tellNoSession tells what New waits for.
func (f *FS) tellNoSession(w *waits) {
	if s := f.noSession.Load(); s != nil {
		w.tell(f.waitCause(s.err, s.answered))
		return
	}
	w.tell(&fserror.Error{Kind: fserror.Unavailable, Message: "no namenode answers at " + f.eps.String()})
}
