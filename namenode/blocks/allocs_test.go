package blocks

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// A session has no more keys than it may; its oldest give way once they are
// old, those of others and the namenode's own do not count.
func TestOutstandingKeysAreBounded(t *testing.T) {
	a := newAllocTable()
	me, other := namespace.SessionID{1}, namespace.SessionID{2}
	var mine []blockstore.Key
	for i := range maxOutstanding {
		mine = append(mine, a.mint(alloc{session: me, expires: time.Duration(i)}))
		a.mint(alloc{session: other, expires: time.Duration(i)})
		a.mint(alloc{expires: time.Duration(i)})
	}
	if a.admit(me, 1, 0) {
		t.Fatal("one more key was allowed")
	}
	a.drop(mine[200])
	if !a.admit(me, 1, 0) || a.admit(me, 2, 0) {
		t.Fatal("a committed key does not make room for one")
	}
	if !a.admit(me, 3, 2) {
		t.Fatal("two old keys do not make room")
	}
	for i, k := range mine {
		if _, ok := a.get(k); ok == (i < 2 || i == 200) {
			t.Fatalf("key %d: live %t", i, ok)
		}
	}
	if got := a.len(); got != 3*maxOutstanding-3 {
		t.Fatalf("%d keys", got)
	}
	if !a.admit(namespace.SessionID{}, 16, 0) {
		t.Fatal("the namenode itself is stopped")
	}
}

// A session that commits what it allocates continues for ever, and the table
// does not grow with it, even if one early key is never used.
func TestOutstandingKeysOfALongWriter(t *testing.T) {
	a := newAllocTable()
	me := namespace.SessionID{1}
	a.mint(alloc{session: me})
	for range 100_000 {
		if !a.admit(me, 1, 0) {
			t.Fatal("refused")
		}
		a.drop(a.mint(alloc{session: me}))
	}
	if o := a.sessions[me]; a.len() != 1 || o.live != 1 || len(o.keys) > 3*maxOutstanding {
		t.Fatalf("%d keys, %d and %d of the session", a.len(), o.live, len(o.keys))
	}
}

// Expiry looks at what has expired, and forgets nothing else.
func TestKeysExpireInOrder(t *testing.T) {
	a := newAllocTable()
	me := namespace.SessionID{1}
	var keys []blockstore.Key
	for i := range 100 {
		keys = append(keys, a.mint(alloc{session: me, expires: time.Duration(i)}))
	}
	a.drop(keys[10])
	a.drop(keys[60])
	a.expire(50)
	for i, k := range keys {
		if _, ok := a.get(k); ok != (i >= 50 && i != 60) {
			t.Fatalf("key %d: live %t", i, ok)
		}
	}
	if a.over != 50 { // it begins there the next time
		t.Fatalf("%d keys are over", a.over)
	}
	a.expire(1000)
	if len(a.live) != 0 || len(a.sessions) != 0 || a.over != 100 {
		t.Fatalf("%d keys and %d sessions are left", len(a.live), len(a.sessions))
	}
}
