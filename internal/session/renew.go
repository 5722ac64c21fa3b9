package session

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// RenewNow makes the renewer renew at once.
func (s *Session) RenewNow() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// renewLoop is the one renewer of all open files. What fails is tried again
// until the watchdog finds the lease over; nothing is aborted here. While no file is
// open, renewals only show that the namenode answers: half the soft limit is often
// enough then, however often a lease has to be renewed to outlive a failover.
func (s *Session) renewLoop() {
	next := s.period(s.Welcome().GetRenewEveryMs())
	fails, last := 0, time.Now()
	t := time.NewTimer(next)
	defer t.Stop()
	for {
		since := last // what the holder has to have been heard of after
		select {
		case <-s.renewCtx.Done():
			return
		case <-t.C:
			if fails == 0 && s.idle() && time.Since(last)+next <= s.SoftLimit()/2 {
				t.Reset(next)
				continue
			}
		case <-s.wake:
			since = time.Now().Add(-s.SoftLimit() * 3 / 4)
		}
		if fails > 0 {
			since = time.Now().Add(-s.SoftLimit() * 3 / 4)
		}
		if !s.vouched.after(since) {
			fails, next = 0, s.period(0)
			t.Reset(next)
			continue
		}
		last = time.Now()
		s.vouched.renewed(last)
		resp, err := s.renew()
		switch {
		case s.renewCtx.Err() != nil:
			return
		case err != nil:
			s.failures.Add(1)
			s.cfg.Logger.Debug("leasefs: renewal failed, will be repeated", "err", err)
			next = namecall.Backoff(fails)
			fails++
		default:
			s.renewals.Add(1)
			next, fails = s.period(resp.GetNextRenewalMs()), 0
		}
		t.Reset(next)
	}
}

// idle reports whether no file is open, and the namenode knows that.
func (s *Session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files) == 0 && s.version == s.confirmed && !s.resend
}

// period spreads the renewals of many clients: 85 to 100 % of what was asked.
func (s *Session) period(everyMS int64) time.Duration {
	d := ms(everyMS)
	if d <= 0 {
		d = s.SoftLimit() / 2
	}
	d = max(d, 10*time.Millisecond)
	return d - rand.N(d*15/100+1) //nolint:gosec // G404: jitter is no secret
}

// renew sends one renewal and acts on the answer. A file whose open is just
// being answered is not in the set yet; the namenode bears with that for one
// renewal period, and the next renewal lists it, since the set has changed.
func (s *Session) renew() (*pb.RenewLeaseResponse, error) {
	req := &pb.RenewLeaseRequest{Session: s.cfg.Caller.Session, Caller: s.cfg.Caller}
	s.mu.Lock()
	req.Version = s.version
	req.HasSet = s.resend || s.version != s.confirmed
	covered := make([]File, 0, len(s.files))
	for key, f := range s.files {
		covered = append(covered, f)
		if req.HasSet {
			req.Open = append(req.Open, &pb.OpenRef{Inode: key.Inode, Epoch: key.Epoch})
		}
	}
	s.mu.Unlock()

	sent := s.Now()
	resp, err := s.exchange(req)
	if err != nil {
		return nil, err
	}
	s.answered(req, resp, covered, sent)
	return resp, nil
}

// exchange takes the stream if it is up, else a call of its own.
func (s *Session) exchange(req *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	limit := min(max(s.SoftLimit()/2, time.Second), s.nn.AttemptTime())
	ctx, cancel := context.WithTimeout(s.renewCtx, limit)
	ep, st := s.nn.Active(), s.stream.Load()
	if st != nil {
		ep = st.node
	}
	settled := s.nn.Suspect(ctx, cancel, ep)
	defer func() { cancel(); settled() }()
	if st != nil {
		return st.exchange(ctx, req)
	}
	resp := new(pb.RenewLeaseResponse)
	if err := ep.Conn().Invoke(ctx, pb.Namenode_RenewLease_FullMethodName, req, resp, grpc.StaticMethod()); err != nil {
		e, _ := namecall.Answer(err)
		s.nn.MoveOn(ep, e.Active)
		return nil, e
	}
	return resp, nil
}

// answered takes the answer to a renewal in.
func (s *Session) answered(req *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse, covered []File, sent clock.Reading) {
	unknown := resp.GetUnknownSession()
	s.mu.Lock()
	if req.HasSet {
		s.resend = false
		s.confirmed = req.Version
	}
	again := resp.GetWantSet() || unknown && !req.HasSet
	s.resend = s.resend || again
	s.mu.Unlock()
	if again && !req.HasSet { // else when the answer says: it has more to tell
		defer s.RenewNow()
	}
	s.lostFiles(resp)
	if unknown {
		if req.HasSet {
			for _, f := range covered {
				if !f.Closing() {
					f.Lose(fserror.New(fserror.LeaseLost, "", "", "the namenode holds nothing of this session"))
				}
			}
		}
		return
	}
	if again { // it did not look at all files, or tell all losses: another may have one
		return
	}
	s.mu.Lock()
	for _, f := range covered {
		f.Stamp().Renew(sent)
	}
	s.setLimits(resp.GetSoftLimitMs(), resp.GetHardLimitMs()) // not before: they may be lower
	calm := s.jeopardy
	s.jeopardy = false
	s.mu.Unlock()
	if calm {
		s.cfg.Logger.Info("leasefs: the lease is renewed again", "files", len(covered))
	}
}
