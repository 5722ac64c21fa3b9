package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// line is a session stream that is up: Hello was answered by Welcome.
type line struct {
	ep     *namecall.Node
	number uint64
	stream pb.Namenode_SessionClient
	cancel context.CancelFunc
	gone   chan struct{} // closed when the stream is

	sendMu sync.Mutex // gRPC wants one sender at a time

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan renewal

	// Of the read cache: its last renewal, and what is to be acknowledged.
	terms    chan bool // has an element when a renewal was answered: granted?
	termSeq  uint64
	termSent readcache.Reading
	ackSeq   uint64
	acking   bool
	toTell   []Revocation // that Config.OnRevoke has not been told yet
}

// renewal is the answer to one: either of the two is set.
type renewal struct {
	resp *pb.RenewLeaseResponse
	err  error
}

// keepSession holds a session stream open for as long as the FS lives.
func (f *FS) keepSession() {
	number := uint64(0)
	since := time.Now() // there is no stream
	var names namecall.Lookups
	for n := 0; f.ctx.Err() == nil; n++ {
		ep := f.nn.Active()
		number++
		welcomed, err := f.runSession(ep, number)
		if f.ctx.Err() != nil || f.left.Load() {
			return
		}
		if welcomed {
			n, since = 0, time.Now()
		}
		e, answered := namecall.Answer(err)
		var own *fserror.Error
		if errors.As(err, &own) {
			e, answered = own, true
		}
		var final error
		switch {
		case answered && fatal(e.Kind):
			final = e
		case f.stats.sessions.Load() == 0: // New waits
			final = names.Failed(ep.Address, e.Message, f.cfg.Namenodes)
		}
		if final != nil {
			select {
			case f.refused <- final: // New may be waiting for it
			default:
			}
		}
		if answered {
			f.told.Store(e)
		}
		f.noSession.Store(&noSession{e, answered})
		followed := f.nn.MoveOn(ep, e.Active)
		f.cfg.Logger.Debug("leasefs: no session", "namenode", ep.Address, "err", err)
		if followed && n < 2 {
			continue
		}
		f.nn.Sleep(f.ctx, namecall.SeekBackoff(n, time.Since(since)))
	}
}

// noSession is why New has no session yet.
type noSession struct {
	err      *fserror.Error
	answered bool
}

// fatal reports whether a refused Hello will be refused again.
func fatal(k fserror.Kind) bool {
	switch k {
	case fserror.Permission, fserror.InvalidArgument, fserror.Unsupported, fserror.TooLarge:
		return true
	}
	return false
}

// runSession opens the session's stream of that number and serves it until it
// breaks.
func (f *FS) runSession(ep *namecall.Node, number uint64) (welcomed bool, err error) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	if f.cache != nil {
		f.cache.Disconnected() // the namenode takes a new stream to mean that nothing is kept
		f.revoked(Revocation{All: true})
		defer f.cache.Disconnected()
	}
	impatient := time.AfterFunc(f.nn.AttemptTime(), cancel)
	defer impatient.Stop()
	stream, err := pb.NewNamenodeClient(ep.Conn()).Session(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: f.caller, Cache: f.cache != nil, Stream: number}}}); err != nil {
		_, err = stream.Recv() // it knows why
		return false, err
	}
	m, err := stream.Recv()
	if err != nil {
		return false, err
	}
	if d := m.GetError(); d != nil {
		return false, wire.FromDetail(d)
	}
	w := m.GetWelcome()
	if w == nil {
		return false, fserror.New(fserror.Unsupported, "connect", "", "%s answered Hello with something else: not a leasefs namenode of this version", ep.Address)
	}
	if !impatient.Stop() {
		return false, fserror.New(fserror.Unavailable, "connect", "", "%s was too slow", ep.Address)
	}
	if old := f.welcome.Load(); old != nil && old.GetNamespaceId() != w.GetNamespaceId() {
		return false, fserror.New(fserror.Unavailable, "connect", "", "%s serves namespace %s, this session belongs to %s", ep.Address, w.GetNamespaceId(), old.GetNamespaceId())
	}
	l := &line{ep: ep, number: number, stream: stream, cancel: cancel, gone: make(chan struct{}), waiting: make(map[uint64]chan renewal), terms: make(chan bool, 1)}
	defer close(l.gone)
	if term := ms(w.GetCacheTermMs()); f.cache != nil && term > 0 {
		f.cache.Connected()
		f.drafts.forgetNumbers() // the namenode may have forgotten the session meanwhile
		f.goRun(func() { f.cacheLoop(l, term) })
	}
	f.greet(w)
	f.line.Store(l)
	defer f.line.CompareAndSwap(l, nil)
	for {
		m, err := stream.Recv()
		if err != nil {
			return true, err
		}
		switch {
		case f.cacheMessage(l, m):
		case m.GetRenewed() != nil:
			if r := m.GetRenewed(); !l.deliver(r) {
				f.lostFiles(r) // unasked: something was lost just now
			}
		case m.GetError() != nil:
			e := wire.FromDetail(m.GetError())
			if e.Kind == fserror.NotActive || fatal(e.Kind) || !l.refuse(e) {
				return true, e
			}
		case m.GetWelcome() != nil:
			f.greet(m.GetWelcome())
		}
	}
}

