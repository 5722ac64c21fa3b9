package zkconn_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/zkconn"
)

func dialAs(t testing.TB, logins ...string) *zkconn.Session {
	t.Helper()
	cfg := zkconn.Config{Servers: ensemble.Addrs(), SessionTimeout: sessionTimeout, Logger: quiet, User: "nn", Password: logins[0]}
	if len(logins) > 1 {
		cfg.AlsoUser, cfg.AlsoPassword = "nn", logins[1]
	}
	s, err := zkconn.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestOwnAll takes a tree in folders, as a journal has it, from one owner to two and
// to the other, while its nodes come and go.
func TestOwnAll(t *testing.T) {
	const folders, each = 12, 250
	top := unique("owned")
	before := dialAs(t, "before")
	if err := before.EnsurePath(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	for f := range folders {
		folder := fmt.Sprintf("%s/%d", top, f)
		ops := []any{&zk.CreateRequest{Path: folder, Acl: before.ACL()}}
		for n := range each {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%d", folder, n), Acl: before.ACL()})
		}
		if _, err := before.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("%s/%d/%d", top, folders-1, each-1)
	own := func(s *zkconn.Session) (nodes, changed int64) {
		t.Helper()
		var n, c atomic.Int64
		err := s.OwnAll(t.Context(), top, func(another bool) {
			if n.Add(1); another {
				c.Add(1)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return n.Load(), c.Load()
	}
	refused := func(who string) {
		t.Helper()
		if _, _, err := dialAs(t, who).Get(t.Context(), last); !errors.Is(err, zk.ErrNoAuth) {
			t.Fatalf("%s reads %s: %v", who, last, err)
		}
	}

	refused("after")
	if err := dialAs(t, "after").OwnAll(t.Context(), top, func(bool) {}); !errors.Is(err, zk.ErrNoAuth) {
		t.Fatalf("who is no owner becomes one: %v", err)
	}
	// A tree that loses a folder meanwhile: what is gone is passed over.
	const all = 1 + folders*(1+each)
	gone := make(chan error, 1)
	go func() {
		var ops []any
		for n := range each {
			ops = append(ops, &zk.DeleteRequest{Path: fmt.Sprintf("%s/0/%d", top, n), Version: -1})
		}
		_, err := before.Multi(t.Context(), append(ops, &zk.DeleteRequest{Path: top + "/0", Version: -1})...)
		gone <- err
	}()
	if nodes, changed := own(dialAs(t, "before", "after")); nodes < all-1-each || nodes > all || changed != nodes {
		t.Fatalf("%d nodes, %d of them changed", nodes, changed)
	}
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"before", "after"} {
		if _, _, err := dialAs(t, who).Get(t.Context(), last); err != nil {
			t.Fatalf("%s: %v", who, err)
		}
	}
	after := dialAs(t, "after")
	if nodes, changed := own(after); nodes != all-1-each || changed != nodes {
		t.Fatalf("%d nodes, %d of them changed", nodes, changed)
	}
	refused("before")
	if nodes, changed := own(after); nodes != all-1-each || changed != 0 {
		t.Fatalf("again: %d nodes, %d of them changed", nodes, changed)
	}
}

// TestOwnShared: who made the node that all namespaces share can hand it on, and it
// stays open to others; who did not leaves it as it is.
func TestOwnShared(t *testing.T) {
	path := unique("shared")
	if err := dialAs(t, "before").EnsureShared(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	other := dialAs(t, "other")
	if err := other.OwnShared(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*zkconn.Session{dialAs(t, "before", "after"), dialAs(t, "after")} {
		if err := s.OwnShared(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Create(t.Context(), path+"/theirs", nil, 0); err != nil {
		t.Fatalf("others have no room any more: %v", err)
	}
	if err := dialAs(t, "before").Delete(t.Context(), path+"/theirs", -1); !errors.Is(err, zk.ErrNoAuth) {
		t.Fatalf("the owner of before removes what is in it: %v", err)
	}
	if err := other.OwnAll(t.Context(), path, func(bool) {}); !errors.Is(err, zk.ErrNoAuth) {
		t.Fatalf("another user takes it: %v", err)
	}
}
