package namenode

import (
	"sync"
	"time"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// allocTable knows the block keys minted in this reign that are neither
// committed nor given up. Minting writes no record: a key carries the reign's
// term, so none is minted twice (ADR 0004). The table is the truth about which
// keys of this term may still be committed.
type allocTable struct {
	mu   sync.Mutex
	next uint64
	live map[blockstore.Key]alloc
}

type alloc struct {
	inode   namespace.InodeID
	epoch   uint64
	stored  int64
	crc     uint32
	expires time.Duration // of its URL, by the clock's Mono
}

func newAllocTable() *allocTable { return &allocTable{live: map[blockstore.Key]alloc{}} }

// mint makes a new key.
func (t *allocTable) mint(term uint64, a alloc) blockstore.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	k := blockstore.Key{Term: term, Seq: t.next}
	t.live[k] = a
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
	delete(t.live, k)
}

// dropExpired forgets the key if its URL is over since before, and reports
// whether the key may not be committed any more.
func (t *allocTable) dropExpired(k blockstore.Key, before time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.live[k]
	if ok && a.expires >= before {
		return false
	}
	delete(t.live, k)
	return true
}

// expire forgets all keys whose URLs are over since before, so that the table
// is bounded by what is handed out within one URL life.
func (t *allocTable) expire(before time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, a := range t.live {
		if a.expires < before {
			delete(t.live, k)
		}
	}
}

func (t *allocTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live)
}