// greet takes a Welcome in. A namenode that welcomes may be another than
// before, so it gets the whole set of open files at once.
func (f *FS) greet(w *pb.Welcome) {
	f.welcome.Store(w)
	f.mu.Lock()
	f.resend = true
	first := f.stats.sessions.Add(1) == 1
	open := len(f.writers)
	if open == 0 {
		f.setLimits(w.GetSoftLimitMs(), w.GetHardLimitMs())
	} // else with the renewal: lower limits must not end who could not yet renew
	f.mu.Unlock()
	if first {
		close(f.ready)
		return
	}
	if open > 0 {
		f.renewNow()
	}
}

func (f *FS) setLimits(soft, hard int64) {
	if soft > 0 {
		f.soft.Store(int64(ms(soft)))
	}
	if hard > 0 {
		f.hard.Store(int64(ms(hard)))
	}
}

// kickSession drops the stream to ep, which said that it is not active.
func (f *FS) kickSession(ep *namecall.Node) {
	if l := f.line.Load(); l != nil && l.ep == ep {
		l.cancel()
	}
}

// deliver hands an answer to who waits for it.
func (l *line) deliver(r *pb.RenewLeaseResponse) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch, ok := l.waiting[r.GetSeq()]
	if ok {
		delete(l.waiting, r.GetSeq())
		ch <- renewal{resp: r} // has room for one
	}
	return ok
}

// refuse hands an error to who waits; it does not say for which renewal it is,
// but there is one at a time.
func (l *line) refuse(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := false
	for seq, ch := range l.waiting {
		delete(l.waiting, seq)
		ch <- renewal{err: err}
		told = true
	}
	return told
}

// exchange sends one renewal over the stream and waits for its answer.
func (l *line) exchange(ctx context.Context, req *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	ch := make(chan renewal, 1)
	l.mu.Lock()
	l.seq++
	req.Seq = l.seq
	l.waiting[req.Seq] = ch
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, req.Seq)
		l.mu.Unlock()
	}()
	// A stream that takes nothing any more would hold Send for good.
	stuck := context.AfterFunc(ctx, l.cancel)
	l.sendMu.Lock()
	err := l.stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Renew{Renew: req}})
	l.sendMu.Unlock()
	if !stuck() || err != nil {
		return nil, fserror.New(fserror.Unavailable, "renew", "", "the session's stream broke")
	}
	select {
	case r := <-ch:
		return r.resp, r.err
	case <-l.gone:
		return nil, fserror.New(fserror.Unavailable, "renew", "", "the session's stream broke")
	case <-ctx.Done():
		// It takes messages and does not answer: try another stream.
		l.cancel()
		return nil, fserror.Ended(ctx, "renew", "")
	}
}

// end tells the namenode that the session is over and keeps nothing, and waits a
// moment for it to take notice.
func (l *line) end() {
	l.sendMu.Lock()
	err := l.stream.CloseSend()
	l.sendMu.Unlock()
	if err == nil {
		t := time.NewTimer(500 * time.Millisecond)
		defer t.Stop()
		select {
		case <-l.gone:
		case <-t.C:
		}
	}
	l.cancel()
}
