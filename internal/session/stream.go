package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/release"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Stream is a session's stream that is up: Hello was answered by Welcome.
type Stream struct {
	node   *namecall.Node
	number uint64
	stream pb.Namenode_SessionClient
	cancel context.CancelFunc
	gone   chan struct{} // closed when the stream is

	askAgain atomic.Bool // it was ended for that

	sendMu sync.Mutex // gRPC wants one sender at a time

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan renewal
}

// Number counts the session's streams: what is promised on one is named by it.
func (st *Stream) Number() uint64 { return st.number }

// Node is the namenode that the stream leads to.
func (st *Stream) Node() *namecall.Node { return st.node }

// Gone is closed when the stream has ended.
func (st *Stream) Gone() <-chan struct{} { return st.gone }

// Break ends the stream; the session opens another.
func (st *Stream) Break() { st.cancel() }

// renewal is the answer to one: either of the two is set.
type renewal struct {
	resp *pb.RenewLeaseResponse
	err  error
}

// holdStream holds a stream open for as long as the session lives.
func (s *Session) holdStream() {
	number := uint64(0)
	w := s.nn.Endless("connect", "") // how long there has been no stream
	var names namecall.Lookups
	for n := 0; s.ctx.Err() == nil; n++ {
		ep := s.nn.Active()
		number++
		welcomed, err := s.runStream(ep, number)
		if s.ctx.Err() != nil || s.left.Load() {
			return
		}
		if welcomed {
			n, w = 0, s.nn.Endless("connect", "")
		}
		if errors.Is(err, errAskAgain) {
			continue
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
		case s.opened.Load() == 0: // Open waits
			final = names.Failed(ep.Address, e.Message, s.cfg.Addresses)
		}
		if final != nil {
			select {
			case s.refused <- final: // Open may be waiting for it
			default:
			}
		}
		if answered {
			s.told.Store(e)
		}
		s.without.Store(&noStream{e, answered})
		followed := s.nn.MoveOn(ep, e.Active)
		s.cfg.Logger.Debug("leasefs: no session", "namenode", ep.Address, "err", err)
		if followed && n < 2 {
			continue
		}
		s.nn.Sleep(s.ctx, w.Seek(n))
	}
}

// noStream is why there is no stream.
type noStream struct {
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

// runStream opens the session's stream of that number and serves it until it
// breaks.
func (s *Session) runStream(ep *namecall.Node, number uint64) (welcomed bool, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	if s.cfg.Cache != nil {
		s.cfg.Cache.Opening()
		defer s.cfg.Cache.Broken()
	}
	impatient := time.AfterFunc(s.nn.AttemptTime(), cancel)
	defer impatient.Stop()
	stream, err := pb.NewNamenodeClient(ep.Conn()).Session(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: s.cfg.Caller, Cache: s.cfg.Cache != nil, Stream: number, Release: release.Name()}}}); err != nil {
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
		return false, fserror.New(fserror.Unsupported, "connect", "", "%s answered Hello with something else: no namenode of this version of leasefs", ep.Address)
	}
	if !impatient.Stop() {
		return false, fserror.New(fserror.Unavailable, "connect", "", "%s was too slow", ep.Address)
	}
	if old := s.welcome.Load(); old != nil && old.GetNamespaceId() != w.GetNamespaceId() {
		return false, fserror.New(fserror.Unavailable, "connect", "", "%s serves namespace %s, this session belongs to %s", ep.Address, w.GetNamespaceId(), old.GetNamespaceId())
	}
	st := &Stream{node: ep, number: number, stream: stream, cancel: cancel, gone: make(chan struct{}), waiting: make(map[uint64]chan renewal)}
	defer close(st.gone)
	if s.cfg.Cache != nil {
		s.cfg.Cache.Opened(st, w)
		if w.GetCacheFull() {
			s.streams.Go(func() { s.askAgain(st) })
		}
	}
	s.greet(w)
	s.stream.Store(st)
	defer s.stream.CompareAndSwap(st, nil)
	for {
		m, err := stream.Recv()
		if err != nil {
			if st.askAgain.Load() {
				err = errAskAgain
			}
			return true, err
		}
		switch {
		case s.cfg.Cache != nil && s.cfg.Cache.Take(m):
		case m.GetRenewed() != nil:
			if r := m.GetRenewed(); !st.deliver(r) {
				s.lostFiles(r) // unasked: something was lost just now
			}
		case m.GetError() != nil:
			e := wire.FromDetail(m.GetError())
			if e.Kind == fserror.NotActive || fatal(e.Kind) || !st.refuse(e) {
				return true, e
			}
		case m.GetWelcome() != nil:
			s.greet(m.GetWelcome())
		}
	}
}

