package serve

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxStreams is how many streams there are at most of sessions, and of keep-alives.
const maxStreams = 1 << 17

// patience is how long a call of somebody who makes too many waits for its turn at most.
const patience = 5 * time.Second

// shared is what callers share here.
type shared struct {
	rates      *share.Rates
	sessions   *share.Limit
	keepAlives *share.Limit
}

func newShared(quota func(what string) share.Quota) shared {
	return shared{
		rates: share.NewRates(quota(share.Calls)), sessions: share.Of(maxStreams, share.Sessions, quota(share.Sessions)),
		keepAlives: share.Of(maxStreams, share.KeepAlives, quota(share.KeepAlives)),
	}
}

// Limits are those of what callers share here.
func (f *Front) Limits() []*share.Limit {
	return []*share.Limit{f.conns.Limit(), f.shared.sessions, f.shared.keepAlives, f.Parked}
}

// Refusals is how often somebody was refused more of what callers share here, and of calls a
// second.
func (f *Front) Refusals() uint64 {
	n := f.shared.rates.Refusals()
	for _, l := range f.Limits() {
		n += l.Refusals()
	}
	return n
}

// Rates are how many calls callers begin.
func (f *Front) Rates() *share.Rates { return f.shared.rates }

// Holdings are what somebody holds, as it is told.
func Holdings(all []share.Holding) (told []*pb.Holding) {
	for _, h := range all {
		told = append(told, &pb.Holding{What: h.What, Who: h.Who, Held: h.Held, Most: h.Most, Refused: h.Refused, Delayed: h.Delayed})
	}
	return told
}

// TooMany is the error of who was refused n of something.
func TooMany(l *share.Limit, n int64, who share.Taker) error {
	return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonShares, Message: l.Why(n, who), RetryAfter: time.Second}
}

// userOf is who asks, by proof or by his word; empty: it is not known. Of one who may act
// for another it is that other.
func (f *Front) userOf(ctx context.Context, req any) string {
	says := ""
	if r, ok := req.(interface{ GetHello() *pb.Hello }); ok {
		req = r.GetHello()
	}
	if r, ok := req.(interface{ GetCaller() *pb.Caller }); ok && r.GetCaller() != nil {
		says = r.GetCaller().GetUser()
	}
	if who := identity.Of(ctx); who != nil {
		if says == "" || who.Is(says) != nil {
			return who.User
		}
		return says
	}
	if r, ok := req.(interface{ GetWriter() *pb.WriterId }); ok && says == "" && r.GetWriter() != nil {
		return f.cfg.UserOf(r.GetWriter().GetSession())
	}
	return says
}

// slow has a call wait whose caller makes more of them a second than he may. An error says
// that it would have to wait for too long. Who looks after the namenode waits for nothing.
func (f *Front) slow(ctx context.Context, who share.Taker, req any) error {
	if who.Reserve || !f.cfg.Limits(share.Calls) {
		return nil
	}
	callers := share.Taker{Names: who.Names[:len(who.Names):len(who.Names)]}
	if user := f.userOf(ctx, req); user != "" {
		callers.Names = append(callers.Names, share.User(user).Names...)
	}
	longest := patience
	if end, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(end))
	}
	wait, over := f.shared.rates.Next(callers, time.Now(), longest)
	if over != "" {
		return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonShares, RetryAfter: wait,
			Message: "overloaded: " + strings.TrimPrefix(over, "user ") + " makes more calls a second than it may; make fewer, or ask the operator for more"}
	}
	if wait <= 0 {
		return nil
	}
	f.calls.delayed.Add(wait.Seconds())
	callstream.Waits(ctx)
	n := f.Parked.Most(places(req), callers)
	if !f.Parked.Take(n, callers) {
		return TooMany(f.Parked, n, callers)
	}
	defer f.Parked.Give(n, callers)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeStream takes a place for a stream whose first message has come. What it returns gives
// it back.
func (f *Front) takeStream(ctx context.Context, method string, first any) (back func(), err error) {
	var l *share.Limit
	switch method {
	case pb.Namenode_Session_FullMethodName:
		l = f.shared.sessions
	case pb.Namenode_KeepAlive_FullMethodName:
		l = f.shared.keepAlives
	default:
		return func() {}, nil
	}
	who := share.Taker{}
	if p, ok := peer.FromContext(ctx); ok {
		who = conns.Taker(p.Addr)
	}
	user := f.userOf(ctx, first)
	who.Reserve = who.Reserve && f.cfg.Operator(user)
	if user != "" {
		who.Names = append(who.Names[:len(who.Names):len(who.Names)], share.User(user).Names...)
	}
	if !l.Take(1, who) {
		return nil, TooMany(l, 1, who)
	}
	return func() { l.Give(1, who) }, nil
}
