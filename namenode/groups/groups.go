// Package groups says which groups the operating system has users in, and remembers it
// for a while.
package groups

import (
	"errors"
	"maps"
	"os/user"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

const (
	// life is how long a user's groups are remembered, as HDFS's
	// hadoop.security.groups.cache.secs.
	life = 5 * time.Minute
	// again is after how long a lookup that failed is repeated.
	again = 10 * time.Second
)

// maxUsers bounds the cache: names come from the network.
const maxUsers = 10_000

// Cache remembers what the operating system says. It is safe for concurrent use.
type Cache struct {
	clock clock.Clock
	look  func(string) ([]string, error)

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

// Of returns the groups of a user. They are not to be changed. While a lookup fails they are those
// that were known before, or none: a failure says nothing of who is in a group.
func (g *Cache) Of(name string) []string {
	now := g.clock.Mono()
	g.mu.Lock()
	e, ok := g.known[name]
	g.mu.Unlock()
	if ok && now < e.until {
		return e.groups
	}
	if in, err := g.look(name); err == nil {
		e = entry{in, now + life}
	} else {
		e.until = now + again
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxUsers {
		maps.DeleteFunc(g.known, func(_ string, e entry) bool { return e.until <= now })
	}
	if len(g.known) >= maxUsers {
		clear(g.known)
	}
	g.known[name] = e
	return e.groups
}

// osGroups asks the operating system; an unknown user is in no group.
func osGroups(name string) (names []string, err error) {
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		g, err := user.LookupGroupId(id)
		if errors.As(err, new(user.UnknownGroupIdError)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names = append(names, g.Name)
	}
	return names, nil
}