// uncachedFor is how long a stream lives at least on which nothing may be cached, since too
// many others cache: then the session asks again.
const uncachedFor = 5 * time.Minute

var errAskAgain = errors.New("the session asks whether it may cache now")

// askAgain ends such a stream when no file is open, so that the session opens another; not
// all sessions at once.
func (s *Session) askAgain(st *Stream) {
	t := time.NewTicker(uncachedFor + rand.N(uncachedFor)) //nolint:gosec // G404: jitter is no secret
	defer t.Stop()
	for {
		select {
		case <-st.gone:
			return
		case <-t.C:
		}
		if s.idle() {
			st.askAgain.Store(true)
			st.Break()
			return
		}
	}
}

// greet takes a Welcome in. A namenode that welcomes may be another than
// before, so it gets the whole set of open files at once.
func (s *Session) greet(w *pb.Welcome) {
	s.welcome.Store(w)
	s.mu.Lock()
	s.resend = true
	first := s.opened.Add(1) == 1
	open := len(s.files)
	if open == 0 {
		s.setLimits(w.GetSoftLimitMs(), w.GetHardLimitMs())
	} // else with the renewal: lower limits must not end who could not yet renew
	s.mu.Unlock()
	if first {
		close(s.ready)
		return
	}
	if open > 0 {
		s.RenewNow()
	}
}

// deliver hands an answer to who waits for it.
func (st *Stream) deliver(r *pb.RenewLeaseResponse) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	ch, ok := st.waiting[r.GetSeq()]
	if ok {
		delete(st.waiting, r.GetSeq())
		ch <- renewal{resp: r} // has room for one
	}
	return ok
}

// refuse hands an error to who waits; it does not say for which renewal it is,
// but there is one at a time.
func (st *Stream) refuse(err error) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	told := false
	for seq, ch := range st.waiting {
		delete(st.waiting, seq)
		ch <- renewal{err: err}
		told = true
	}
	return told
}

// exchange sends one renewal over the stream and waits for its answer.
func (st *Stream) exchange(ctx context.Context, req *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	ch := make(chan renewal, 1)
	st.mu.Lock()
	st.seq++
	req.Seq = st.seq
	st.waiting[req.Seq] = ch
	st.mu.Unlock()
	defer func() {
		st.mu.Lock()
		delete(st.waiting, req.Seq)
		st.mu.Unlock()
	}()
	// A stream that takes nothing any more would hold Send for good.
	stuck := context.AfterFunc(ctx, st.cancel)
	err := st.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Renew{Renew: req}})
	if !stuck() || err != nil {
		return nil, fserror.New(fserror.Unavailable, "renew", "", "the session's stream broke")
	}
	select {
	case r := <-ch:
		return r.resp, r.err
	case <-st.gone:
		return nil, fserror.New(fserror.Unavailable, "renew", "", "the session's stream broke")
	case <-ctx.Done():
		// It takes messages and does not answer: try another stream.
		st.cancel()
		return nil, fserror.Ended(ctx, "renew", "")
	}
}

// Send sends a message, one sender at a time.
func (st *Stream) Send(m *pb.SessionRequest) error {
	st.sendMu.Lock()
	defer st.sendMu.Unlock()
	return st.stream.Send(m)
}

// sayGoodbye tells the namenode that the session is over and keeps nothing, and waits a
// moment for it to take notice.
func (st *Stream) sayGoodbye() {
	st.sendMu.Lock()
	err := st.stream.CloseSend()
	st.sendMu.Unlock()
	if err == nil {
		t := time.NewTimer(500 * time.Millisecond)
		defer t.Stop()
		select {
		case <-st.gone:
		case <-t.C:
		}
	}
	st.cancel()
}
