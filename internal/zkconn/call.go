package zkconn

import (
	"context"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// Call is a multi under way.
type Call struct {
	ops  []any
	done chan struct{}
	res  []zk.MultiResponse
	err  error
}

// Done is closed when the outcome is there, which may be that it is not known.
func (c *Call) Done() <-chan struct{} { return c.done }

// Result is the outcome, after Done. On an error the results, if any, say which
// operation failed: see FailedOp.
func (c *Call) Result() ([]zk.MultiResponse, error) { return c.res, c.err }

// LostCall is a call that ended with ErrLost before it was sent: what Start would
// return if there were no session to start it on.
func LostCall() *Call {
	c := &Call{done: make(chan struct{}), err: ErrLost}
	close(c.done)
	return c
}

// callQueue hands multis to the client one after the other.
type callQueue struct {
	s *Session

	mu      sync.Mutex
	waiting []*Call
	feeding bool
	onWire  chan struct{} // closed when the multi that was handed over leaves
}

// Start sends a multi behind all those started before, and does not wait. The
// operations, and the bytes that they refer to, must not be changed before Done,
// and never if the outcome is not known. While there is no connection, multis
// wait for it or for the end of the session.
func (s *Session) Start(ops ...any) *Call {
	c := &Call{ops: ops, done: make(chan struct{})}
	q := &s.calls
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	if !q.feeding {
		q.feeding = true
		go q.feed()
	}
	return c
}

func (q *callQueue) feed() {
	for {
		over := q.s.await(q.s.life)
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.feeding, q.waiting = false, nil
			q.mu.Unlock()
			return
		}
		c := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if over != nil {
			q.mu.Unlock()
			c.err = q.s.explain(q.s.Err())
			close(c.done)
			continue
		}
		passed := make(chan struct{})
		q.onWire = passed
		q.mu.Unlock()
		go func() {
			res, err := q.s.conn.Multi(c.ops...)
			c.res, c.err = res, q.s.explain(err)
			close(c.done)
		}()
		select {
		case <-passed:
		case <-c.done:
		}
	}
}

// passed is called when a multi leaves.
func (q *callQueue) passed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.onWire != nil {
		close(q.onWire)
		q.onWire = nil
	}
}

// giveUp takes a multi that still waits out of the queue.
func (q *callQueue) giveUp(c *Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// Multi is Start and the wait for the outcome.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	c := s.Start(ops...)
	select {
	case <-c.done:
		return c.res, c.err
	case <-ctx.Done():
		s.calls.giveUp(c)
		return nil, context.Cause(ctx)
	}
}

// FailedOp is the index of the operation because of which a multi failed, or -1.
func FailedOp(res []zk.MultiResponse) int {
	for i, r := range res {
		if r.Error != nil {
			return i
		}
	}
	return -1
}
