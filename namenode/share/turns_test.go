package share

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// Whose turn is next is decided by how many each has under way, then by who waits
// longest; who gave up does not stand in the way.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2)
		var order []string
		ask := func(ctx context.Context, name string) {
			go func() {
				if err := turns.Begin(ctx, name); err == nil {
					order = append(order, name)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 4 {
			ask(t.Context(), "greedy")
		}
		short, giveUp := context.WithCancel(t.Context())
		ask(short, "gone")
		ask(t.Context(), "a")
		ask(t.Context(), "b")
		giveUp()
		synctest.Wait()
		for _, name := range []string{"greedy", "a", "greedy", "b"} {
			turns.End(name)
			synctest.Wait()
		}
		if want := []string{"greedy", "greedy", "a", "b", "greedy", "greedy"}; !slices.Equal(order, want) {
			t.Errorf("turns of %v, want %v", order, want)
		}
		turns.End("greedy")
		turns.End("greedy")
		if turns.free != 2 || len(turns.under) != 0 || len(turns.waiting) != 0 {
			t.Errorf("left behind: %+v", turns)
		}
	})
}
