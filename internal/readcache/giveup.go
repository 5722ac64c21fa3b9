package readcache

// GivenUp is what was given up for a change of one's own. It belongs to one
// goroutine.
type GivenUp[K comparable, V any] struct {
	c      *Cache[K, V]
	keys   []Key
	ticket Ticket
}

// GiveUp drops what depends on the keys, and keeps nothing more that does until
// Resume: so the namenode may be told, with the call that changes them, that this
// holder need not be asked. What Config.Outlives is still answered (the
// caller brings it up to date before the call is sent, see Peek), and dropped only when somebody else changes the keys: the namenode must continue telling of
// that. Nil, which gives up nothing, if there is no connection.
func (c *Cache[K, V]) GiveUp(keys []Key) *GivenUp[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected {
		return nil
	}
	for _, k := range keys {
		c.given[k]++
		c.drop(k, c.cfg.Outlives)
	}
	return &GivenUp[K, V]{c, keys, Ticket{c.life, c.revoked.count}}
}

// Keep stores, before Resume, what came with the reply to the change itself: it was
// read after that. Like Cache.Put it returns false if something came in between,
// another change of one's own under way included.
func (g *GivenUp[K, V]) Keep(k K, v V, deps []Key) bool {
	if g == nil {
		return false
	}
	return g.c.put(g.ticket, k, v, deps, g.keys)
}

// Resume is called when the reply is there, and nothing of the call can happen any
// more: from now on answers to what is read after this may be kept. If what
// became of the call is not known Resume must not be called, but the stream ended
// (Disconnected), which ends it, too.
func (g *GivenUp[K, V]) Resume() {
	if g == nil {
		return
	}
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.ticket.life != c.life {
		return // all is dropped since
	}
	for _, k := range g.keys {
		if c.given[k]--; c.given[k] == 0 {
			delete(c.given, k)
		}
		c.revoked.add(k) // for reads that are under way; what Keep stored stays
	}
}

// Peek returns the answer to a request if it is there, whether or not a term
// runs: to bring up to date what Config.Outlives a change that was given up for.
func (c *Cache[K, V]) Peek(k K) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.entries[k]; e != nil {
		return e.v, true
	}
	var none V
	return none, false
}

// isGiven tells whether a change is under way for which something of deps was
// given up; own are the keys of the one that asks.
func (c *Cache[K, V]) isGiven(deps, own []Key) bool {
	if len(c.given) == 0 {
		return false
	}
	for _, d := range deps {
		n := c.given[d]
		if n == 0 {
			continue
		}
		for _, k := range own {
			if k == d {
				n--
			}
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// drop drops what depends on a key, but for what outlives that. The lock is held.
func (c *Cache[K, V]) drop(k Key, outlives func(K) bool) {
	d := c.deps[k]
	if d == nil {
		return
	}
	for i := 0; i < len(d.list); {
		e := d.list[i].e
		if outlives != nil && outlives(e.k) {
			i++
			continue
		}
		c.n.Drops++
		c.remove(e) // another takes its place
	}
}

// Depends tells whether anything that is kept depends on a key.
func (c *Cache[K, V]) Depends(k Key) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.deps[k] != nil
}
