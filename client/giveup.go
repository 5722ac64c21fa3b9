package client

import (
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// The kinds of cache keys, as the wire contract numbers them.
const (
	keyAttr    = 0 // attributes and content of an inode
	keyEntries = 1 // entries of a directory
	keyName    = 2 // a name in a directory
	// keyDelegation is the delegation of a directory: see package delegation.
	keyDelegation = 3
	// keyLease stands for a granted lease that has not ended, with all that is attached to it.
	keyLease = 4
)

// givenUp is what was given up of the read cache for one call of this client's
// own. Nil is nothing: then the namenode asks for it, as it asks everybody.
type givenUp struct {
	on   *session.Stream
	of   *readcache.GivenUp[readKey, kept]
	keys []readcache.Key
}

// giveUp gives up keys that a call is about to change; settle has to follow.
func (a *answers) giveUp(keys ...readcache.Key) *givenUp {
	st := a.stream()
	if a.cache == nil || st == nil || a.onRevoke != nil && a.onGiveUp == nil {
		return nil
	}
	g := &givenUp{st, a.cache.GiveUp(keys), keys}
	switch {
	case g.of == nil:
		return nil
	case a.stream() != st, // the promise would be one of a stream that is over
		a.onGiveUp != nil && !a.onGiveUp(revocationOf(keys, false)):
		g.of.Resume()
		return nil
	}
	return g
}

// giveUpFile gives up the attributes of a file that is about to grow or to be
// closed, if they are kept.
func (a *answers) giveUpFile(inode uint64) *givenUp {
	k := readcache.Key{Kind: keyAttr, Inode: inode}
	if a.cache == nil || !a.cache.Depends(k) {
		return nil
	}
	return a.giveUp(k)
}

// wire is what the request says.
func (g *givenUp) wire() *pb.CacheGivenUp {
	if g == nil {
		return nil
	}
	out := &pb.CacheGivenUp{Stream: g.on.Number(), Keys: make([]*pb.CacheKey, len(g.keys))}
	for i, k := range g.keys {
		out.Keys[i] = &pb.CacheKey{Kind: uint32(k.Kind), Inode: k.Inode, Name: k.Name}
		if k.Kind == keyEntries || k.Kind == keyDelegation { // see Outlives of the cache
			out.Held = append(out.Held, uint32(i)) //nolint:gosec // an index
		}
	}
	return out
}

// keepStat keeps attributes that came with the reply.
func (g *givenUp) keepStat(as string, r door.Ref, a *pb.Attr, keys []*pb.CacheKey) {
	if g != nil && a != nil {
		keepStat(stat(as, r), a, keys, g.of.Keep)
	}
}

// keepCreate keeps what the reply to a create says of the file and its directory.
func (g *givenUp) keepCreate(as string, r door.Ref, resp *pb.OpenResponse) {
	dir, _ := r.Split()
	g.keepStat(as, r, resp.GetAttr(), resp.GetKeys())
	g.keepStat(as, dir, resp.GetParent(), resp.GetParentKeys())
	g.keepDelegation(resp)
}

// settle is called with what became of the call. If that is not known it may still
// happen, under a promise that is not kept any more: so the stream that the
// promise is of is ended, and another one begun.
func (g *givenUp) settle(c *namecall.Call, err error) {
	switch {
	case g == nil:
	case err != nil && c.AnyLost:
		g.on.Break()
	default:
		g.of.Resume()
	}
}
