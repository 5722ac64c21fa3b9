package ipc

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Limits of the answers that are kept.
const (
	answerTime = 10 * time.Minute // as long as HDFS keeps them
	maxAnswers = 128 << 20        // bytes of memory that they take, about
	overhead   = 400              // bytes that each takes beside itself
)

// callKey names a call of a client, however often it is sent.
type callKey struct {
	user, client string
	id           int32
}

// answers keeps those of calls that must not happen twice. Only successes are kept: what
// failed may be tried again.
type answers struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[callKey]*answer
	users map[string]*list.List // of *answer, the oldest first; those under way are not in it
	order list.List             // of all users, the oldest first
	size  int64                 // of all, in bytes
	sizes map[string]int64      // of a user's
}

type answer struct {
	key    callKey
	done   chan struct{} // closed when body is there, or the call has failed
	body   []byte        // nil: it failed
	since  time.Time
	mine   *list.Element // in users
	ofAll  *list.Element // in order
	failed bool
}

func newAnswers(now func() time.Time) *answers {
	return &answers{now: now, byKey: map[callKey]*answer{}, users: map[string]*list.List{}, sizes: map[string]int64{}}
}

// bytes are about what an answer takes.
func (a *answer) bytes() int64 {
	return int64(len(a.body) + len(a.key.user) + len(a.key.client) + overhead)
}

// claim returns the answer to a call that was made before, or that the caller has to make
// it: then it has to call record.
func (as *answers) claim(ctx context.Context, key callKey) (body []byte, a *answer, err error) {
	for {
		as.mu.Lock()
		as.expire()
		a := as.byKey[key]
		if a == nil {
			a = &answer{key: key, done: make(chan struct{})}
			as.byKey[key] = a
			as.mu.Unlock()
			return nil, a, nil
		}
		as.mu.Unlock()
		select {
		case <-a.done:
			if !a.failed {
				return a.body, nil, nil
			}
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// record notes the answer of a call, nil if it failed, and lets those go that are too many.
func (as *answers) record(a *answer, body []byte) {
	as.mu.Lock()
	defer as.mu.Unlock()
	defer close(a.done)
	if body == nil {
		a.failed = true
		delete(as.byKey, a.key)
		return
	}
	a.body, a.since = body, as.now()
	mine := as.users[a.key.user]
	if mine == nil {
		mine = list.New()
		as.users[a.key.user] = mine
	}
	a.mine, a.ofAll = mine.PushBack(a), as.order.PushBack(a)
	as.size += a.bytes()
	as.sizes[a.key.user] += a.bytes()
	for as.size > maxAnswers { // then who has more than his share gives, else whose is the oldest
		oldest := as.order.Front()
		if as.sizes[a.key.user] > maxAnswers/int64(len(as.users)) {
			oldest = mine.Front()
		}
		as.forget(oldest.Value.(*answer)) //nolint:errcheck // no other is in it
	}
}

// expire forgets what is old. as.mu is held.
func (as *answers) expire() {
	for e := as.order.Front(); e != nil; e = as.order.Front() {
		a := e.Value.(*answer) //nolint:errcheck // no other is in it
		if as.now().Sub(a.since) < answerTime {
			return
		}
		as.forget(a)
	}
}

func (as *answers) forget(a *answer) {
	delete(as.byKey, a.key)
	as.order.Remove(a.ofAll)
	as.size -= a.bytes()
	as.sizes[a.key.user] -= a.bytes()
	mine := as.users[a.key.user]
	if mine.Remove(a.mine); mine.Len() == 0 {
		delete(as.users, a.key.user)
		delete(as.sizes, a.key.user)
	}
}
