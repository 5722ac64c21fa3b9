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
