package namecall

import (
	"sync"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// IDs numbers the calls of a session and knows up to where all are answered. It
// is safe for concurrent use.
type IDs struct {
	session []byte

	mu   sync.Mutex
	next uint64              // the last number given
	low  uint64              // all up to this one are answered
	done map[uint64]struct{} // those above low that are
	kept map[uint64]struct{} // see Keep
}

// NewIDs returns the ids of a session's calls.
func NewIDs(session []byte) *IDs {
	return &IDs{session: session, done: make(map[uint64]struct{}), kept: make(map[uint64]struct{})}
}

// Next returns the id of a new call. Retire has to follow, whatever comes of it.
func (c *IDs) Next() *pb.CallId {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return &pb.CallId{Session: c.session, Seq: c.next, Acked: c.low}
}

// acknowledge has a call that is sent again say up to where all are answered now:
// by what it said first, the namenode could keep too many results for ever.
func (c *IDs) acknowledge(req any) {
	r, ok := req.(interface{ GetCall() *pb.CallId })
	if !ok || r.GetCall() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.GetCall().Acked = c.low
}

// Keep makes the next Retire of an id do nothing: somebody else asks for the call's
// result, and retires it.
func (c *IDs) Keep(id *pb.CallId) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[id.Seq] = struct{}{}
}

// Retire tells that nobody will ask for the call's result any more.
func (c *IDs) Retire(id *pb.CallId) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, kept := c.kept[id.Seq]; kept {
		delete(c.kept, id.Seq)
		return
	}
	if id.Seq != c.low+1 {
		c.done[id.Seq] = struct{}{}
		return
	}
	c.low++
	for {
		if _, ok := c.done[c.low+1]; !ok {
			return
		}
		delete(c.done, c.low+1)
		c.low++
	}
}

// Under is how many ids are in use, or kept behind one that is.
func (c *IDs) Under() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next - c.low
}
