package namenode

import (
	"os/user"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// groupsLife is how long a user's groups are remembered, as HDFS's
// hadoop.security.groups.cache.secs.
const groupsLife = 5 * time.Minute

// maxGroupUsers bounds the cache: names come from the network.
const maxGroupUsers = 10_000

// groupCache remembers what the operating system says of users' groups.
type groupCache struct {
	clock clock.Clock
	look  func(string) []string

	mu    sync.Mutex
	known map[string]groupEntry
}

type groupEntry struct {
	groups []string
	until  time.Duration
}

func newGroupCache(c clock.Clock, look func(string) []string) *groupCache {
	return &groupCache{clock: c, look: look, known: map[string]groupEntry{}}
}

func (g *groupCache) groups(name string) []string {
	now := g.clock.Mono()
	g.mu.Lock()
	e, ok := g.known[name]
	g.mu.Unlock()
	if ok && now < e.until {
		return e.groups
	}
	e = groupEntry{groups: g.look(name), until: now + groupsLife}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxGroupUsers {
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
