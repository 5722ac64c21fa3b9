package namenode

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/forecast"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// OpenShares reads a file of who may have how much of what all share, see share.Quotas.
func OpenShares(c clock.Clock, name string) (*proof.File[*share.Quotas], error) {
	return proof.Open(c, func(contents [][]byte) (*share.Quotas, error) {
		q, err := share.ParseQuotas(contents[0], addressName)
		if err != nil {
			return nil, fserror.New(fserror.InvalidArgument, "read shares", name, "%v", err).Because(fserror.ReasonShares)
		}
		return q, nil
	}, name)
}

// addressName is the name under which an address takes its share.
func addressName(address string) (string, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "", err
	}
	return conns.AddressName(a), nil
}

// quotas are what the file of shares says now; nil: there is none.
func (c *Config) quotas() *share.Quotas {
	if c.Shares == nil {
		return nil
	}
	return c.Shares.Get()
}

// quota is what each may have of something.
func (c *Config) quota(what string) share.Quota {
	return func(name string) int64 { return c.quotas().Of(what, name) }
}

// checkShares reads the file of shares again, if it has changed.
func (s *Server) checkShares(context.Context) error {
	if s.cfg.Shares == nil {
		return nil
	}
	switch changed, err := s.cfg.Shares.Check(); {
	case err != nil:
		s.log.Error("the file of shares was changed and cannot be used as it is; what it said before counts", "cause", err)
	case changed:
		s.log.Info("the file of shares was changed and read again")
	}
	return nil
}

// maxWritten is more than there can be: memory and tails bound them.
const maxWritten = 1 << 40

// openedFor counts the files that sessions of a user have open for write.
func (w *writers) openedFor(user string, n int) { w.files.Hold(int64(n), share.User(user)) }

// mayHold refuses one more file to a user who has as many open for write as he may. One that he has
// already is no more; nil: nobody has it. The namespace is locked, so that it is counted
// before another one is asked for.
func (w *writers) mayHold(ctx context.Context, c *namespace.Call, h namespace.Holder, open *namespace.OpenFile) error {
	if open != nil && open.Holder.User == h.User {
		return nil
	}
	who := share.User(h.User)
	who.Reserve = taker(ctx, c).Reserve
	if !w.files.Take(1, who) {
		return serve.TooMany(w.files, 1, who)
	}
	w.files.Give(1, who) // the record takes it
	return nil
}

// limits are those of what callers share, as far as they are known.
func (r rooms) limits() []*share.Limit {
	limits := append(r.s.front.Limits(), r.s.calls.watchers, r.s.calls.files)
	if r.s.role.Ready() {
		limits = append(limits, r.s.engine.Limits()...)
	}
	return limits
}

// readings are how much is in use of what there is only so much of.
func (r rooms) readings(context.Context) []forecast.Reading {
	all := r.s.space.Readings()
	for _, l := range r.limits() {
		all = append(all, forecast.Reading{Resource: l.What(), Used: l.Used(), Limit: l.Room()})
	}
	if role := r.s.role.Status(); role.Several {
		all = append(all, forecast.Reading{Resource: "zookeeper", Used: role.Kept, Limit: r.s.images.Most()})
	}
	if r.s.role.Ready() { // as checkTailBudget has it
		all = append(all, forecast.Reading{Resource: "tails", Used: r.s.engine.Facts().TailBytes, Limit: share.Room(r.s.cfg.TailBudget, 0, 1, false)})
	}
	return all
}

// greedy are those who hold much of what all share, or were refused more.
func (s *Server) greedy() []share.Holding {
	all := s.front.Rates().Greedy(time.Now())
	for _, l := range append((rooms{s}).limits(), s.front.Served) {
		all = append(all, l.Greedy()...)
	}
	return all
}

// held is what a user holds of what all share.
func (r rooms) held(user string) []share.Holding {
	return append(share.Held(user, r.limits()), r.s.front.Rates().Held(user, time.Now())...)
}

// refusals is how often somebody was refused more of what all share.
func (s *Server) refusals() uint64 {
	return s.front.Refusals() + s.calls.watchers.Refusals() + s.calls.files.Refusals()
}

// tellGreedy adds who is greedy, and which quotas are nearly used up, to a status that a superuser asks for.
func (s *operators) tellGreedy(ctx context.Context, caller *pb.Caller, resp *pb.StatusResponse) {
	if c, err := s.caller(ctx, caller); err != nil || !c.Super {
		return
	}
	resp.Quotas, resp.Greedy = s.quotas.Fullest(), serve.Holdings(s.greedy())
}

// operator reports whether a user looks after the namenode. It is asked before anything of a
// call was checked, so that its answer is worth something only for who could claim anything.
func (s *Server) operator(user string) bool {
	if user == "" || !s.role.Ready() {
		return false
	}
	su, sg := s.engine.Superuser()
	return user == su || slices.Contains(s.cfg.Groups(user), sg)
}
