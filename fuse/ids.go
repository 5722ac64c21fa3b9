package fuse

import (
	"math"
	"os/user"
	"strconv"
	"sync"
	"time"
)

// idsFresh is how long a name's number is remembered.
const idsFresh = time.Minute

// ids maps names of users and groups to the numbers of this machine, and back.
// A number without a name is written as a name of digits, and read so.
type ids struct {
	// asUID and asGID, if not nil, are shown as owner and group of everything.
	asUID, asGID *uint32
	// noUser and noGroup are the numbers of names that this machine does not know.
	// Nobody has them: who has the mode's bits of owner and group is checked by number.
	noUser, noGroup uint32

	mu    sync.Mutex
	since time.Time
	uids  map[string]uint32
	gids  map[string]uint32
	users map[uint32]string
	group map[uint32]string
}

func newIDs(o Options) ids {
	return ids{asUID: o.UID, asGID: o.GID, noUser: freeNumber(userNamed), noGroup: freeNumber(groupNamed)}
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

// freeNumber is a number without a name: the highest but for those that mean
// something to the kernel (-1) or to NFS (-2). (A machine may name all numbers:
// then it is one of them.)
func freeNumber(named func(number string) bool) uint32 {
	n := uint32(math.MaxUint32 - 2)
	for range 100 {
		if !named(strconv.FormatUint(uint64(n), 10)) {
			break
		}
		n--
	}
	return n
}

func userNamed(number string) bool {
	_, err := user.LookupId(number)
	return err == nil
}

func groupNamed(number string) bool {
	_, err := user.LookupGroupId(number)
	return err == nil
}

// numberOf is the number that a name of digits stands for, if that has no name
// here: who has one is another. Else, and for any other name, it is unknown.
func numberOf(name string, named func(number string) bool, unknown uint32) uint32 {
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || n == math.MaxUint32 || strconv.FormatUint(n, 10) != name || named(name) {
		return unknown
	}
	return uint32(n)
}

// known is the number that this machine's lists have for a name.
func known(record string, unknown uint32) uint32 {
	n, err := strconv.ParseUint(record, 10, 32)
	if err != nil {
		return unknown
	}
	return uint32(n)
}

func (c *ids) uid(name string) uint32 {
	if c.asUID != nil {
		return *c.asUID
	}
	return c.uidOf(name)
}

// uidOf is uid whatever is shown as owner of everything.
func (c *ids) uidOf(name string) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	return remembered(c.uids, name, func() uint32 {
		if u, err := user.Lookup(name); err == nil {
			return known(u.Uid, c.noUser)
		}
		return numberOf(name, userNamed, c.noUser)
	})
}

func (c *ids) gid(name string) uint32 {
	if c.asGID != nil {
		return *c.asGID
	}
	return c.gidOf(name)
}

// gidOf is gid whatever is shown as group of everything.
func (c *ids) gidOf(name string) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	return remembered(c.gids, name, func() uint32 {
		if g, err := user.LookupGroup(name); err == nil {
			return known(g.Gid, c.noGroup)
		}
		return numberOf(name, groupNamed, c.noGroup)
	})
}

// named is the name that a number has on this machine; false if it has none.
func (c *ids) named(uid uint32) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	name := remembered(c.users, uid, func() string { return nameOfUser(uid) })
	return name, name != strconv.FormatUint(uint64(uid), 10)
}

// groupNamed is named for groups.
func (c *ids) groupNamed(gid uint32) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh()
	name := remembered(c.group, gid, func() string { return nameOfGroup(gid) })
	return name, name != strconv.FormatUint(uint64(gid), 10)
}

func nameOfUser(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func nameOfGroup(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

// user is the name of a number; empty if it is the one that all has anyway.
func (c *ids) user(uid uint32) string {
	if c.asUID != nil && *c.asUID == uid {
		return ""
	}
	return c.userName(uid)
}

// userName is user whatever is shown as owner of everything.
func (c *ids) userName(uid uint32) string {
	name, _ := c.named(uid)
	return name
}

// groupName is the name of a number; empty if it is the one that all has anyway.
func (c *ids) groupName(gid uint32) string {
	if c.asGID != nil && *c.asGID == gid {
		return ""
	}
	return c.nameOfGroup(gid)
}

// nameOfGroup is groupName whatever is shown as group of everything.
func (c *ids) nameOfGroup(gid uint32) string {
	name, _ := c.groupNamed(gid)
	return name
}
