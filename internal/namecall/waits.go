package namecall

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
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
	// WaitNote is how long a call waits before somebody is told.
	WaitNote = time.Second
	// waitAgain is for how long nobody is told of the same cause again.
	waitAgain = 30 * time.Second
	// maxWaitCauses bounds how many causes are remembered.
	maxWaitCauses = 64
)

// notes calls Config.OnWait, one call at a time.
type notes struct {
	mu   sync.Mutex
	told map[string]time.Time // causes, and when OnWait was last told of them
}

// Waits is the waiting of one call. It is not safe for concurrent use.
type Waits struct {
	s        *Namenodes
	op, path string
	began    time.Time
	read     clock.Reading // by the holder's clocks
	deadline time.Time     // no pause ends later; zero: none
	limit    time.Duration // as it is reported
	told     []string      // causes reported
}

// Waits begins the waiting of a call, which Config.Timeout limits.
func (s *Namenodes) Waits(op, path string) Waits {
	now := time.Now()
	return Waits{s: s, op: op, path: path, began: now, read: clock.Read(s.cfg.Clock), deadline: now.Add(s.cfg.Timeout), limit: s.cfg.Timeout}
}

// Endless begins a waiting that only its context limits.
func (s *Namenodes) Endless(op, path string) Waits {
	return Waits{s: s, op: op, path: path, began: time.Now()}
}

// Over reports whether a pause of that length would end too late.
func (w *Waits) Over(pause time.Duration) bool {
	return !w.deadline.IsZero() && time.Now().Add(pause).After(w.deadline)
}

// Try calls once, a function that makes calls of its own, until it succeeds or fails with
// an error that is not transient. When the time is over Try returns once's last error, and
// when the context or the Namenodes end the error of these.
func (w *Waits) Try(ctx context.Context, once func() error) error {
	for n := 0; ; n++ {
		err := once()
		var e *fserror.Error
		pause := Backoff(n)
		if !fserror.Transient(err) || !errors.As(err, &e) || w.Over(pause) {
			return err
		}
		if !w.Again(ctx, pause, e, e.Kind == fserror.NotActive || e.Kind == fserror.Retry) {
			return fserror.Ended(ctx, w.op, w.path)
		}
	}
}

// Next is the pause before c is sent again, after e, which a namenode said if
// answered. Its error ends the call: there is no time left, or the context ended.
func (w *Waits) Next(ctx context.Context, c *Call, pause time.Duration, e *fserror.Error, answered bool) error {
	if w.Over(pause) {
		return w.s.over(c, e)
	}
	if !w.Again(ctx, pause, e, answered) && ctx.Err() != nil {
		return c.ended(ctx)
	}
	// A deadline's clock stands still while the machine is suspended. A namenode tells a
	// repetition from a new call only for some minutes.
	if c.Mutates && c.AnyLost && clock.Read(w.s.cfg.Clock).Since(w.read) > w.s.cfg.Timeout {
		return w.s.over(c, e)
	}
	return nil
}

// Again is the pause before a call is sent again, after e, which a namenode said
// if answered. False means that the context or the Namenodes ended first.
func (w *Waits) Again(ctx context.Context, d time.Duration, e *fserror.Error, answered bool) bool {
	w.s.retries.Add(1)
	return w.Pause(ctx, d, w.s.waitCause(e, answered))
}

// Pause waits for d before another try, because of cause. Once the call waits for
// WaitNote, though that be in the midst of the pause, it tells what for. False
// means that the context or the Namenodes ended first.
func (w *Waits) Pause(ctx context.Context, d time.Duration, cause *fserror.Error) bool {
	if w.s.cfg.OnWait != nil && d > 0 {
		left := max(WaitNote-time.Since(w.began), 0)
		if left <= d {
			if !w.s.Sleep(ctx, left) {
				return false
			}
			d -= left
			if end, ok := ctx.Deadline(); ok && (w.limit == 0 || end.Sub(w.began) < w.limit) {
				w.limit = end.Sub(w.began)
			}
			w.tell(cause)
		}
	}
	return w.s.Sleep(ctx, d)
}

// Tell tells that the call waits because of e, which a namenode said if answered;
// nil: because none has answered yet.
func (w *Waits) Tell(e *fserror.Error, answered bool) {
	if w.s.cfg.OnWait != nil {
		w.tell(w.s.waitCause(e, answered))
	}
}

// tell calls OnWait, unless the call, or another one lately, has told that.
func (w *Waits) tell(cause *fserror.Error) {
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
	notes := &w.s.notes
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
	w.s.cfg.OnWait(Waiting{Op: w.op, Path: w.path, Cause: &c, For: now.Sub(w.began), Limit: w.limit})
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
func (s *Namenodes) waitCause(e *fserror.Error, answered bool) *fserror.Error {
	if answered && e.Kind != fserror.NotActive {
		return e
	}
	c := &fserror.Error{Kind: fserror.Unavailable, Message: "no namenode answers at " + s.String()}
	if answered {
		c.Kind, c.Message = fserror.NotActive, "no namenode is active at "+s.String()
	}
	if e != nil {
		c.Message += " (" + Plainly(e) + ")"
	}
	return c
}

// Plainly is Plain without what gRPC wraps around a failed connection.
func Plainly(e *fserror.Error) string {
	c := *e
	c.RetryAfter = 0
	text := Plain(&c)
	if inner, ok := strings.CutPrefix(text, `connection error: desc = "`); ok {
		text = strings.TrimSuffix(inner, `"`)
	}
	text = strings.TrimPrefix(text, "transport: ")
	return strings.TrimPrefix(text, "Error while dialing: ")
}
