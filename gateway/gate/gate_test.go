package gate

import (
	"context"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/share"
)

// TestGate: who gives up waiting takes no place.
func TestGate(t *testing.T) {
	g := New(1, 20*time.Second)
	leave, err := g.Enter(t.Context(), share.User("ann"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Enter(ctx, share.User("joe")); fserror.KindOf(err) != fserror.Canceled {
		t.Errorf("a full gate: %v", err)
	}
	leave()
	leave() // once counts
	if g.Used() != 0 {
		t.Errorf("%d places are taken", g.Used())
	}
	leave, err = g.Enter(t.Context(), share.User("joe"))
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// TestSeveralPlaces: who waits for several places has none of them until there are all.
func TestSeveralPlaces(t *testing.T) {
	g := New(64, 0)
	leave, err := g.EnterAll(t.Context(), 40, share.User("ann"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.EnterAll(t.Context(), 40, share.User("ann")); fserror.KindOf(err) != fserror.Retry || g.Used() != 40 {
		t.Errorf("%d places are taken: %v", g.Used(), err)
	}
	leave()
	if leave, err = g.EnterAll(t.Context(), 48, share.User("ann")); err != nil || g.Used() != 48 {
		t.Fatalf("%d places are taken: %v", g.Used(), err)
	}
	leave()
	if g.Used() != 0 {
		t.Errorf("%d places are taken", g.Used())
	}
}
