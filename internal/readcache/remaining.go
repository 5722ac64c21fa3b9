package readcache

import "time"

// Remaining is how long the term still runs; 0 without one.
func (c *Cache[K, V]) Remaining() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.term <= 0 {
		return 0
	}
	return max(c.term-c.Now().Since(c.sent), 0)
}
