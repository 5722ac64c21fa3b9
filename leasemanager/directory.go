package leasemanager

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const shards = 256

// directory is the map from sessions to their leases, in shards; another one is
// the map from the ids of granted leases. It is what a
// renewal has to go through, and at a million sessions it is memory that the
// caches do not have: so a look-up touches one line of a table (probed in a
// row) and one of the lease. Go's map touches about twice as many.
//
// The hash is seeded: sessions are chosen by clients.
type directory struct {
	seed   maphash.Seed
	shards [shards]shard
}

// shard is a part of the directory. Its lock is taken for a look-up or a change
// only. Changes are made with index.mu held too.
type shard struct {
	mu       sync.RWMutex
	slots    []slot // a power of two; at most half are in use
	used     int
	renewals atomic.Uint64
	_        [64]byte // a cache line between the locks of two shards
}

// slot is in use if it has a lease. The lease is at the first free slot from
// hash on.
type slot struct {
	hash uint64
	l    *lease
}

const minSlots = 8

func (d *directory) hash(id SessionID) (*shard, uint64) {
	h := maphash.Bytes(d.seed, id[:])
	return &d.shards[h>>56], h
}

// find returns the session's lease, or nil.
func (sh *shard) find(id *SessionID, hash uint64) (found *lease) {
	sh.mu.RLock()
	if mask := uint64(len(sh.slots) - 1); len(sh.slots) > 0 {
		for i := hash & mask; sh.slots[i].l != nil; i = (i + 1) & mask {
			if sl := &sh.slots[i]; sl.hash == hash && sl.l.session == *id {
				found = sl.l
				break
			}
		}
	}
	sh.mu.RUnlock()
	return found
}

// get returns the session's lease, or nil.
func (d *directory) get(id SessionID) *lease {
	sh, h := d.hash(id)
	return sh.find(&id, h)
}

// setCurrent makes l the lease of its session.
func (d *directory) setCurrent(l *lease) {
	sh, h := d.hash(l.session)
	sh.insert(slot{h, l})
}

// remove forgets the session.
func (d *directory) remove(id SessionID) {
	sh, h := d.hash(id)
	sh.remove(&id, h)
}

func (sh *shard) insert(n slot) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if 2*(sh.used+1) > len(sh.slots) {
		sh.resize(max(2*len(sh.slots), minSlots))
	}
	sh.put(n)
}

func (sh *shard) put(n slot) {
	mask := uint64(len(sh.slots) - 1)
	for i := n.hash & mask; ; i = (i + 1) & mask {
		switch old := &sh.slots[i]; {
		case old.l == nil:
			sh.used++
			*old = n
			return
		case old.hash == n.hash && old.l.session == n.l.session:
			*old = n
			return
		}
	}
}

func (sh *shard) resize(n int) {
	old := sh.slots
	sh.slots, sh.used = make([]slot, n), 0
	for _, sl := range old {
		if sl.l != nil {
			sh.put(sl)
		}
	}
}

func (sh *shard) remove(id *SessionID, hash uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.slots) == 0 {
		return
	}
	mask := uint64(len(sh.slots) - 1)
	i := hash & mask
	for sh.slots[i].hash != hash || sh.slots[i].l == nil || sh.slots[i].l.session != *id {
		if sh.slots[i].l == nil {
			return
		}
		i = (i + 1) & mask
	}
	sh.used--
	// Close the gap, so that no look-up ends at it too early: a later entry of
	// the row moves into it, unless that would be before its own place.
	for j := (i + 1) & mask; sh.slots[j].l != nil; j = (j + 1) & mask {
		if home := sh.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			sh.slots[i] = sh.slots[j]
			i = j
		}
	}
	sh.slots[i] = slot{}
	if n := len(sh.slots); n > minSlots && 8*sh.used < n {
		sh.resize(n / 2)
	}
}

// all calls f for each session's lease. index.mu must be held; f must not
// change the directory.
func (d *directory) all(f func(l *lease)) {
	for i := range d.shards {
		for _, sl := range d.shards[i].slots {
			if sl.l != nil {
				f(sl.l)
			}
		}
	}
}

// clear forgets all. index.mu must be held.
func (d *directory) clear() {
	for i := range d.shards {
		sh := &d.shards[i]
		sh.mu.Lock()
		sh.slots, sh.used = nil, 0
		sh.mu.Unlock()
	}
}

// renewals is how many calls of Renew there were.
func (d *directory) renewals() (n uint64) {
	for i := range d.shards {
		n += d.shards[i].renewals.Load()
	}
	return n
}
