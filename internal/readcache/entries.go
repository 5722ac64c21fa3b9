package readcache

import (
	"strings"
	"sync/atomic"
)

// entry is an answer, in the list of all by age.
type entry[K comparable, V any] struct {
	k          K
	v          V
	size       int64
	used       atomic.Bool // since it came, or was passed over
	deps       []dep[K, V]
	next, prev *entry[K, V]
}

// dep is one key that an entry depends on, and its place in the key's list.
type dep[K comparable, V any] struct {
	d  *dependents[K, V]
	at int
}

// dependents are the entries that depend on a key, each with the place of the
// key in its deps. Both sides know their place in the other, so that removing is
// the same small work for a key that all depend on.
type dependents[K comparable, V any] struct {
	key  Key
	list []dependent[K, V]
}

type dependent[K comparable, V any] struct {
	e  *entry[K, V]
	at int
}

// use notes that the entry was of use.
func (e *entry[K, V]) use() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}

func (e *entry[K, V]) link(root *entry[K, V]) {
	e.prev, e.next = root, root.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry[K, V]) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.next, e.prev = nil, nil
}

// insert adds what is not there.
func (c *Cache[K, V]) insert(k K, v V, size int64, deps []Key) {
	e := &entry[K, V]{k: k, v: v, size: size, deps: make([]dep[K, V], 0, len(deps))}
	for _, key := range deps {
		d := c.deps[key]
		if d == nil {
			key.Name = strings.Clone(key.Name) // it may be a piece of a whole answer
			d = &dependents[K, V]{key: key}
			c.deps[key] = d
		}
		e.deps = append(e.deps, dep[K, V]{d, len(d.list)})
		d.list = append(d.list, dependent[K, V]{e, len(e.deps) - 1})
	}
	c.entries[k] = e
	c.bytes += size
	e.link(&c.ring)
}

// remove takes an entry out. The map's key is the entry's own.
func (c *Cache[K, V]) remove(e *entry[K, V]) {
	for _, x := range e.deps {
		last := len(x.d.list) - 1
		moved := x.d.list[last]
		x.d.list[last] = dependent[K, V]{}
		x.d.list = x.d.list[:last]
		if last == 0 {
			delete(c.deps, x.d.key)
		}
		if x.at != last {
			x.d.list[x.at] = moved
			moved.e.deps[moved.at].at = x.at
		}
	}
	delete(c.entries, e.k)
	c.bytes -= e.size
	e.unlink()
}

// evict takes one entry out: the oldest that was not used since it was put
// there or passed over.
func (c *Cache[K, V]) evict() {
	for {
		e := c.ring.prev
		if !e.used.Load() {
			c.remove(e)
			c.n.Evictions++
			return
		}
		e.used.Store(false)
		e.unlink()
		e.link(&c.ring)
	}
}

// dropAll drops everything, and what is under way is not stored.
func (c *Cache[K, V]) dropAll() {
	c.life++
	c.n.DropAlls++
	c.n.Drops += uint64(len(c.entries))
	if len(c.entries) > 0 {
		c.entries = make(map[K]*entry[K, V])
		c.deps = make(map[Key]*dependents[K, V])
		c.ring.next, c.ring.prev = &c.ring, &c.ring
		c.bytes = 0
	}
	c.revoked.forget()
	clear(c.given)
}

// history is the latest revoked keys, each with the number of its revocation.
type history struct {
	count uint64 // of all keys revoked
	known uint64 // those up to it are forgotten
	last  map[Key]uint64
	ring  []Key // number n is at n modulo its length
}

func (h *history) init() { h.last = make(map[Key]uint64) }

func (h *history) add(k Key) {
	h.count++
	at := h.count % remembered
	switch {
	case h.count > h.known+remembered: // it takes the place of an older one
		h.known++
		if h.last[h.ring[at]] == h.known {
			delete(h.last, h.ring[at])
		}
	case h.ring == nil:
		h.ring = make([]Key, remembered)
	}
	h.ring[at] = k
	h.last[k] = h.count
}

// since tells whether one of the keys was revoked after the count, or that is
// not known any more.
func (h *history) since(count uint64, keys []Key) bool {
	if count < h.known {
		return true
	}
	if count == h.count {
		return false
	}
	for _, k := range keys {
		if h.last[k] > count {
			return true
		}
	}
	return false
}

// forget is for when all tickets are void.
func (h *history) forget() {
	h.known = h.count
	h.ring = nil
	clear(h.last)
}
