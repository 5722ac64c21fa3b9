package readcache

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// Key is something that can change and that an answer depends on. What the kinds
// are is said by the wire contract.
type Key struct {
	Kind  uint8
	Inode uint64
	Name  string // a name in the directory Inode; else empty
}

// The defaults of Config, and what an entry counts for beyond its value.
const (
	DefaultMaxEntries = 20_000
	DefaultMaxBytes   = 64 << 20

	entryBytes = 128 // the entry itself and its place in the map
	depBytes   = 40  // each key it depends on
)

// remembered is how many revoked keys are remembered for replies under way.
const remembered = 8192

// Config is what a Cache is made of. Clock is required.
type Config[K comparable, V any] struct {
	Clock clock.Clock
	// MaxEntries and MaxBytes limit what is kept. Zero means the default, less
	// than zero that nothing is kept.
	MaxEntries int
	MaxBytes   int64
	// Size returns what a request and its answer take, in bytes, the same each
	// time. It must not call the Cache. 128 bytes an entry and 40 a dependency
	// are added. Nil means that only these count.
	Size func(K, V) int64
	// Leads tells of an answer to which other request it leads, whose answer is wanted
	// in its place, as of the same moment. Nil: none does.
	Leads func(V) (K, bool)
	// Outlives tells of a request whether its answer stands over changes of one's
	// own: whoever makes one brings it up to date between GiveUp and the call. Nil:
	// none does.
	Outlives func(K) bool
}

// Ticket is a moment before a read was sent. The zero Ticket stores nothing.
type Ticket struct{ life, count uint64 }

// Cache holds answers of type V to requests of type K. See the package comment.
type Cache[K comparable, V any] struct {
	cfg Config[K, V]

	mu        sync.RWMutex
	entries   map[K]*entry[K, V]
	deps      map[Key]*dependents[K, V]
	ring      entry[K, V] // the list's root: next is the latest, prev the oldest
	bytes     int64
	connected bool
	closed    bool
	since     clock.Reading // the connection's beginning
	sent      clock.Reading // of the renewal that the term comes from
	term      time.Duration // zero: none
	life      uint64        // raised when all is dropped; never zero
	revoked   history
	given     map[Key]int // changes of one's own under way, by what was given up for them

	hits, misses, expired atomic.Uint64
	n                     Stats // of the rest; by mu
}

// Stats are figures of a Cache. All but the first two only grow.
type Stats struct {
	Entries int
	Bytes   int64

	Hits        uint64
	Misses      uint64 // all of them
	Expired     uint64 // of the misses: it is there, but no term runs
	Stored      uint64
	Overtaken   uint64 // not stored: revoked, or all dropped, since the read began
	Evictions   uint64 // to make room
	Revocations uint64 // messages
	Drops       uint64 // entries dropped, but for evictions
	DropAlls    uint64
}

// New returns an empty cache, not connected.
func New[K comparable, V any](cfg Config[K, V]) *Cache[K, V] {
	if cfg.Clock == nil {
		panic("readcache: no clock")
	}
	cfg.MaxEntries = cmp.Or(cfg.MaxEntries, DefaultMaxEntries)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	c := &Cache[K, V]{cfg: cfg, life: 1, entries: make(map[K]*entry[K, V]), deps: make(map[Key]*dependents[K, V]), given: make(map[Key]int)}
	c.ring.next, c.ring.prev = &c.ring, &c.ring
	c.revoked.init()
	return c
}

// Now reads the clocks: to be called before a renewal is sent.
func (c *Cache[K, V]) Now() clock.Reading {
	return clock.Read(c.cfg.Clock)
}

// running tells whether a term runs. The lock is held.
func (c *Cache[K, V]) running() bool {
	return c.term > 0 && c.Now().Since(c.sent) < c.term
}

// Connected begins a new stream with an empty cache and no term. It is called
// when the namenode's first message has come on the stream, and before anything
// else that came on it is taken in. After Close it does nothing.
func (c *Cache[K, V]) Connected() {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.dropAll()
	c.connected, c.since, c.term = true, now, 0
}

// Disconnected takes in that the stream has ended: all is dropped, and nothing
// is added before the next Connected. It must be called before another stream is
// asked for.
func (c *Cache[K, V]) Disconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropAll()
	c.connected = false
}

// Extend takes in the answer to a renewal: what the namenode said may be counted
// from before it was sent. Zero, or a renewal that was sent before the stream
// began, changes nothing.
func (c *Cache[K, V]) Extend(sent clock.Reading, term time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term <= 0 || !c.connected || sent.Boot < c.since.Boot || c.term > 0 && sent.Boot+term < c.sent.Boot+c.term {
		return
	}
	c.sent, c.term = sent, term
}

// Ticket is for a read whose answer may be stored. It is taken before the read is sent.
func (c *Cache[K, V]) Ticket() Ticket {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.connected {
		return Ticket{}
	}
	return Ticket{c.life, c.revoked.count}
}

// Get returns the answer to a request, if it is there and the term runs.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	c.mu.RLock()
	e := c.entries[k]
	if e != nil && c.cfg.Leads != nil {
		if next, ok := c.cfg.Leads(e.v); ok {
			e.use()
			e = c.entries[next]
		}
	}
	if e == nil {
		c.mu.RUnlock()
		c.misses.Add(1)
		var none V
		return none, false
	}
	if !c.running() {
		c.mu.RUnlock()
		c.misses.Add(1)
		c.expired.Add(1)
		var none V
		return none, false
	}
	v := e.v
	e.use()
	c.mu.RUnlock()
	c.hits.Add(1)
	return v, true
}

// Put stores the answer to a request that was sent after the ticket was taken,
// granted with the keys that it depends on. It returns false, and stores
// nothing, if one of them was revoked or all was dropped since, if it depends on
// nothing (it could not be revoked), or if it is too large. The keys are copied.
func (c *Cache[K, V]) Put(ticket Ticket, k K, v V, deps []Key) bool {
	return c.put(ticket, k, v, deps, nil)
}

// put is Put, or with the keys own, which were given up, GivenUp.Keep.
func (c *Cache[K, V]) put(ticket Ticket, k K, v V, deps, own []Key) bool {
	if ticket.life == 0 || len(deps) == 0 {
		return false
	}
	size := entryBytes + depBytes*int64(len(deps))
	if c.cfg.Size != nil {
		size += c.cfg.Size(k, v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ticket.life != c.life || c.revoked.since(ticket.count, deps) || c.isGiven(deps, own) {
		c.n.Overtaken++
		return false
	}
	if old := c.entries[k]; old != nil {
		c.remove(old)
	}
	if size > c.cfg.MaxBytes || c.cfg.MaxEntries <= 0 {
		return false
	}
	for len(c.entries) >= c.cfg.MaxEntries || c.bytes+size > c.cfg.MaxBytes {
		c.evict()
	}
	c.insert(k, v, size, deps)
	c.n.Stored++
	return true
}

// Revoke applies a revocation: what depends on the keys is dropped, or all. The
// caller acknowledges it when this has returned.
func (c *Cache[K, V]) Revoke(keys []Key, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n.Revocations++
	if all {
		c.dropAll()
	}
	for _, k := range keys {
		c.revoked.add(k)
		c.drop(k, nil)
	}
}

// Close drops everything, for good.
func (c *Cache[K, V]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropAll()
	c.connected, c.closed, c.term = false, true, 0
}

// Stats returns the figures.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	st := c.n
	st.Entries, st.Bytes = len(c.entries), c.bytes
	st.Hits, st.Misses, st.Expired = c.hits.Load(), c.misses.Load(), c.expired.Load()
	return st
}
