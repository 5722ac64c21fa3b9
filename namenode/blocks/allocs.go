package blocks

import (
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const (
	// maxOutstanding is how many keys a session may have that are neither
	// committed nor given up: 2 GiB of full blocks, which it has in its memory.
	maxOutstanding = 256
	// giveUpAfter is the age at which a session's oldest key makes room for a
	// new one: a writer that puts a block again does so under a new key, and
	// must not be stopped for a URL's life by those of its failures.
	giveUpAfter = time.Minute
)

// allocTable knows the block keys minted in this reign that are neither
// committed nor given up. Minting writes no record: a key carries the reign's
// term and counts from the reign's random base, so none is minted twice (ADR
// 0004). The table is the truth about which keys of this term may still be
// committed.
type allocTable struct {
	mu       sync.Mutex
	term     uint64
	base     uint64 // the reign's numbers are above it
	next     uint64 // the last number minted
	over     uint64 // all keys up to this one are forgotten
	live     map[blockstore.Key]alloc
	sessions map[namespace.SessionID]*outstanding
}

type alloc struct {
	session namespace.SessionID // zero: the namenode's own, not counted
	inode   namespace.InodeID
	epoch   uint64
	stored  int64
	crc     uint32
	expires time.Duration // of its URL, by the clock's Mono; grows with the key
}

// outstanding are the keys of one session.
type outstanding struct {
	live int
	keys []blockstore.Key // the oldest first; some may be forgotten already
}

func newAllocTable() *allocTable {
	return &allocTable{live: map[blockstore.Key]alloc{}, sessions: map[namespace.SessionID]*outstanding{}}
}

// admit reports whether a session may have n keys more. Those of its keys whose
// URLs end before old are given up for that, the oldest first.
func (t *allocTable) admit(session namespace.SessionID, n int, old time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.sessions[session]
	if o == nil {
		return true
	}
	for len(o.keys) > 0 && o.live+n > maxOutstanding {
		a, ok := t.live[o.keys[0]]
		if ok && a.expires >= old {
			return false
		}
		t.forget(o.keys[0])
		o.keys = o.keys[1:]
	}
	return true
}

// begin begins a reign, whose numbers are above base.
func (t *allocTable) begin(term, base uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term, t.base, t.next, t.over = term, base, base, base
}

// minted reports whether a key is one of this reign's.
func (t *allocTable) minted(k blockstore.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.Term == t.term && k.Seq > t.base && k.Seq <= t.next
}

// mint makes a new key.
func (t *allocTable) mint(a alloc) blockstore.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	k := blockstore.Key{Term: t.term, Seq: t.next}
	t.live[k] = a
	if a.session == (namespace.SessionID{}) {
		return k
	}
	o := t.sessions[a.session]
	if o == nil {
		o = &outstanding{}
		t.sessions[a.session] = o
	}
	if len(o.keys) >= 2*maxOutstanding && len(o.keys) >= 2*o.live {
		keep := make([]blockstore.Key, 0, o.live+1)
		for _, k := range o.keys {
			if _, ok := t.live[k]; ok {
				keep = append(keep, k)
			}
		}
		o.keys = keep
	}
	o.keys = append(o.keys, k)
	o.live++
	return k
}

func (t *allocTable) get(k blockstore.Key) (alloc, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.live[k]
	return a, ok
}

// drop forgets a key: it is committed, or may never be.
func (t *allocTable) drop(k blockstore.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(k)
}

// forget is drop under the lock.
func (t *allocTable) forget(k blockstore.Key) {
	a, ok := t.live[k]
	if !ok {
		return
	}
	delete(t.live, k)
	if o := t.sessions[a.session]; o != nil {
		if o.live--; o.live == 0 {
			delete(t.sessions, a.session)
		}
	}
}

// dropExpired forgets the key if its URL was over before the time given, and
// reports whether the key may not be committed any more.
func (t *allocTable) dropExpired(k blockstore.Key, before time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.live[k]
	if ok && a.expires >= before {
		return false
	}
	t.forget(k)
	return true
}

// expire forgets the keys whose URLs were over before the time given. A key
// outlives its URL by the life of one (see space.Measure), so that a block
// put at the last moment can be committed; so the table is bounded by what is
// handed out within two.
func (t *allocTable) expire(before time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.over < t.next {
		k := blockstore.Key{Term: t.term, Seq: t.over + 1}
		if a, ok := t.live[k]; ok && a.expires >= before {
			return
		}
		t.forget(k)
		t.over++
	}
}

func (t *allocTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live)
}
