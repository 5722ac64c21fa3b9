package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// closesAtOnce is how many calls that close drafts are under way before further
	// closes wait for the end of one.
	closesAtOnce = 2
	// slowClose is for how long such a call counts. One that takes longer may wait
	// for other sessions, and those behind it need not.
	slowClose = 20 * time.Millisecond
	// maxCloses is how many files one message closes.
	maxCloses = 64
)

// closes lets the closes of drafts that come while others are under way go to the
// namenode together, in one message. That is a first try: who does not get its
// file by it continues alone, with the same call id, so that nothing is made twice.
type closes struct {
	f    *engine
	slow time.Duration // slowClose

	mu      sync.Mutex
	waiting []*closing
	busy    int // calls under way that count
}

// closing is the close of a draft that may go with others.
type closing struct {
	d     *Draft
	req   *pb.CreateRequest
	ready chan struct{} // closed when its try is over, or it is to go alone

	sent, left bool // in a message; nobody waits for it any more. By closes.mu

	// Once ready is closed:
	made bool       // that was it
	lost bool       // whether it is made is not known
	slot *closeSlot // of the call to make alone, if that counts
}

// closeSlot is a call under way, as long as it counts.
type closeSlot struct {
	q      *closes
	t      *time.Timer
	counts bool // by closes.mu
}

// closeTogether makes the file, maybe with others. It may be over by then: ended
// says that the context is, and that x's message sees to the rest. Else the caller
// continues alone, unless x.made, and ends x.slot.
func (q *closes) closeTogether(ctx context.Context, x *closing) (ended bool) {
	q.mu.Lock()
	if len(q.waiting) == 0 && q.busy < closesAtOnce {
		x.slot = q.begin()
		q.mu.Unlock()
		return false
	}
	x.ready = make(chan struct{})
	q.waiting = append(q.waiting, x)
	q.mu.Unlock()
	select {
	case <-x.ready:
		return false
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, x); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return false // the call says why it ends
	}
	x.left = x.sent
	return x.left
}

// begin notes a call. The caller holds mu.
func (q *closes) begin() *closeSlot {
	q.busy++
	s := &closeSlot{q: q, counts: true}
	s.t = time.AfterFunc(q.slow, s.release)
	return s
}

// end is called when the call is over.
func (s *closeSlot) end() {
	if s != nil {
		s.t.Stop()
		s.release()
	}
}

// release lets others begin.
func (s *closeSlot) release() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.counts {
		s.counts = false
		s.q.busy--
		s.q.next()
	}
}

// next sends what waits, if it may. The caller holds mu.
func (q *closes) next() {
	for len(q.waiting) > 0 && q.busy < closesAtOnce {
		list, s := q.take(), q.begin()
		if len(list) == 1 {
			list[0].slot = s
			close(list[0].ready)
			continue
		}
		for _, x := range list {
			x.sent = true
		}
		if !q.f.goRun(func() { q.f.closeMany(list); q.done(list); s.end() }) {
			for _, x := range list { // the client is closed, as they will find
				x.sent = false
				close(x.ready)
			}
			s.t.Stop()
			if s.counts {
				s.counts = false
				q.busy--
			}
		}
	}
}

// take takes those that fit a message. The caller holds mu.
func (q *closes) take() []*closing {
	n, size, most := 0, 0, min(maxPiece(q.f.session.Welcome()), maxBatchBytes)
	for n < min(len(q.waiting), maxCloses) {
		x := q.waiting[n]
		size += proto.Size(x.req) + len(x.d.name) + perFile
		if n > 0 && size > most {
			break
		}
		n++
	}
	list := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return list
}

// done is called when a message was answered, or will not be.
func (q *closes) done(list []*closing) {
	var left []*closing
	q.mu.Lock()
	for _, x := range list {
		x.sent = false
		close(x.ready)
		if x.left {
			left = append(left, x)
		}
	}
	q.mu.Unlock()
	for _, x := range left {
		x.over()
	}
}

// over is called when nothing of the close can happen any more, as far as anybody
// knows.
func (x *closing) over() {
	x.d.fs.ids.End(x.req.Call)
	x.d.fs.drafts.end(x.d)
}

// closeMany makes the files of many drafts by one call, which is tried once.
func (f *engine) closeMany(list []*closing) {
	var keys []readcache.Key
	for _, x := range list {
		keys = append(keys, x.d.keys()...)
	}
	g := f.giveUp(keys...)
	if g == nil {
		return // this session would have to be asked, and each be refused for that
	}
	req := &pb.CreateManyRequest{NoWait: true, Files: make([]*pb.CreateRequest, len(list))}
	for i, x := range list {
		f.willMake(x.d.dir, x.d.name)
		x.req.GivenUp = g.wireOf(x.d.keys())
		req.Files[i] = x.req
	}
	c := namecall.Call{Op: "create", Path: list[0].d.path, Mutates: true}
	resp := new(pb.CreateManyResponse)
	ep, lost := f.nn.Active(), false
	reached, err := f.nn.Once(f.ctx, &c, ep, pb.Namenode_CreateMany_FullMethodName, req, resp)
	switch results := resp.GetResults(); {
	case err != nil:
		e, answered := namecall.Answer(err)
		lost = !answered && reached || e.Kind == fserror.Unknown || e.Kind == fserror.NotActive
		// Who is not active, and has not our stream, has not our promise either.
		c.AnyLost = lost && (e.Kind != fserror.NotActive || g.on.Node() == ep)
	case len(results) != len(list):
		err = fserror.New(fserror.Internal, c.Op, "", "the namenode answered for %d of %d files", len(results), len(list))
		lost, c.AnyLost = true, true
	default:
		for i, r := range results {
			x := list[i]
			if x.made = r.GetError() == nil; x.made {
				g.keepStat(x.d.ref(), r.GetAttr(), r.GetKeys())
			} else if wire.FromDetail(r.GetError()).Kind == fserror.Unknown {
				x.lost = true
			}
		}
		for _, d := range resp.GetDirectories() {
			g.keepStat(door.Inode(d.GetAttr().GetInode()), d.GetAttr(), d.GetKeys())
		}
	}
	if err != nil {
		for _, x := range list {
			x.lost = lost
		}
	}
	g.end(&c, err)
}
