package namecall

import (
	"context"
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
	// moved is closed when low has grown; nil: nobody waits.
	moved chan struct{}
}

// window is how far BeginMany goes ahead of the oldest call that is under way:
// the namenode keeps the results from there on, and no more than 16,384.
const window = 12_000

// NewIDs returns the ids of a session's calls.
func NewIDs(session []byte) *IDs {
	return &IDs{session: session, done: make(map[uint64]struct{})}
}

// Begin returns the id of a new call. End has to follow, whatever comes of it.
func (c *IDs) Begin() *pb.CallId {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nextLocked()
}

func (c *IDs) nextLocked() *pb.CallId {
	c.next++
	return &pb.CallId{Session: c.session, Seq: c.next, Acked: c.low}
}

// BeginMany returns the ids of n new calls. It waits while too many results
// would be kept for one call that takes long. Who has begun some must not wait
// for more.
func (c *IDs) BeginMany(ctx context.Context, n int) ([]*pb.CallId, error) {
	for {
		c.mu.Lock()
		if c.next == c.low || c.next-c.low+uint64(n) <= window { //nolint:gosec // a length
			ids := make([]*pb.CallId, n)
			for i := range ids {
				ids[i] = c.nextLocked()
			}
			c.mu.Unlock()
			return ids, nil
		}
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// End tells that nobody will ask for the call's result any more.
func (c *IDs) End(id *pb.CallId) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id.Seq != c.low+1 {
		c.done[id.Seq] = struct{}{}
		return
	}
	c.low++
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
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
