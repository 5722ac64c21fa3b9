package readlease

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	shardBits = 6
	// withdrawn is set in a holding's place while its revocation is
	// unacknowledged.
	withdrawn = 1 << 31
)

// holdings is what a session holds since it last dropped everything. The list
// belongs to the session's lock; after the drop (dead) to whoever sweeps it.
type holdings struct {
	s    *session
	slot uint32
	dead atomic.Bool
	list []*entry
}

// holding is one session's hold of a key.
type holding struct {
	slot uint32
	at   uint32 // its place in the list, and withdrawn
}

// entry is a key that is held or marked. All of it but the key and the shard
// belongs to the shard's lock. It is in the shard's map as long as it is either.
type entry struct {
	key     Key
	holders []holding // ordered by slot
	marks   int32     // changes under way
	shard   uint8
}

// find returns where the slot is, or would be put.
func (e *entry) find(slot uint32) (int, bool) {
	lo, hi := 0, len(e.holders)
	for lo < hi {
		mid := (lo + hi) / 2
		if e.holders[mid].slot < slot {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(e.holders) && e.holders[lo].slot == slot
}

// kindSets is how many sets a shard's entries are in, by their kinds: those of a rare kind are
// found without looking at all others.
const kindSets = 4

type shard struct {
	mu      sync.Mutex
	entries [kindSets]map[Key]*entry
	_       [24]byte // to the next cache line
}

func (s *shard) of(kind uint8) map[Key]*entry { return s.entries[kind%kindSets] }

// keyTable knows who holds which key, and which keys are marked.
type keyTable struct {
	seed   maphash.Seed
	total  atomic.Int64 // holdings
	shards [1 << shardBits]shard
}

func (k *keyTable) init() {
	k.seed = maphash.MakeSeed()
	for i := range k.shards {
		for set := range k.shards[i].entries {
			k.shards[i].entries[set] = make(map[Key]*entry)
		}
	}
}

func (k *keyTable) shardOf(key Key) uint8 {
	h := key.Inode<<8 + uint64(key.Kind)
	if key.Name != "" {
		h ^= maphash.String(k.seed, key.Name)
	}
	h *= 0x9E3779B97F4A7C15
	return uint8(h >> (64 - shardBits))
}

// get returns the key's entry, a new one if there is none. The shard is locked.
func (k *keyTable) get(key Key, at uint8) *entry {
	sh := &k.shards[at]
	e := sh.of(key.Kind)[key]
	if e == nil {
		key.Name = strings.Clone(key.Name) // it may be a piece of a whole request
		e = &entry{key: key, shard: at}
		sh.of(key.Kind)[key] = e
	}
	return e
}

// tidy takes the entry out of the map if nothing needs it. The shard is locked.
func (k *keyTable) tidy(e *entry) {
	if len(e.holders) == 0 && e.marks == 0 {
		delete(k.shards[e.shard].of(e.key.Kind), e.key)
	}
}

// look tells whether h holds the key, and whether it must not be granted: it is
// marked, or its withdrawal from h is unacknowledged.
func (k *keyTable) look(key Key, h *holdings) (held, blocked bool) {
	sh := &k.shards[k.shardOf(key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.of(key.Kind)[key]
	if e == nil {
		return false, false
	}
	i, held := e.find(h.slot)
	return held, e.marks > 0 || held && e.holders[i].at&withdrawn != 0
}

// hold makes h a holder of the key; false if the key is marked. The session is
// locked.
func (k *keyTable) hold(key Key, h *holdings) bool {
	at := k.shardOf(key)
	sh := &k.shards[at]
	sh.mu.Lock()
	e := k.get(key, at)
	if e.marks > 0 {
		sh.mu.Unlock()
		return false
	}
	i, held := e.find(h.slot)
	if !held {
		e.holders = slices.Insert(e.holders, i, holding{slot: h.slot, at: uint32(len(h.list))}) //nolint:gosec // below MaxKeys
	}
	sh.mu.Unlock()
	if !held {
		h.list = append(h.list, e)
		k.total.Add(1)
	}
	return true
}

// alone tells whether nobody but h holds the key, and it is not marked. What was
// dropped and is not swept yet counts as held.
func (k *keyTable) alone(key Key, h *holdings) bool {
	sh := &k.shards[k.shardOf(key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.of(key.Kind)[key]
	if e == nil {
		return true
	}
	_, held := e.find(h.slot)
	return e.marks == 0 && (len(e.holders) == 0 || held && len(e.holders) == 1)
}

// inodes are those of a kind of keys that somebody holds. It looks at the keys of that kind only,
// and of the kinds in the same set.
func (k *keyTable) inodes(kind uint8) (list []uint64) {
	for i := range k.shards {
		sh := &k.shards[i]
		sh.mu.Lock()
		for key, e := range sh.of(kind) {
			if key.Kind == kind && len(e.holders) > 0 {
				list = append(list, key.Inode)
			}
		}
		sh.mu.Unlock()
	}
	return list
}

// take removes the slot from the entry's holders and returns its place.
func (k *keyTable) take(e *entry, slot uint32) (at uint32, held bool) {
	sh := &k.shards[e.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i, held := e.find(slot)
	if !held {
		return 0, false
	}
	at = e.holders[i].at &^ withdrawn
	e.holders = slices.Delete(e.holders, i, i+1)
	if n := len(e.holders); cap(e.holders) > 16 && n < cap(e.holders)/4 {
		e.holders = slices.Clone(e.holders)
	}
	k.tidy(e)
	k.total.Add(-1)
	return at, true
}

// release takes one key off h: its withdrawal is acknowledged. The session is
// locked.
func (k *keyTable) release(e *entry, h *holdings) {
	at, held := k.take(e, h.slot)
	if !held {
		return
	}
	last := len(h.list) - 1
	moved := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	if moved != e {
		h.list[at] = moved
		sh := &k.shards[moved.shard]
		sh.mu.Lock()
		i, _ := moved.find(h.slot)
		moved.holders[i].at = at | moved.holders[i].at&withdrawn
		sh.mu.Unlock()
	}
	if cap(h.list) > 64 && last < cap(h.list)/4 {
		h.list = slices.Clone(h.list)
	}
}

// hit is a holder found by mark.
type hit struct {
	slot uint32
	e    *entry
}

// mark makes the key uncachable and appends its holders to hits.
func (k *keyTable) mark(key Key, hits []hit) (*entry, []hit) {
	at := k.shardOf(key)
	sh := &k.shards[at]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := k.get(key, at)
	e.marks++
	for _, h := range e.holders {
		hits = append(hits, hit{h.slot, e})
	}
	return e, hits
}

func (k *keyTable) unmark(e *entry) {
	sh := &k.shards[e.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e.marks--
	k.tidy(e)
}

// withdraw notes that the key is being revoked from the slot; fresh if it was
// not before. The session is locked.
func (k *keyTable) withdraw(e *entry, slot uint32) (held, fresh bool) {
	sh := &k.shards[e.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i, held := e.find(slot)
	if !held {
		return false, false
	}
	fresh = e.holders[i].at&withdrawn == 0
	e.holders[i].at |= withdrawn
	return true, fresh
}

// giveUp takes one key off h that its session has given up, unless the session
// keeps holding it; false if its withdrawal is unacknowledged, which is waited for as
// ever. The session is locked.
func (k *keyTable) giveUp(e *entry, h *holdings, holds bool) bool {
	sh := &k.shards[e.shard]
	sh.mu.Lock()
	i, held := e.find(h.slot)
	asked := held && e.holders[i].at&withdrawn != 0
	sh.mu.Unlock()
	if asked {
		return false
	}
	if !holds {
		k.release(e, h)
	}
	return true
}
