package client

import (
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// cacheStream is the read cache's share in the session's streams.
type cacheStream struct {
	f   *engine
	now *promise // of the last stream
}

// promise is what the namenode promises to the read cache on one stream.
type promise struct {
	stream *session.Stream
	terms  chan bool // has an element when a renewal was answered: granted?

	mu     sync.Mutex
	seq    uint64 // of the last renewal
	sent   clock.Reading
	ackSeq uint64 // what is to be acknowledged
	acking bool
	toTell []Revocation // that Config.OnRevoke has not been told yet
}

func (c *cacheStream) Opening() {
	c.f.cache.Disconnected()
	c.f.revoked(Revocation{All: true})
}

func (c *cacheStream) Broken() { c.f.cache.Disconnected() }

func (c *cacheStream) Opened(st *session.Stream, w *pb.Welcome) {
	c.now = &promise{stream: st, terms: make(chan bool, 1)}
	if term := ms(w.GetCacheTermMs()); term > 0 {
		c.f.cache.Connected()
		c.f.delegations.ForgetNumbers() // the namenode may have forgotten the session meanwhile
		p := c.now
		c.f.goRun(func() { p.renew(c.f.cache, term) })
	}
}

func (c *cacheStream) Take(m *pb.SessionResponse) bool {
	p := c.now
	switch {
	case m.GetCacheTerm() != nil:
		t := m.GetCacheTerm()
		p.mu.Lock()
		sent, current := p.sent, t.GetSeq() == p.seq
		p.mu.Unlock()
		if current {
			c.f.cache.Extend(sent, ms(t.GetTermMs()))
			select {
			case p.terms <- t.GetTermMs() > 0:
			default:
			}
		}
	case m.GetCacheRevocation() != nil:
		r := m.GetCacheRevocation()
		keys := cacheKeys(r.GetKeys())
		c.f.cache.Revoke(keys, r.GetAll())
		// Sending can wait for a slow network; the stream is read on meanwhile.
		if p.mustAck(r.GetSeq(), revocationOf(keys, r.GetAll())) && !c.f.goRun(func() { p.sendAcks(c.f.revoked, c.f.begunIn) }) {
			p.stream.Break() // the client is closed
		}
	default:
		return false
	}
	return true
}

// renew renews the term of the read cache while the stream is up.
func (p *promise) renew(cache *readCache, term time.Duration) {
	period := max(term/3, 5*time.Millisecond)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-p.stream.Gone():
			return
		case <-t.C:
		}
		seq := p.noteSent(cache.Now())
		if p.stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: seq}}}) != nil {
			return
		}
		select {
		case <-p.stream.Gone():
			return
		case granted := <-p.terms:
			if granted {
				t.Reset(period)
			} else {
				t.Reset(min(period, 100*time.Millisecond)) // a revocation is under way
			}
		}
	}
}

// noteSent notes when a renewal of the cache's term was sent.
func (p *promise) noteSent(now clock.Reading) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	p.sent = now
	return p.seq
}

// mustAck notes that revocations up to seq are to be acknowledged; true if
// nobody is doing so yet.
func (p *promise) mustAck(seq uint64, r Revocation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ackSeq = max(p.ackSeq, seq)
	p.toTell = append(p.toTell, r)
	if p.acking {
		return false
	}
	p.acking = true
	return true
}

// sendAcks acknowledges until all that came is: one message for many.
// tell is called with each revocation before it is acknowledged; begun is what
// drafts the acknowledgement names for it.
func (p *promise) sendAcks(tell func(Revocation), begun func(Revocation) []*pb.Draft) {
	for sent := uint64(0); ; {
		p.mu.Lock()
		if p.ackSeq == sent {
			p.acking = false
			p.mu.Unlock()
			return
		}
		sent = p.ackSeq
		untold := p.toTell
		p.toTell = nil
		p.mu.Unlock()
		ack := &pb.CacheAck{Seq: sent}
		for _, r := range untold {
			tell(r)
			ack.Drafts = append(ack.Drafts, begun(r)...)
		}
		if p.stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: ack}}) != nil {
			return // the stream is broken: whoever reads it finds out
		}
	}
}
