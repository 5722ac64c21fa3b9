package groups

import (
	"fmt"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
)

// A user's groups are asked for once in a while, and not remembered of all.
func TestCache(t *testing.T) {
	clk := new(clock.Fake)
	c := New(clk)
	asked := 0
	c.look = func(name string) []string {
		asked++
		return []string{name + "s"}
	}
	want := func(times int) {
		t.Helper()
		if got := c.Of("u"); !slices.Equal(got, []string{"us"}) || asked != times {
			t.Fatalf("%v after %d questions, want %d", got, asked, times)
		}
	}
	want(1)
	clk.Advance(life - 1)
	want(1)
	clk.Advance(1)
	want(2)
	for i := range maxUsers {
		c.Of(fmt.Sprint(i))
	}
	if len(c.known) > maxUsers {
		t.Fatalf("%d users are remembered", len(c.known))
	}
}
