package namecall

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/tracing"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxFaults is how often a call is sent again after an answer that neither
	// a namenode nor a broken connection explains.
	maxFaults = 3
	// NoLimit as Call.Wait lets one attempt last as long as it takes; the
	// connection's keepalive still notices a dead namenode.
	NoLimit = time.Duration(-1)
	// TailBudget is the reason of the answer that there is no room in tails.
	TailBudget = "tail budget"
)

// Call describes one call to the namenode, and afterwards what became of it.
type Call struct {
	Op, Path string
	Wait     time.Duration // for how long the namenode may wait before it answers
	Mutates  bool          // a lost reply leaves its outcome unknown
	// TailToo hands the answer that there is no room in tails to the caller at
	// once, who can make a block. Not while the outcome of an earlier attempt is
	// unknown.
	TailToo bool

	Lost bool // a reply was lost, and no later one told the outcome
	// AnyLost: a reply was lost, whatever came later.
	AnyLost bool
}

// Do sends req until there is an answer, the context ends, or Config.Timeout is
// over. A repetition is the same request with the same call id. Errors are
// *fserror.Error with operation and path.
func (s *Namenodes) Do(ctx context.Context, c *Call, method string, req, resp any) (err error) {
	ctx, span := tracing.Begin(ctx, c.Op)
	defer func() { span.End(err) }()
	w := s.Waits(c.Op, c.Path)
	for n, hops, faults := 0, 0, 0; ; n++ {
		if err := s.Err(); err != nil {
			return c.fail(err)
		}
		if n > 0 {
			s.ids.acknowledge(req)
		}
		ep := s.Active()
		reached, err := s.Once(ctx, c, ep, method, req, resp)
		if err == nil {
			c.Lost = false
			return nil
		}
		e, answered := Answer(err)
		if c.Wait != NoLimit && (e.Kind == fserror.Deadline || e.Kind == fserror.Canceled) {
			answered = false // the time of one attempt was over, whichever side noticed it first
		}
		if reached && (!answered || e.Kind == fserror.Unknown) {
			c.Lost, c.AnyLost = true, true
		}
		if ctx.Err() != nil {
			return c.ended(ctx)
		}
		delay := Backoff(n)
		switch {
		case !answered:
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
				s.MoveOn(ep, "")
				delay = w.Seek(n)
			case codes.Internal, codes.Unknown, codes.Aborted:
				// A stream reset, or a fault on the other side.
				if faults++; faults > maxFaults {
					return c.fail(e)
				}
			default:
				return c.fail(e)
			}
		case e.Kind == fserror.NotActive:
			s.inactive(ep)
			if s.MoveOn(ep, e.Active) && hops < 2 {
				hops++
				delay = 0
			} else {
				delay = max(w.Seek(n), min(e.RetryAfter, seekPause))
			}
		case e.Kind == fserror.Retry:
			if c.TailToo && !c.Lost && e.Reason == TailBudget {
				return c.fail(e)
			}
			delay = max(delay, e.RetryAfter)
		case e.Kind == fserror.Unavailable, e.Kind == fserror.Unknown:
			c.Lost = c.Lost || e.Kind == fserror.Unknown
			c.AnyLost = c.AnyLost || c.Lost
			s.MoveOn(ep, e.Active)
		default:
			c.Lost = false
			return c.fail(e)
		}
		if err := w.Next(ctx, c, delay, e, answered); err != nil {
			return err
		}
	}
}

// Once is one attempt. reached reports whether it may have left this machine.
func (s *Namenodes) Once(ctx context.Context, c *Call, ep *Node, method string, req, resp any) (reached bool, err error) {
	var cancel context.CancelFunc
	if c.Wait != NoLimit {
		ctx, cancel = context.WithTimeout(ctx, s.AttemptTime()+c.Wait)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	settled := s.Suspect(ctx, cancel, ep)
	defer func() { cancel(); settled() }()
	if !c.Mutates {
		return true, ep.Conn().Invoke(ctx, method, req, resp, grpc.StaticMethod())
	}
	var p peer.Peer
	err = ep.Conn().Invoke(ctx, method, req, resp, grpc.StaticMethod(), grpc.Peer(&p))
	return p.Addr != nil, err
}

// AttemptTime is Config.Attempt.
func (s *Namenodes) AttemptTime() time.Duration {
	return s.cfg.Attempt
}

// Answer turns what gRPC returned into an error of ours, and tells whether a
// namenode said it, rather than the transport.
func Answer(err error) (e *fserror.Error, answered bool) {
	if !errors.As(wire.FromStatus(err), &e) {
		e = fserror.Wrap(fserror.Internal, "", "", err)
	}
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if _, ok := d.(*pb.ErrorDetail); ok {
			return e, true
		}
	}
	return e, false
}

func (c *Call) fail(err error) error { return fserror.With(err, c.Op, c.Path) }

const unknownOutcome = "its reply was lost, so whether it happened is not known"

// ended is the error of a call whose context is over: its cause if that is an
// error of ours (a lost lease).
func (c *Call) ended(ctx context.Context) error {
	e := fserror.Ended(ctx, c.Op, c.Path)
	if c.Mutates && c.Lost && e.Message == "" {
		e.Message = unknownOutcome
		e.Reason = fserror.ReasonReplyLost
	}
	return e
}

// over is the error of a call whose time is over, last being what it got last.
func (s *Namenodes) over(c *Call, last *fserror.Error) error {
	unknown := c.Mutates && c.Lost
	if last.Kind == fserror.Retry && !unknown {
		return c.fail(last)
	}
	e := fserror.New(fserror.Unavailable, c.Op, c.Path, "no active namenode answered within %s (asked %s); last: %s",
		s.cfg.Timeout, s, Plain(last))
	if unknown {
		e.Message += "; " + unknownOutcome + ": look before you repeat it"
		e.Reason = fserror.ReasonReplyLost
	} else {
		e.Message += "; check that one runs there"
		e.Reason = fserror.ReasonNoAnswer
	}
	return e
}

// Plain is the text of an error without operation and path.
func Plain(e *fserror.Error) string { return fserror.Under(e, "", "").Error() }
