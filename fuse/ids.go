package fuse

import (
	"os/user"
	"strconv"
	"sync"
	"time"
)

// nobody is the user and the group of names that this machine does not know.
const nobody = 65534

// idsFresh is how long a name's number is remembered.
const idsFresh = time.Minute

// ids maps names of users and groups to the numbers of this machine, and back.
// A number without a name is written as a name of digits, and read so.
type ids struct {
	// asUID and asGID, if not nil, are shown as owner and group of everything.
	asUID, asGID *uint32

	mu    sync.Mutex
	since time.Time
	uids  map[string]uint32
	gids  map[string]uint32
	users map[uint32]string
	group map[uint32]string
}

func (c *ids) fresh() {
	if now := time.Now(); c.uids == nil || now.Sub(c.since) > idsFresh {
		c.since = now
		c.uids, c.gids = make(map[string]uint32), make(map[string]uint32)
		c.users, c.group = make(map[uint32]string), make(map[uint32]string)
	}
}

// remembered looks a key up, and finds it out if it is not there.
func remembered[K comparable, V any](m map[K]V, k K, find func() V) V {
	v, ok := m[k]
	if !ok {
		v = find()
		m[k] = v
	}
	return v
}

// number is what a name's record says, or the name itself if it is a number.
func number(name, record string, err error) uint32 {
	if err != nil {
		record = name
	}
	n, perr := strconv.ParseUint(record, 10, 32)
	if perr != nil {
		return nobody
	}
	return uint32(n)
}

func (c *ids) uid(name string) uint32 {
	if c.asUID != nil {
		return *c.asUID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	return remembered(c.uids, name, func() uint32 {
		u, err := user.Lookup(name)
		if err != nil {
			return number(name, "", err)
		}
		return number(name, u.Uid, nil)
	})
}

func (c *ids) gid(name string) uint32 {
	if c.asGID != nil {
		return *c.asGID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	return remembered(c.gids, name, func() uint32 {
		g, err := user.LookupGroup(name)
		if err != nil {
			return number(name, "", err)
		}
		return number(name, g.Gid, nil)
	})
}

// user is the name of a number; empty if it is the one that all has anyway.
func (c *ids) user(uid uint32) string {
	if c.asUID != nil && *c.asUID == uid {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	return remembered(c.users, uid, func() string {
		id := strconv.FormatUint(uint64(uid), 10)
		if u, err := user.LookupId(id); err == nil {
			return u.Username
		}
		return id
	})
}

// groupName is the name of a number; empty if it is the one that all has anyway.
func (c *ids) groupName(gid uint32) string {
	if c.asGID != nil && *c.asGID == gid {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	return remembered(c.group, gid, func() string {
		id := strconv.FormatUint(uint64(gid), 10)
		if g, err := user.LookupGroupId(id); err == nil {
			return g.Name
		}
		return id
	})
}
