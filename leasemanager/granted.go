package leasemanager

import (
	"encoding/binary"
	"time"

	"github.com/google/btree"
)

// grantedLeases are the leases with a TTL of their own.
type grantedLeases struct {
	*timing
	*index
	ages *ages

	deadlines      order               // leases that are not ending, by deadline
	over           *btree.BTreeG[item] // leases that are ending
	grantedExpired uint64
}

// clear forgets all leases.
func (g *grantedLeases) clear() {
	g.deadlines, g.over = newOrder(), btree.NewG(32, byStamp)
	g.grants.all(func(l *lease) { l.word.Or(flagEnding) }) // for keep-alives that have looked it up before
	g.grants.clear()
}

// maxTTL bounds the TTL of a granted lease, so that its deadline is a number.
const maxTTL = 100 * 365 * 24 * time.Hour

// grantKey is what the directory of granted leases has an id under.
func grantKey(id uint64) (key SessionID) {
	binary.LittleEndian.PutUint64(key[:], id)
	return key
}

// Grant notes that a lease with a TTL of its own was granted: the record is
// applied. The TTL counts from now. An id that is known changes nothing, nor
// does one that is 0 or not below FirstSessionLease.
func (g *grantedLeases) Grant(h Holder, id uint64, ttl time.Duration) {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grant(h, id, ttl, now, now)
}

func (g *grantedLeases) grant(h Holder, id uint64, ttl, now, stamp time.Duration) {
	key := grantKey(id)
	if id == 0 || id >= FirstSessionLease || g.grants.get(key) != nil {
		return
	}
	ttl = min(max(ttl, 1), maxTTL)
	l := &lease{session: key, owner: &h, id: id, born: now, kind: KindGranted}
	l.limit.Store(int64(ttl))
	l.renew(stamp, 0)
	g.ages.lower(l)
	l.key = g.deadline(l)
	g.deadlines.ReplaceOrInsert(item{l.key, id, l})
	g.ids.ReplaceOrInsert(item{l.key, id, l})
	g.grants.setCurrent(l)
	g.ages.watch(l)
}

// KeepAlive renews a granted lease, and returns how long it lives on from now
// whatever becomes of the namenode: its TTL, or less while the journal has an age
// of it (see "Ages"). It returns false, and renews nothing, if the lease is not known or its end has begun. Constant time,
// no allocation, no lock but a shard's, and that only to read.
func (g *grantedLeases) KeepAlive(id uint64) (lives time.Duration, ok bool) {
	now := g.now()
	key := grantKey(id)
	sh, hash := g.grants.hash(key)
	sh.renewals.Add(1)
	l := sh.find(&key, hash)
	if l == nil || !l.renew(now, flagEnding) {
		return 0, false
	}
	lives = time.Duration(l.limit.Load())
	if owed := time.Duration(l.owes.Load()); owed > 0 { // read after the stamp was set
		lives = g.graceOf(KindGranted, 0, lives).left(owed, lives)
	}
	return lives, true
}

// TimeToLive returns how long a granted lease lives on if it is not kept alive,
// and its TTL; false if it is not known. What remains is never below 0, and 0
// when the end has begun. In safe mode it is the whole TTL, which counts from
// the end of it.
func (g *grantedLeases) TimeToLive(id uint64) (remaining, ttl time.Duration, ok bool) {
	now := g.now()
	g.mu.RLock()
	defer g.mu.RUnlock()
	l := g.grants.get(grantKey(id))
	if l == nil {
		return 0, 0, false
	}
	return g.remaining(l, now), time.Duration(l.limit.Load()), true
}

// ExpireGranted begins the end of granted leases that are past their TTL: at
// most n of them, and for at most the slice of lock time, the earliest deadline
// first, from where the call before stopped. From then on they cannot be
// kept alive. For each one the caller writes the record of its end and calls
// Revoke when it is applied, or NotExpired if it could not be written. Nil if
// there is nothing to do.
func (g *grantedLeases) ExpireGranted(n int) []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.safeMode {
		return nil
	}
	begin := g.now()
	var out []uint64
	g.deadlines.walk(g.timing, begin, 0, n, func(it item) bool {
		if !g.deadlines.markEnding(g.timing, it, time.Duration(it.l.limit.Load()), g.over) {
			return false
		}
		it.l.out = true
		out = append(out, it.id)
		return true
	})
	return out
}

// Revoke notes that a granted lease ended, because its TTL was over or somebody
// ended it: the record is applied. It is forgotten.
func (g *grantedLeases) Revoke(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := grantKey(id)
	l := g.grants.get(key)
	if l == nil {
		return
	}
	l.word.Or(flagEnding) // for keep-alives that have looked it up before
	g.grants.remove(key)
	g.ids.Delete(item{id: id})
	g.ages.forget(AgeKey{Granted: id})
	if l.out {
		g.over.Delete(item{stamp: l.key, id: id})
		g.grantedExpired++
		return
	}
	g.deadlines.Delete(item{stamp: l.key, id: id})
}

// NotExpired is called when the record of the end of a lease that ExpireGranted
// returned could not be written: the lease is alive as before, and is tried
// again in a later walk through the order unless it is kept alive.
func (g *grantedLeases) NotExpired(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.grants.get(grantKey(id))
	if l == nil || !l.out {
		return
	}
	l.out = false
	g.over.Delete(item{stamp: l.key, id: id})
	g.deadlines.ReplaceOrInsert(item{l.key, id, l})
	l.setFlag(flagEnding, false)
}
