package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// reading is what both of a holder's clocks said at one moment. The lease's
// grantor may be a machine that neither was suspended nor set its clock, so
// between two readings as much time has gone by as the clock says that ran
// further.
type reading struct {
	boot time.Duration
	wall int64 // Unix nanoseconds; no monotonic part
}

func (f *FS) read() reading {
	return reading{boot: f.cfg.Clock.Boot(), wall: f.cfg.Clock.Wall().UnixNano()}
}

func (r reading) since(earlier reading) time.Duration {
	return max(r.boot-earlier.boot, time.Duration(r.wall-earlier.wall))
}

// leaseStamp is when a writer's lease was certainly good last: the moment at
// which a request was sent that the namenode answered.
type leaseStamp struct {
	mu sync.Mutex
	at reading
}

// renewed moves the stamp forward, never back.
func (s *leaseStamp) renewed(at reading) {
	s.mu.Lock()
	if at.boot > s.at.boot {
		s.at = at
	}
	s.mu.Unlock()
}

func (s *leaseStamp) age(now reading) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.since(s.at)
}

// Where the holder's limit ends before the grantor's: 5 % earlier, but not
// more than a second.
func (f *FS) localLimit() time.Duration {
	hard := time.Duration(f.hard.Load())
	if hard <= 0 {
		return 1<<63 - 1
	}
	return hard - min(hard/20, time.Second)
}

// renewNow makes the renewer renew at once.
func (f *FS) renewNow() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// renewLoop is the one renewer of all open files. What fails is tried again
// until the watchdog finds the lease over; nothing is aborted here.
func (f *FS) renewLoop() {
	next := f.period(f.welcome.Load().GetRenewEveryMs())
	fails := 0
	t := time.NewTimer(next)
	defer t.Stop()
	for {
		select {
		case <-f.renewCtx.Done():
			return
		case <-t.C:
		case <-f.wake:
		}
		resp, err := f.renew()
		switch {
		case f.renewCtx.Err() != nil:
			return
		case err != nil:
			f.stats.renewFailures.Add(1)
			f.cfg.Logger.Debug("leasefs: renewal failed, will be repeated", "err", err)
			next = namecall.Backoff(fails)
			fails++
		default:
			f.stats.renewals.Add(1)
			next, fails = f.period(resp.GetNextRenewalMs()), 0
		}
		t.Reset(next)
	}
}

// period spreads the renewals of many clients: 85 to 100 % of what was asked.
func (f *FS) period(everyMS int64) time.Duration {
	d := ms(everyMS)
	if d <= 0 {
		d = time.Duration(f.soft.Load()) / 2
	}
	d = max(d, 10*time.Millisecond)
	return d - rand.N(d*15/100+1) //nolint:gosec // G404: jitter is no secret
}

// renew sends one renewal and acts on the answer. A file whose open is just
// being answered is not in the set yet; the namenode bears with that for one
// renewal period, and the next renewal lists it, since the set has changed.
func (f *FS) renew() (*pb.RenewLeaseResponse, error) {
	req := &pb.RenewLeaseRequest{Session: f.caller.Session, Caller: f.caller}
	f.mu.Lock()
	req.Version = f.version
	req.HasSet = f.resend || f.version != f.confirmed
	covered := make([]*Writer, 0, len(f.writers))
	for key, w := range f.writers {
		covered = append(covered, w)
		if req.HasSet {
			req.Open = append(req.Open, &pb.OpenRef{Inode: key.inode, Epoch: key.epoch})
		}
	}
	f.mu.Unlock()

	sent := f.read()
	resp, err := f.exchange(req)
	if err != nil {
		return nil, err
	}
	f.answered(req, resp, covered, sent)
	return resp, nil
}

// exchange takes the stream if it is up, else a call of its own.
func (f *FS) exchange(req *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	limit := min(max(time.Duration(f.soft.Load())/2, time.Second), f.nn.AttemptTime())
	ctx, cancel := context.WithTimeout(f.renewCtx, limit)
	ep, l := f.nn.Active(), f.line.Load()
	if l != nil {
		ep = l.ep
	}
	settled := f.nn.Suspect(ctx, cancel, ep)
	defer func() { cancel(); settled() }()
	if l != nil {
		return l.exchange(ctx, req)
	}
	resp := new(pb.RenewLeaseResponse)
	if err := ep.Conn().Invoke(ctx, pb.Namenode_RenewLease_FullMethodName, req, resp, grpc.StaticMethod()); err != nil {
		e, _ := namecall.Answer(err)
		f.nn.MoveOn(ep, e.Active)
		return nil, e
	}
	return resp, nil
}

