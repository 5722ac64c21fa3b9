package users

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// TestUsers: there are only so many sessions; idle ones make room, used ones do not.
func TestUsers(t *testing.T) {
	n := env.Start(t)
	us := New(t.Context(), client.Config{Namenodes: []string{n.Addr()}}, 2, nil)
	defer us.Close()
	get := func(name string) *User {
		t.Helper()
		u, err := us.Get(t.Context(), Key{User: name})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	ann := get("ann")
	if again := get("ann"); again != ann {
		t.Error("a user has two sessions")
	}
	us.Release(ann)
	us.Release(get("joe"))
	eve := get("eve") // takes joe's place
	if us.byKey[Key{User: "joe"}] != nil || us.byKey[Key{User: "ann"}] != ann {
		t.Error("another than the idle one made room")
	}
	if _, err := us.Get(t.Context(), Key{User: "joe"}); fserror.KindOf(err) != fserror.Retry {
		t.Errorf("with all in use: %v", err)
	}
	us.Release(eve)
	us.Release(ann)
	us.EndIdle() // none is idle for long
	if len(us.byKey) != 2 {
		t.Error("a session ended early")
	}
	ann.last = time.Now().Add(-2 * idle)
	us.EndIdle()
	if us.byKey[Key{User: "ann"}] != nil || us.byKey[Key{User: "eve"}] != eve {
		t.Error("the idle one did not end")
	}
}

// TestUsersUnderWay: sessions that are being opened and closed count, too.
func TestUsersUnderWay(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	life, kill := context.WithCancel(t.Context())
	us := New(life, client.Config{Namenodes: []string{silent.Addr().String()}, Timeout: time.Hour}, 2, nil)
	defer us.Close()
	defer kill()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"ann", "joe"} {
		if _, err := us.Get(over, Key{User: name}); fserror.KindOf(err) != fserror.Canceled {
			t.Fatalf("%s, who does not wait: %v", name, err)
		}
	}
	if _, err := us.Get(over, Key{User: "eve"}); fserror.KindOf(err) != fserror.Retry || us.byKey[Key{User: "ann"}] == nil || us.byKey[Key{User: "joe"}] == nil {
		t.Fatalf("with two that are being opened: %v", err)
	}
	us.byKey[Key{User: "ann"}].last = time.Now().Add(-2 * idle)
	us.EndIdle()
	if us.byKey[Key{User: "ann"}] != nil {
		t.Error("the idle one does not end")
	}
	if _, err := us.Get(over, Key{User: "eve"}); fserror.KindOf(err) != fserror.Retry {
		t.Errorf("with one that is being closed: %v", err)
	}
}

// TestUsersTakeTurns: a session that makes room ends before the next one begins.
func TestUsersTakeTurns(t *testing.T) {
	n := env.Start(t)
	us := New(t.Context(), client.Config{Namenodes: []string{n.Addr()}}, 1, nil)
	defer us.Close()
	ann, err := us.Get(t.Context(), Key{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	end := ann.close
	ann.close = func() error {
		us.mu.Lock()
		joe := us.byKey[Key{User: "joe"}]
		us.mu.Unlock()
		select {
		case <-joe.ready:
			t.Error("two have a session where one may")
		case <-time.After(300 * time.Millisecond): // it would have begun
		}
		return end()
	}
	us.Release(ann)
	joe, err := us.Get(t.Context(), Key{User: "joe"})
	if err != nil {
		t.Fatal(err)
	}
	us.Release(joe)
	ann.last, joe.last = time.Time{}, time.Time{}
	us.EndIdle()
	env.Eventually(t, "nothing is ending", func() bool {
		us.mu.Lock()
		defer us.mu.Unlock()
		return us.ending == 0 && len(us.byKey) == 0
	})
}

// TestUsersShare: a client's name is part of whose session one is, and no user has more
// than half of the sessions.
func TestUsersShare(t *testing.T) {
	n := env.Start(t)
	us := New(t.Context(), client.Config{Namenodes: []string{n.Addr()}}, 4, nil)
	defer us.Close()
	get := func(user, name string) *User {
		t.Helper()
		u, err := us.Get(t.Context(), Key{user, name})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	a, b := get("ann", "a"), get("ann", "b")
	if a == b || a.FS.Info().Client != "a" || b.FS.Info().Client != "b" {
		t.Errorf("sessions of two clients: %+v, %+v", a.FS.Info(), b.FS.Info())
	}
	if _, err := us.Get(t.Context(), Key{"ann", "c"}); fserror.KindOf(err) != fserror.Retry {
		t.Errorf("a third of four: %v", err)
	}
	get("joe", "a")
	us.Release(b)
	get("ann", "c")
	if us.byKey[b.Key] != nil || us.byKey[a.Key] != a {
		t.Error("another than ann's idle one made room")
	}
}

// TestBlocksAheadAreShared: a user who takes all there are leaves some to others, and gets
// back what he gives.
func TestBlocksAheadAreShared(t *testing.T) {
	us := New(t.Context(), client.Config{}, 2, nil)
	greedy := us.aheadOf("ann")
	var has []func()
	for give := greedy(); give != nil; give = greedy() {
		if has = append(has, give); len(has) > aheadBlocks {
			t.Fatal("there is no end of blocks")
		}
	}
	another := us.aheadOf("bob")()
	if another == nil {
		t.Fatalf("with %d of %d blocks for one user, another gets none", len(has), aheadBlocks)
	}
	another()
	for _, give := range has {
		give()
	}
	for range has {
		if greedy() == nil {
			t.Fatal("a block that was given back is gone")
		}
	}
}

// TestEndInUse: a session that is ended while it is in use counts until it is given back, and who comes
// meanwhile gets another.
func TestEndInUse(t *testing.T) {
	n := env.Start(t)
	us := New(t.Context(), client.Config{Namenodes: []string{n.Addr()}}, 2, nil)
	defer us.Close()
	get := func() (*User, error) { return us.Get(t.Context(), Key{User: "ann"}) }
	first, err := get()
	if err != nil {
		t.Fatal(err)
	}
	us.Retire(first)
	us.Retire(first)
	second, err := get()
	if err != nil || second == first {
		t.Fatalf("another session: %t, %v", second != first, err)
	}
	if _, err := first.FS.Stat(t.Context(), "/"); err != nil {
		t.Errorf("who uses it still: %v", err)
	}
	if _, err := us.Get(t.Context(), Key{User: "joe"}); fserror.KindOf(err) != fserror.Retry {
		t.Errorf("a third of two: %v", err)
	}
	us.Release(first)
	env.Eventually(t, "it has ended", func() bool {
		us.mu.Lock()
		defer us.mu.Unlock()
		return us.ending == 0
	})
	if again, err := get(); err != nil || again != second {
		t.Errorf("its successor is lost: %v", err)
	}
	us.Release(second)
	us.Release(second)
}
