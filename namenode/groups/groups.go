// Package groups says which groups the operating system has users in, and remembers it
// for a while.
package groups

import (
	"os/user"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// life is how long a user's groups are remembered, as HDFS's
// hadoop.security.groups.cache.secs.
const life = 5 * time.Minute

// maxUsers bounds the cache: names come from the network.
const maxUsers = 10_000

// Cache remembers what the operating system says. It is safe for concurrent use.
type Cache struct {
	clock clock.Clock
	look  func(string) []string

	mu    sync.Mutex
	known map[string]entry
}

type entry struct {
	groups []string
	until  time.Duration
}

// New returns an empty Cache.
func New(c clock.Clock) *Cache {
	return &Cache{clock: c, look: osGroups, known: map[string]entry{}}
}

// Of returns the groups of a user. They are not to be changed.
func (g *Cache) Of(name string) []string {
	now := g.clock.Mono()
	g.mu.Lock()
	e, ok := g.known[name]
	g.mu.Unlock()
	if ok && now < e.until {
		return e.groups
	}
	e = entry{groups: g.look(name), until: now + life}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxUsers {
		clear(g.known)
	}
	g.known[name] = e
	return e.groups
}

// osGroups asks the operating system; an unknown user is in no group.
func osGroups(name string) []string {
	u, err := user.Lookup(name)
	if err != nil {
		return nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var names []string
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			names = append(names, g.Name)
		}
	}
	return names
}