// answered takes the answer to a renewal in.
func (f *FS) answered(req *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse, covered []*Writer, sent reading) {
	unknown := resp.GetUnknownSession()
	f.mu.Lock()
	if req.HasSet {
		f.resend = false
		f.confirmed = req.Version
	}
	again := resp.GetWantSet() || unknown && !req.HasSet
	f.resend = f.resend || again
	f.mu.Unlock()
	if again && !req.HasSet { // else when the answer says: it has more to tell
		defer f.renewNow()
	}
	f.lostFiles(resp)
	if unknown {
		if req.HasSet {
			for _, w := range covered {
				if !w.isClosing() {
					w.lose(fserror.New(fserror.LeaseLost, "", "", "the namenode holds nothing of this session"))
				}
			}
		}
		return
	}
	if again { // it did not look at all files, or tell all losses: another may have one
		return
	}
	f.mu.Lock()
	for _, w := range covered {
		w.renewed(sent)
	}
	f.setLimits(resp.GetSoftLimitMs(), resp.GetHardLimitMs()) // not before: they may be lower
	calm := f.jeopardy
	f.jeopardy = false
	f.mu.Unlock()
	if calm {
		f.cfg.Logger.Info("leasefs: the lease is renewed again", "files", len(covered))
	}
}

// lostFiles tells the writers that an answer names. A writer that is closing
// gets the truth from its own call: to the namenode it may be closed already.
func (f *FS) lostFiles(resp *pb.RenewLeaseResponse) {
	for _, l := range resp.GetLost() {
		if w := f.writer(openKey{l.GetInode(), l.GetEpoch()}); w != nil && !w.isClosing() {
			w.lose(lostError(l))
		}
	}
	for _, r := range resp.GetUnknown() {
		if w := f.writer(openKey{r.GetInode(), r.GetEpoch()}); w != nil && !w.isClosing() {
			w.lose(fserror.New(fserror.LeaseLost, "", "", "the namenode does not know this file as open (epoch %d)", r.GetEpoch()))
		}
	}
}

func lostError(l *pb.LostFile) *fserror.Error {
	e := &fserror.Error{Kind: fserror.LeaseLost, Reason: l.GetReason(), Message: "the lease was lost"}
	if l.GetReason() == "deleted" || l.GetReason() == "replaced" {
		e.Kind = fserror.LeaseLostGone
	}
	if l.GetReason() != "" {
		e.Message += ": " + l.GetReason()
	}
	if l.GetNewHolder() != nil {
		h := holder(l.GetNewHolder())
		e.Holder = &h
		e.Message += " by " + h.Client + " (host " + h.Host + ")"
	}
	return e
}

func (f *FS) writer(key openKey) *Writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writers[key]
}

// watchLoop is the watchdog: it finds leases past their limits by the
// holder's own clock, whatever the network does. It looks often, rather than
// sleep until the deadline, since a timer stands still while the machine is
// suspended, and the clock may be set.
func (f *FS) watchLoop() {
	tick := min(max(time.Duration(f.hard.Load())/40, 10*time.Millisecond), time.Second)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-f.renewCtx.Done():
			return
		case <-t.C:
			f.watch()
		}
	}
}

// watch looks at all writers once.
func (f *FS) watch() {
	soft, limit := time.Duration(f.soft.Load()), f.localLimit()
	f.mu.Lock()
	writers := make([]*Writer, 0, len(f.writers))
	for _, w := range f.writers {
		writers = append(writers, w)
	}
	f.mu.Unlock()
	if len(writers) == 0 {
		return
	}
	now := f.read()
	late := 0
	var oldest time.Duration
	for _, w := range writers {
		age := w.lease.age(now)
		if age >= limit && !w.isClosing() {
			w.expire(age)
			continue
		}
		if soft > 0 && age > soft {
			late++
			oldest = max(oldest, age)
		}
	}
	if late == 0 {
		return
	}
	f.mu.Lock()
	first := !f.jeopardy
	f.jeopardy = true
	f.mu.Unlock()
	if first {
		f.stats.jeopardies.Add(1)
		f.cfg.Logger.Warn("leasefs: the lease is in jeopardy: not renewed since its soft limit; writing continues",
			"files", late, "idle", fserror.Round(oldest), "lost_in", fserror.Round(limit-oldest))
		f.renewNow()
	}
}

// remember adds a writer to the set of open files; false: Close came before.
func (f *FS) remember(w *Writer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writers[w.key] = w
	f.version++
	return !f.closed
}

// forget takes it out.
func (f *FS) forget(w *Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writers[w.key] == w {
		delete(f.writers, w.key)
		f.version++
	}
}
